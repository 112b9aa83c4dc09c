"""A contest: all contestants do the same work in turns, each in a process of its own, while the others wait.

A process of its own, because pools of threads of several libraries disturb one another; in turns, in an order drawn
anew in every round, because a shared machine drifts: only neighbours are compared. Between two turns there is a rest,
longer than idle threads spin, so that no contestant's threads are awake in another's turn.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from ..core.errors import HeedError
from ..threads.waiting import POLICY, THEIRS
from .base import Contestant
from .limits import Limits
from .ours import Heed
from .shapes import configured, write
from .work import Work

REST = 0.25  # seconds; the OpenMP of Intel lets idle threads spin for 0.2
# What runtimes do where nobody has said anything; in words, because a worker imports heed, which would say something.
SPINNING = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}
PATIENCE = 900.0  # seconds that a contestant may take to get ready, or for a round


class Failed(HeedError):
    """A contestant could not do the work."""


@dataclass
class Told:
    """What a contestant said: of itself, and round by round."""

    name: str
    precision: str
    version: str = ""
    way: str = ""
    bytes: int = 0
    seconds: list[float] = field(default_factory=list)
    units: int = 0
    peak: int = 0  # bytes of its process, at most, in any round
    tokens: list[int] = field(default_factory=list)  # of the first row
    figures: dict[str, list[float]] = field(default_factory=dict)

    def hear(self, round_: dict[str, Any]) -> None:
        """One more round."""
        self.seconds.append(round_["seconds"])
        self.units, self.tokens = round_["units"], round_["tokens"]
        self.peak = max(self.peak, round_["peak"])
        for name, value in round_["figures"].items():
            self.figures.setdefault(name, []).append(value)


@dataclass(frozen=True)
class Outcome:
    """What came of a contest: heed first, then its peers; those that are absent and why; the machine's limits."""

    work: Work
    told: list[Told]
    absent: dict[str, str]
    bandwidth: float  # bytes per second
    gemm: float  # operations per second


Say = Callable[[str], None]


class Process:
    """A contestant's process, and how it is spoken to."""

    def __init__(self, command: Sequence[str], threads: int | None, waits: Mapping[str, str] = SPINNING) -> None:
        """With so many threads, None: as many as it likes; `waits`: the variables that say how they wait."""
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        own = {name: value for name, value in os.environ.items() if name not in {*names, *THEIRS}}
        counts = {} if threads is None else dict.fromkeys(names, str(threads))
        # No peer may reach for the net: all that is needed lies in the folder.
        offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._errors = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed by `end`)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**own, **offline, **counts, **waits},
        )

    def hear(self) -> dict[str, Any]:
        """Its next answer."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if not waiting.select(PATIENCE):
                raise Failed(f"no answer within {PATIENCE:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise Failed(self._complaint())
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def pid(self) -> int:
        return self._process.pid

    def go(self, seconds: float | None = None, settling: float = 0.0) -> dict[str, Any]:
        """One round; or as many calls as are begun within these seconds, after some that are not counted."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("go\n" if seconds is None else f"go {seconds} {settling}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._complaint()) from None
        return self.hear()

    def end(self) -> None:
        """Its input ends, and so does it."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _complaint(self) -> str:
        """The last line that it wrote as an error."""
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"its process ended with code {code}"


def started(contestant: Contestant, work: Work) -> Process:
    """Its worker."""
    return Process(
        [sys.executable, "-m", "heed.bench.worker", contestant.name, work.subject, work.dump()],
        work.threads,
        POLICY if isinstance(contestant, Heed) else SPINNING,
    )


Start = Callable[[Contestant, Work], Process]


def run(
    work: Work, ours: Contestant, peers: Sequence[Contestant], rounds: int, say: Say, start: Start = started
) -> Outcome:
    """A whole contest, in a folder that is removed at its end."""
    with TemporaryDirectory(prefix="heed-bench-") as room:
        folder = Path(room, "checkpoint")
        if work.subject != "attention":
            trained = work.subject == "train"
            say(f"{work.title}: random weights are written")
            write(configured(work.model, trained=trained), folder, weighs=not trained)
        return _held(replace(work, folder=str(folder)), ours, peers, rounds, say, start)


def _held(work: Work, ours: Contestant, peers: Sequence[Contestant], rounds: int, say: Say, start: Start) -> Outcome:
    absent: dict[str, str] = {}
    told: dict[str, Told] = {}
    processes: dict[str, Process] = {}
    try:
        for contestant in (ours, *peers, Limits()):
            precision = contestant.precision(work)
            if precision is None:
                continue
            if not contestant.installed:
                absent[contestant.name] = f"not installed: pip install {contestant.distribution}"
                continue
            say(f"{work.title}: {contestant.name} gets ready")
            processes[contestant.name] = start(contestant, work)
            try:
                ready = processes[contestant.name].hear()["ready"]
            except Failed as failure:
                _leave(contestant.name, failure, ours, absent, processes)
                continue
            told[contestant.name] = Told(contestant.name, precision, ready["version"], ready["way"], ready["bytes"])
        _rounds(work, ours, told, absent, processes, rounds, say)
    finally:
        for process in processes.values():
            process.end()
    limits = told.pop(Limits.name)
    best = {name: max(values) for name, values in limits.figures.items()}
    return Outcome(work, [*told.values()], absent, best["bandwidth"], best["gemm"])


def _rounds(
    work: Work,
    ours: Contestant,
    told: dict[str, Told],
    absent: dict[str, str],
    processes: dict[str, Process],
    rounds: int,
    say: Say,
) -> None:
    order = random.Random(0)
    for number in range(rounds):
        say(f"{work.title}: round {number + 1} of {rounds}")
        for name in order.sample([*processes], len(processes)):
            time.sleep(REST)
            try:
                told[name].hear(processes[name].go())
            except Failed as failure:
                _leave(name, failure, ours, absent, processes)
                del told[name]


def _leave(name: str, failure: Failed, ours: Contestant, absent: dict[str, str], processes: dict[str, Process]) -> None:
    """A peer that fails leaves, and it is told why; heed and the limits must not."""
    processes.pop(name).end()
    if name in {ours.name, Limits.name}:
        raise Failed(f"{name} could not do the work: {failure}") from None
    absent[name] = f"could not do it: {failure}"
