"""Files that coverage guides: atheris (libFuzzer) keeps what reaches a new branch of heed's, and mutates it on.

    python -m tools.attack.guided --target gguf --minutes 5

Inputs are heads of files among healthy ones, tried in one quick process, so parsers alone are asked. Half of the
mutations know the formats, half are libFuzzer's. What fails is tried again, made smaller and kept as in all attacks.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import NamedTuple
from zlib import crc32

from .warm import warm  # isort: skip  # first: it says how libraries are to be imported

from .__main__ import Progress, free_folder
from .case import ROOT, Case, corpus, write
from .cell import limit, outcome
from .formats import mutated
from .fuzz import keep
from .lanes import Lanes, Result
from .materials import PLACE
from .parsers import GUIDED
from .targets import Target

HEAD = 1 << 14  # bytes of a file that are mutated; tensors and the like, which come after them, stay
STATUS = re.compile(r"^#(\d+)\s+(\w+)\s+cov: (\d+) ft: \d+ corp: (\d+)")  # as libFuzzer tells it


@dataclass(frozen=True)
class Inputs:
    """Bytes as cases of a target: two of them choose a file of a material, the others are its head."""

    target: Target

    @cached_property
    def slots(self) -> list[tuple[str, str, bytes]]:
        """A material, a file of it, and what that holds."""
        every = [(material, *file) for material, files in self.target.materials.items() for file in files.items()]
        fits = [(a, b, c) for a, b, c in every if any(fnmatch(b, one) for one in self.target.focus)]
        return sorted((material, name, data) for material, name, data in fits if isinstance(data, bytes))

    def slot(self, data: bytes) -> tuple[str, str, bytes]:
        return self.slots[int.from_bytes(data[:2], "little") % len(self.slots)]

    def case(self, data: bytes) -> Case:
        material, name, healthy = self.slot(data)
        before = self.target.materials[material]
        files = {**before, name: data[2:] + healthy[HEAD:]}
        if self.target.finish is not None and not name.endswith("SHA256SUMS"):
            self.target.finish(Random(0), files)
        return replace(Case.of(self.target.name, material, before, files), seed=crc32(data))

    def seeds(self) -> Iterator[bytes]:
        """The healthy files, and what the corpus has in their place."""
        kept = [case for _, case in corpus() if case.target == self.target.name]
        for number, (material, name, healthy) in enumerate(self.slots):
            for one in (healthy, *(case.changed.get(name) for case in kept if case.material == material)):
                if isinstance(one, bytes):
                    yield number.to_bytes(2, "little") + one[:HEAD]

    def mutated(self, data: bytes, seed: int) -> bytes:
        """As the file's format has it."""
        _, name, healthy = self.slot(data)
        return data[:2] + mutated(Random(seed), name, data[2:] + healthy[HEAD:]).removesuffix(healthy[HEAD:])


# --- the process that is instrumented ---


def work(name: str, room: Path, minutes: float) -> int:
    """Try inputs until the time is up or one ends the process; those that fail are left in room/failed."""
    import atheris

    target, known = GUIDED[name], set[str]()
    with atheris.instrument_imports(include=["heed"]):
        warm([target])
    inputs = Inputs(target)
    for material, files in target.materials.items():
        for folder in ("in", "out"):
            (room / material / folder).mkdir(parents=True)
        write(files, room / material / "in")

    def tried(data: bytes) -> None:
        case = inputs.case(data)
        place, before = room / case.material, target.materials[case.material]
        write(dict(case.changed), place / "in")
        found = outcome(target, place, Random(case.seed))
        result = Result(target, case, found["verdict"], found["text"])
        write({each: before[each] for each in case.changed}, place / "in")
        if not result.fine and result.signature not in known:
            known.add(result.signature)
            (room / "failed" / f"exception-{len(known)}").write_bytes(data)

    def changed(data: bytes, most: int, seed: int) -> bytes:
        with suppress(RecursionError):  # a mutation before this one made it too deep to be parsed here
            if seed % 2:
                return inputs.mutated(data, seed)[:most]
        return bytes(atheris.Mutate(data, most))

    limit()
    options = (f"-max_total_time={60 * minutes:.0f}", f"-max_len={2 * HEAD}", "-timeout=20", "-report_slow_units=20")
    places = (f"-artifact_prefix={room}/failed/", str(room / "kept"), str(room / "seeds"))
    atheris.Setup([sys.argv[0], *options, *places], tried, custom_mutator=changed)
    atheris.Fuzz()  # ends the process
    return 0


