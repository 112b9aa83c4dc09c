"""How many threads: what the user says, else the cores that are available.

Two kinds of work differ. heed's kernels give the same bits on any number of threads, so each call takes as many as can
be had at that moment. What torch computes does not (see `openmp.py`), so a training keeps its number, and follows the
machine by how its threads wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .cores import available, bound_to
from .meter import METER, Meter
from .openmp import SleepingTeam
from .waiting import WAITING

NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def given() -> int | None:
    """The number of threads that the user has set, by the environment or by torch; None if it is torch's own default.

    That is one per core that the process is bound to, or per two of them, where cores run two threads each.
    """
    now = torch.get_num_threads()
    if any(os.environ.get(name) for name in NUMBERS):
        return now
    return None if bound_to() in {now, 2 * now, 2 * now + 1} else now


def standard() -> int:
    """The number of threads for long work: what the user has set, else torch's default within the cores available."""
    return given() or min(torch.get_num_threads(), available())


def team_size(meter: Meter = METER) -> int:
    """Threads for a call of a kernel whose bits do not depend on it: no more than there are cores to be had now."""
    return given() or min(torch.get_num_threads(), meter.look())


class Adapting:
    """Long work on a fixed number of threads: when cores become few, they sleep soon; when there are enough, they spin.

    Unless the user has said how they wait.
    """

    def __init__(self, threads: int, meter: Meter) -> None:
        self._threads = 1 if WAITING.theirs else threads
        self._meter = meter
        self._sleepers: SleepingTeam | None = None

    @property
    def crowded(self) -> bool:
        """Whether others want the cores, as far as was seen."""
        return self._sleepers is not None

    def look(self) -> None:
        """Between two steps."""
        if self._threads == 1:
            return
        few = self._meter.look() < self._threads
        if few and self._sleepers is None:
            self._sleepers = SleepingTeam(beside=self._threads)
        elif not few:
            self.end()

    def end(self) -> None:
        """Waiting is as it was."""
        if self._sleepers is not None:
            self._sleepers.end()
            self._sleepers = None


@contextmanager
def adapting(threads: int, meter: Meter = METER) -> Iterator[Adapting]:
    """Work on so many threads, which goes on for long; afterwards the number is what it was."""
    WAITING.advise(threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    work = Adapting(threads, meter)
    try:
        yield work
    finally:
        work.end()
        torch.set_num_threads(before)
