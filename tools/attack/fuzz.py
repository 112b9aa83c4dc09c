"""Mutated files for every loader, until the time is up: what held, what did not, and the smallest form of failures."""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .case import read_case, write_case
from .lanes import FINE, Lanes, Result
from .targets import TARGETS, Target

# Failures that are known and not heed's to mend at once: they are told at the end of every run, but do not fail it.
KNOWN = {
    "data: crash SIGABRT": "pyarrow ends the process at damaged statistics of a column (row_group(i).column(j))",
}
Tell = Callable[[str, float], None]  # what is going on, and which share of it is done


@dataclass
class Findings:
    """Counts by target and verdict, the slowest case of each, and one example of every kind of failure."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    slowest: dict[str, float] = field(default_factory=dict)  # seconds of CPU time
    failures: dict[str, Result] = field(default_factory=dict)  # by signature
    seconds: float = 0.0

    def add(self, result: Result) -> bool:
        """Whether it is a failure of a new kind."""
        name = result.target.name
        self.counts.setdefault(name, Counter())[result.verdict] += 1
        self.slowest[name] = max(self.slowest.get(name, 0.0), result.seconds)
        new = not result.fine and result.signature not in self.failures
        if new:
            self.failures[result.signature] = result
        return new

    @property
    def cases(self) -> int:
        return sum(count.total() for count in self.counts.values())

    @property
    def failed(self) -> int:
        return sum(count for held in self.counts.values() for verdict, count in held.items() if verdict not in FINE)

    def plain(self) -> dict[str, dict[str, float]]:
        """Per target: cases, loaded, refused, failures, and the seconds of the slowest."""
        return {
            name: {
                "cases": count.total(),
                "loaded": count["loaded"],
                "refused": count["refused"],
                "failures": count.total() - count["loaded"] - count["refused"],
                "slowest": round(self.slowest[name], 2),
            }
            for name, count in self.counts.items()
        }


@dataclass(frozen=True)
class Extent:
    """How long to go on: minutes, or a number of cases, which is the same on every machine."""

    minutes: float
    cases: int | None = None

    def done(self, seconds: float, cases: int) -> float:
        """The share of it that is."""
        return seconds / (60 * self.minutes) if self.cases is None else cases / self.cases


def fuzz(lanes: Lanes, targets: Sequence[Target], seed: int, extent: Extent, tell: Tell) -> Findings:
    """Cases of these targets with seeds from `seed` on."""
    findings, begun = Findings(), time.monotonic()
    asked: Counter[str] = Counter()

    def batches() -> Iterator[tuple[Target, list[int]]]:
        while extent.done(time.monotonic() - begun, asked.total()) < 1:
            target = min(targets, key=lambda each: asked[each.name] / each.share)
            first = seed + asked[target.name]
            asked[target.name] += target.batch
            yield target, list(range(first, first + target.batch))

    for result in lanes.run(batches()):
        if findings.add(result):  # told at once: a long run may not come to its end
            print(f"FAILURE {result.signature} (seed {result.asked})", file=sys.stderr)
        done = extent.done(time.monotonic() - begun, findings.cases)
        tell(f"{findings.cases:,} cases, {findings.failed} failures", done)
    findings.seconds = time.monotonic() - begun
    return findings


def confirmed(lanes: Lanes, result: Result) -> Result | None:
    """The failure again in a process of its own, with as few mutations as show it; None if it does not come back."""
    target = result.target
    again = lanes.alone(target, result.case)
    if again.fine:
        return None
    steps = list(result.case.steps)
    for step in list(steps):
        fewer = [one for one in steps if one != step]
        if not fewer:
            break
        smaller = lanes.alone(target, target.built(result.case.material, tuple(fewer), result.case.seed))
        if smaller.signature == again.signature:
            steps, again = fewer, smaller
    return _without_changes(lanes, target, again)


def _without_changes(lanes: Lanes, target: Target, result: Result) -> Result:
    """Files that were changed but do not matter are as they were."""
    for name in list(result.case.changed):
        rest = {other: content for other, content in result.case.changed.items() if other != name}
        if rest or result.case.removed:
            smaller = lanes.alone(target, replace(result.case, changed=rest))
            if smaller.signature == result.signature:
                result = smaller
    return result


def keep(result: Result, folder: Path) -> Path | None:
    """Into a corpus, named by what it holds; None if it is too large."""
    words = f"{result.verdict}: {result.text.strip().splitlines()[-1][:200] if result.text.strip() else ''}"
    case = replace(result.case, why=words)
    content = repr((case.material, sorted(case.changed.items()), case.removed))
    name = f"{result.verdict}-{hashlib.sha256(content.encode()).hexdigest()[:10]}.json"
    path = folder / case.target / name
    return path if write_case(case, path) else None


def replay(lanes: Lanes, paths: Sequence[Path]) -> Iterator[tuple[Path, Result]]:
    """Cases of a corpus once more."""
    cases = [read_case(path) for path in paths]
    found: dict[int, Path] = {id(case): path for case, path in zip(cases, paths, strict=True)}
    every = [(TARGETS[name], [case for case in cases if case.target == name]) for name in TARGETS]
    batches = [(target, held) for target, held in every if held]
    if not all(target.materials for target, _ in batches):  # made here: the processes of cases have limits
        raise RuntimeError("a target of the corpus has no healthy files")
    for result in lanes.run(iter(batches)):
        yield found[id(result.case)], result