# --- the process that looks after it ---


class Tally(NamedTuple):
    """What became of a target; edges of heed's code that its seeds reach, and that any input does."""

    executions: int = 0
    seeds: int = 0
    edges: int = 0
    kept: int = 0
    failures: tuple[str, ...] = ()


def guided(name: str, room: Path, minutes: float, found: Path) -> Tally:
    inputs, tally, tell, begun, said = Inputs(GUIDED[name]), Tally(), Progress(), time.monotonic(), ""
    for folder in ("failed", "kept", "seeds"):
        (room / folder).mkdir(parents=True)
    for number, seed in enumerate(inputs.seeds()):
        (room / "seeds" / str(number)).write_bytes(seed)
    options = ["--work", "--target", name, "--minutes", str(minutes), "--found", str(room)]
    command = [sys.executable, "-m", "tools.attack.guided", *options]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        for line in process.stderr or ():
            said = said[-2000:] + line
            if match := STATUS.match(line):
                count, edges, kept = int(match[1]), int(match[3]), int(match[4])
                tally = Tally(count, edges if match[2] == "INITED" else tally.seeds, edges, kept)
                tell(f"{name}: {count:,} executions, {edges:,} edges", (time.monotonic() - begun) / (60 * minutes))
    failed = sorted((room / "failed").iterdir())
    if not tally.executions and not failed:
        raise RuntimeError(f"the fuzzing of {name} did not begin, which is the tool's own fault:\n{said}")
    again = (_confirmed(Lanes(room / "lanes", 1), inputs, path, found) for path in failed)
    return tally._replace(failures=tuple(filter(None, again)))


def _confirmed(lanes: Lanes, inputs: Inputs, path: Path, found: Path) -> str:
    """A failure again, without the bytes that do not matter, in words; nothing if the machine was just busy."""
    data = path.read_bytes()
    result = lanes.alone(inputs.target, inputs.case(data))
    if result.fine:
        slow = path.name.startswith(("timeout-", "slow-unit-"))  # by the clock
        return "" if slow else f"{inputs.target.name}: not again in another process: {data[:60]!r}"
    size, at, until = len(data) // 2, 2, time.monotonic() + 60
    while size and time.monotonic() < until:
        smaller = data[:at] + data[at + size :]
        again = lanes.alone(inputs.target, inputs.case(smaller))
        if again.signature == result.signature and len(smaller) < len(data):
            data, result = smaller, again
        else:
            at += size
        if at >= len(data):
            size, at = size // 2, 2
    return f"{result.signature} (kept in {keep(result, found)})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.attack.guided", description=__doc__.partition("\n")[0])
    parser.add_argument("--target", action="append", choices=sorted(GUIDED), help="only this one; may be repeated")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each target")
    parser.add_argument("--found", type=Path, default=PLACE / "found", help="a folder for failing cases")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print('atheris is not installed; run: pip install -c constraints.txt -e ".[fuzz]"', file=sys.stderr)
        return 2
    names = given.target or list(GUIDED)
    if given.work:
        return work(names[0], given.found, given.minutes)
    place = free_folder("guided-")
    try:
        warm([GUIDED[name] for name in names])
        tallies = {name: guided(name, place / name, given.minutes, given.found) for name in names}
    finally:
        rmtree(place, ignore_errors=True)
    print(f"\n{'parser':14}{'executions':>12}{'edges of seeds':>16}{'of all':>8}{'kept':>8}{'failures':>10}")
    for name, one in tallies.items():
        print(f"{name:14}{one.executions:12,}{one.seeds:16,}{one.edges:8,}{one.kept:8,}{len(one.failures):10,}")
        print("".join(f"  FAILURE {line}\n" for line in one.failures), end="")
    return int(any(one.failures for one in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
