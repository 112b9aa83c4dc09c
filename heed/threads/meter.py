"""How many cores this process could have right now: what it received in the last moments, and what nobody used.

    cores = CPU time of this process + idle time of the cores it is bound to, per second

Beside four busy processes on two cores, two threads receive 0.7 cores and none is idle: one thread is right. When the
others end, that thread receives 1.0 and another core is idle: two are. Two readings are compared that lie half a second
apart or more; between them a look costs a glance at the clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .cores import affinity, available

STAT, LOAD = Path("/proc/stat"), Path("/proc/loadavg")
SHORTEST, LONGEST = 0.5, 10.0  # seconds between two readings that are compared
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


def others(load: Path = LOAD) -> float:
    """How many other threads want a core: by the load of the last minute and by those that run at this moment.

    The smaller of both counts: a load may be what has just ended, and a moment may be an odd one.
    """
    try:
        words = load.read_text(encoding="ascii").split()
        return max(0.0, min(float(words[0]), int(words[3].partition("/")[0]) - 1))
    except (OSError, ValueError, IndexError):
        return 0.0


class Meter:
    """Cores to be had, measured again when half a second has passed."""

    def __init__(
        self,
        read: Callable[[], Reading] = read,
        others: Callable[[], float] = others,
        cores: Callable[[], int] = available,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._others, self._cores, self._clock = read, others, cores, clock
        self._last: Reading | None = None
        self._found = 1

    def look(self) -> int:
        """As of the last reading, which is taken anew if it is old."""
        last = self._last
        if last is None or self._clock() - last.now >= SHORTEST:
            self._last = now = self._read()
            most = self._cores()
            self._found = max(1, min(most, int(self._free(last, now, most) + 0.5)))
        return self._found

    def _free(self, last: Reading | None, now: Reading, most: int) -> float:
        if last is None or now.now - last.now > LONGEST:  # it was not at work: what it received says nothing
            return most - self._others()
        seconds = now.now - last.now
        if now.counted - last.counted < TRUSTED * seconds * most:
            return most
        return (now.own - last.own + now.idle - last.idle) / seconds


METER = Meter()
