"""The command line: fuzz, crash, flip; a table, a file of figures, an exit code."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shutil import disk_usage, rmtree
from typing import Any

from .warm import warm  # isort: skip  # first: it says how libraries are to be imported

from .case import CORPUS, ROOT, corpus
from .crash import crash
from .flips import flips
from .fuzz import KNOWN, Extent, confirmed, fuzz, keep, replay
from .lanes import Lanes
from .materials import PLACE, materials
from .targets import TARGETS

FREE = 1 << 30  # bytes that cases may need, with what they write


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.attack", description=__doc__)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this loader; may be repeated")
    parser.add_argument("--seed", type=int, help="try this one case of a target; without a target: the first seed")
    parser.add_argument("--minutes", type=float, default=3.0, help="of mutated files")
    parser.add_argument("--cases", type=int, help="so many mutated files, however long that takes")
    parser.add_argument("--kills", type=int, default=30, help="of works that write files")
    parser.add_argument("--flips", type=int, default=200, help="of bits in run folders")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes side by side")
    parser.add_argument("--out", type=Path, help="a file for the figures, such as benchmarks/attack.json")
    parser.add_argument("--found", type=Path, default=PLACE / "found", help="a folder for failing cases")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args()


class Progress:
    """One line that is written over in a terminal; elsewhere a line every half minute."""

    def __init__(self) -> None:
        self.begun = self.spoke = time.monotonic()

    def __call__(self, words: str, share: float) -> None:
        now = time.monotonic()
        if now - self.spoke < (0.5 if sys.stderr.isatty() else 30):
            return
        self.spoke = now
        left = (now - self.begun) / max(share, 1e-3) * max(0.0, 1 - share)
        bar = "#" * round(20 * min(1.0, share))
        line = f"[{bar:20}] {words}, {left:.0f} s left"
        print(
            f"\r\33[K{line[:150]}" if sys.stderr.isatty() else line,
            end="" if sys.stderr.isatty() else "\n",
            file=sys.stderr,
        )


def main() -> int:
    given = _arguments()
    names = given.target or list(TARGETS)
    place = free_folder("attack-")
    try:
        for words in warm([TARGETS[name] for name in dict.fromkeys([*names, "run"])]):
            print(words, file=sys.stderr)
        lanes = Lanes(place / "lanes", max(1, given.jobs))
        if given.seed is not None and given.target:
            return _one(lanes, given)
        return _all(lanes, names, given, place)
    finally:
        rmtree(place, ignore_errors=True)


def free_folder(prefix: str) -> Path:
    """An empty folder for cases: in memory where there is enough of it, since a disk would be waited for each time."""
    memory = Path("/dev/shm")  # 64 MB in many containers
    return Path(
        tempfile.mkdtemp(prefix=prefix, dir=memory if memory.is_dir() and disk_usage(memory).free > FREE else None)
    )


def _one(lanes: Lanes, given: argparse.Namespace) -> int:
    """One case again."""
    results = [lanes.alone(TARGETS[name], TARGETS[name].case(given.seed)) for name in given.target]
    for result in results:
        print(f"{result.target.name} {given.seed} ({result.case.material}): {result.verdict}\n{result.text}")
        print("  changed:", ", ".join(result.case.changed) or "nothing", "  removed:", ", ".join(result.case.removed))
    return int(not all(result.fine for result in results))


def _all(lanes: Lanes, names: list[str], given: argparse.Namespace, place: Path) -> int:
    seed = given.seed if given.seed is not None else _seed()
    print(f"seeds from {seed} on", file=sys.stderr)
    known = [(path, result) for path, result in replay(lanes, [path for path, _ in corpus(CORPUS)]) if not result.fine]
    found = fuzz(lanes, [TARGETS[name] for name in names], seed, Extent(given.minutes, given.cases), Progress())
    failures = []
    for result in found.failures.values():
        again = confirmed(lanes, result)
        path = keep(again, given.found) if again is not None else None
        if again is None and result.verdict == "timeout":
            print(f"not again, the machine was busy: {result.signature} (seed {result.case.seed})", file=sys.stderr)
            continue
        if result.signature in KNOWN:
            print(f"known: {result.signature}: {KNOWN[result.signature]}", file=sys.stderr)
            continue
        failures.append(f"{result.signature} (seed {result.case.seed}{', kept in ' + str(path) if path else ''})")
    failures += [f"{path}: {result.signature}" for path, result in known]
    run = materials() / "run" / "plain"
    figures: dict[str, Any] = {
        "seed": seed,
        "seconds": round(found.seconds),
        "targets": found.plain(),
        "failures": failures,
    }
    if given.kills:
        tally = crash(run, place / "crash", seed, given.kills, max(1, given.jobs), Progress())
        figures["crash"] = {"kills": tally.kills, **tally.plain()}
    if given.flips:
        counts, missed = flips(materials() / "run" / "base", place / "flips", seed, given.flips)
        figures["flips"] = {"files": {name: dict(count) for name, count in sorted(counts.items())}, "missed": missed}
    _show(figures, as_json=given.json)
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    wrong = [*failures, *figures.get("crash", {}).get("problems", ()), *figures.get("flips", {}).get("missed", ())]
    return int(bool(wrong))


def _seed() -> int:
    """Another one for every commit and day, so that CI tries new cases; it is printed."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return (int(commit[:7] or "0", 16) + int(time.time() // 86400) * 1_000_003) % 10**9


def _show(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    print(f"\n{'loader':14}{'cases':>9}{'loaded':>9}{'refused':>9}{'failures':>10}{'slowest':>10}")
    rows = figures["targets"]
    keys = ("cases", "loaded", "refused", "failures")
    every = {key: sum(row[key] for row in rows.values()) for key in keys}
    every["slowest"] = max(row["slowest"] for row in rows.values())
    for name, row in {**rows, "all": every}.items():
        numbers = f"{row['cases']:9,}{row['loaded']:9,}{row['refused']:9,}{row['failures']:10,}"
        print(f"{name:14}{numbers}{row['slowest']:8.1f} s")
    for line in figures["failures"]:
        print("  FAILURE", line)
    if "crash" in figures:
        held = figures["crash"]
        every = sum(held["strokes"].values())
        print(
            f"\n{every:,} interruptions, {held['kills']:,} of them kills; {held['chains']:,} chains to the same bytes"
        )
        for name, count in sorted(held["strokes"].items()):
            print(f"  {name:40}{count:7,}")
        for line in held["problems"]:
            print("  PROBLEM", line)
    if "flips" in figures:
        print("\nbit flips, noticed of all:")
        for name, count in figures["flips"]["files"].items():
            print(f"  {name:40}{count['noticed']:5,} of {count['flips']:,}")
        for line in figures["flips"]["missed"]:
            print("  MISSED", line)


if __name__ == "__main__":
    sys.exit(main())
