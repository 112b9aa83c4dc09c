"""How many cores this process could have right now: what it received in the last moments, and what nobody used.

    cores = CPU time of this process + idle time of the cores it is bound to, per second

Beside four busy processes on two cores, two threads receive 0.7 cores and none is idle: one thread is right. When the
others end, that thread receives 1.0 and another core is idle: two are. Two readings are compared that lie a tenth of a
second apart or more; between them a look costs a glance at the clock. Fewer cores are believed at once, since a thread
too many makes all of them wait; more of them when two readings in a row agree.

While this process was not at work, others took what it would have had: then those count that want a
core at this moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from .cores import affinity, available, bound_to

STAT, LOAD = Path("/proc/stat"), Path("/proc/loadavg")
SHORTEST = 0.1  # seconds between two readings that are compared
LASTING = 1.0  # seconds for which quotas are believed to stay
COST = 0.003  # of the time may go into reading, which takes milliseconds where there are hundreds of cores
AT_WORK = 0.3  # cores that a process receives at least while it is at work
MOMENTS, APART = 4, 0.0005  # at which those that want a core are counted, and the seconds between them
TRUSTED = 0.5  # share of the time that passed, below which a system does not count it


@dataclass(frozen=True)
class Reading:
    """Seconds, of a clock and of cores."""

    now: float
    own: float  # CPU time of this process
    idle: float = 0.0  # of the cores that it is bound to, since the system began
    counted: float = 0.0  # all their time, however it was spent


def read(stat: Path = STAT) -> Reading:
    """As of now. Where the system does not tell, nothing is counted."""
    now, own, bound = time.monotonic(), time.process_time(), affinity()
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
        rows = [line.split() for line in lines if line[:3] == "cpu" and line[3:4].isdigit()]
        spent = [[int(word) for word in row[1:9]] for row in rows if bound is None or int(row[0][3:]) in bound]
    except (OSError, ValueError):
        return Reading(now, own)
    second = os.sysconf("SC_CLK_TCK")
    return Reading(now, own, sum(sum(row[3:5]) for row in spent) / second, sum(map(sum, spent)) / second)


@dataclass(frozen=True)
class Wanted:
    """How many other threads want one of the cores that this process is bound to."""

    lately: float = 0.0  # on average over the last minute
    now: float = 0.0


def wanted(load: Path = LOAD) -> Wanted:
    """Of those that want any core of the machine, as many as fall upon ours.

    Whoever has just woken this process, and threads of its own that still spin, run for a moment more: so of several
    moments the quietest counts.
    """
    lately, now = 0.0, inf
    for _ in range(MOMENTS):
        try:
            words = load.read_text(encoding="ascii").split()
            lately, running = float(words[0]), int(words[3].partition("/")[0]) - 1  # one of them is who reads this
        except (OSError, ValueError, IndexError):
            return Wanted()
        now = min(now, max(0, running))
        if now == 0:
            break
        time.sleep(APART)
    share = min(1.0, bound_to() / (os.cpu_count() or 1))
    return Wanted(lately * share, now * share)


class Meter:
    """Cores to be had, measured again when a tenth of a second has passed."""

    def __init__(
        self,
        read: Callable[[], Reading] = read,
        wanted: Callable[[], Wanted] = wanted,
        cores: Callable[[], int] = available,
        bound: Callable[[], int] = bound_to,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._wanted, self._cores, self._bound, self._clock = read, wanted, cores, bound, clock
        self._last: Reading | None = None
        self._next = self._until = -inf  # when a reading is due, and the quotas
        self._most = self._found = self._before = 1

    def look(self) -> int:
        """As of the last reading, which is taken anew if it is old."""
        began = self._clock()
        if began >= self._next:
            last, self._last = self._last, self._read()
            if began >= self._until:
                self._most, self._until = self._cores(), began + LASTING
            self._decide(last, self._last)
            ended = self._clock()
            self._next = ended + max(SHORTEST, (ended - began) / COST)
        return self._found

    def _decide(self, last: Reading | None, now: Reading) -> None:
        """Fewer at once, more at the second time; anew after a pause."""
        if last is None:  # a load may be what has just ended, and a moment may be an odd one
            others = self._wanted()
            free, anew = self._bound() - min(others.lately, others.now), True
        else:
            seconds = now.now - last.now
            own, idle = (now.own - last.own) / seconds, (now.idle - last.idle) / seconds
            free, anew = own + idle, own < AT_WORK
            if now.counted - last.counted < TRUSTED * seconds * self._most:
                free = float(self._most)
            elif anew:
                free = max(free, self._bound() - self._wanted().now)
        seen = max(1, min(self._most, int(free + 0.5)))
        self._found = seen if anew else min(seen, max(self._found, self._before))
        self._before = seen


METER = Meter()
