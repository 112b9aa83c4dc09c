"""Processes side by side: each tries a batch of cases; one that dies or hangs costs its case and gets a successor."""

from __future__ import annotations

import gc
import json
import os
import selectors
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from .case import Case
from .cell import attempts
from .targets import Target

WALL = 600.0  # seconds for a case that sleeps; work has a limit of its own, which a busy machine does not change
FINE = ("loaded", "refused")


@dataclass(frozen=True)
class Result:
    """What came of a case, or of that of a seed."""

    target: Target
    asked: Case | int
    verdict: str  # loaded, refused; or traceback, crash, timeout, memory, panic, outside
    text: str = ""
    seconds: float = 0.0  # of CPU time

    @property
    def case(self) -> Case:
        return self.target.case(self.asked) if isinstance(self.asked, int) else self.asked

    @property
    def fine(self) -> bool:
        return self.verdict in FINE

    @property
    def signature(self) -> str:
        """What tells one failure from another: its kind and where it was raised."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        places = [line for line in lines if line.startswith("File ")]
        ours = [line for line in places if "/heed/" in line] or places
        where = ours[-1].partition("/heed/")[2] if ours and "/heed/" in ours[-1] else "".join(ours[-1:])
        raw = self.text.splitlines()  # messages may have many lines: what was raised is named behind the last place
        named = [line for before, line in pairwise(raw) if before.startswith("  ") and line[:1].strip()] or lines
        error = named[-1].split(":")[0][:80] if named and self.verdict != "outside" else ""
        return f"{self.target.name}: {self.verdict} {error} {where}".strip()


@dataclass
class _Lane:
    """A process and what it still has to try."""

    target: Target
    cases: list[Case | int]
    room: Path
    pid: int
    pipe: int
    done: int = 0
    begun: bool = False
    since: float = field(default_factory=time.monotonic)
    unread: bytes = b""


class Lanes:
    """So many processes at a time, in rooms of their own below a folder."""

    def __init__(self, place: Path, count: int, wall: float = WALL) -> None:
        self.place, self.count, self.wall = place, count, wall
        self._lanes: list[_Lane] = []
        self._wake = selectors.DefaultSelector()
        self._rooms = 0
        gc.freeze()  # what the parent holds is not looked through, and so not copied, by its children

    def run(self, batches: Iterator[tuple[Target, Sequence[Case | int]]]) -> Iterator[Result]:
        """Try them all."""
        more = True
        while more or self._lanes:
            while more and len(self._lanes) < self.count:
                batch = next(batches, None)
                if batch is None:
                    more = False
                else:
                    self._start(batch[0], list(batch[1]))
            yield from self._watch()

    def alone(self, target: Target, case: Case) -> Result:
        """Try one case in a process of its own."""
        return next(iter(self.run(iter([(target, [case])]))))

    def close(self) -> None:
        for lane in list(self._lanes):
            self._end(lane)

    def _start(self, target: Target, cases: list[Case | int]) -> None:
        _ = target.materials  # read once, in the parent
        room = self.place / f"room-{self._rooms}"
        self._rooms += 1
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir(parents=True)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _child(lambda: attempts(target, cases, room, os.fdopen(writing, "wb")))
        os.close(writing)
        lane = _Lane(target, cases, room, pid, reading)
        self._lanes.append(lane)
        self._wake.register(reading, selectors.EVENT_READ, lane)

    def _watch(self) -> Iterator[Result]:
        for key, _ in self._wake.select(0.5):
            lane: _Lane = key.data
            data = os.read(lane.pipe, 1 << 16)
            if data:
                yield from self._read(lane, data)
            else:
                yield from self._dead(lane, self._end(lane))
        for lane in list(self._lanes):
            if time.monotonic() - lane.since > self.wall:
                self._end(lane)
                yield from self._dead(lane, signal.SIGXCPU)

    def _read(self, lane: _Lane, data: bytes) -> Iterator[Result]:
        *lines, lane.unread = (lane.unread + data).split(b"\n")
        for line in lines:
            told: dict[str, Any] = json.loads(line)
            lane.begun, lane.since = "begun" in told, time.monotonic()
            if "ended" in told:
                lane.done += 1
                yield Result(lane.target, lane.cases[told.pop("ended")], **told)

    def _dead(self, lane: _Lane, status: int) -> Iterator[Result]:
        """The process is no more: all of its cases are done, or one of them did it."""
        if lane.done == len(lane.cases):
            return
        heard = lane.room / "stderr"
        spilt = heard.read_bytes()[-2000:].decode("utf-8", "replace") if heard.exists() else ""
        if not lane.begun:
            raise RuntimeError(f"a process of the attack ended ({status}), which is the tool's own fault:\n{spilt}")
        if status == signal.SIGXCPU:
            verdict, text = "timeout", f"no end after seconds of work\n{spilt}"
        else:
            name = signal.Signals(status).name if status > 0 else f"exit code {-status}"
            verdict, text = "memory" if "memory allocation of" in spilt else "crash", f"{spilt}\n{name}"
        yield Result(lane.target, lane.cases[lane.done], verdict, text)
        rest = lane.cases[lane.done + 1 :]
        if rest:
            self._start(lane.target, rest)

    def _end(self, lane: _Lane) -> int:
        """Close it; the signal that ended it, or its exit code as a negative number."""
        self._wake.unregister(lane.pipe)
        os.close(lane.pipe)
        self._lanes.remove(lane)
        for kill in (os.kill, os.killpg):  # itself, and what it started
            with suppress(ProcessLookupError, PermissionError):
                kill(lane.pid, signal.SIGKILL)
        _, status = os.waitpid(lane.pid, 0)
        if lane.done == len(lane.cases):
            shutil.rmtree(lane.room, ignore_errors=True)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def _child(work: Callable[[], None]) -> None:
    """Never returns: a fork must not go on with its parent's work."""
    code = 70
    try:
        os.setpgid(0, 0)
        work()
        code = 0
    except BaseException:  # of the tool, not of a case
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
