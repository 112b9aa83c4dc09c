"""Limits of time and memory for foreign code, where the system offers them."""

from __future__ import annotations

import math
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from ..errors import CannotCheck
from .clock import Clock

AGAIN = 1.0  # seconds: code that catches everything is told again


@dataclass(eq=False)
class Deadline:
    """How long something may take, of the time that it really had, and whether it took longer."""

    limit: float
    over: bool = False
    clock: Clock = field(default_factory=Clock)

    @property
    def left(self) -> float:
        return self.limit - self.clock.seconds


class _TimeIsUp(BaseException):
    """Not an Exception: what catches all that foreign code may raise lets it pass."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self.deadline = deadline


_deadlines: list[Deadline] = []  # the innermost last


@contextmanager
def limited(seconds: float | None, gigabytes: float | None) -> Iterator[None]:
    """Stop with `CannotCheck` after so long; let no more memory be taken than this. In the main thread only."""
    with _memory(gigabytes):
        with within(seconds) as deadline:
            yield
        if deadline.over:
            raise CannotCheck(f"the target was not done after {seconds:g} s; give it more time with --timeout")


@contextmanager
def within(seconds: float | None) -> Iterator[Deadline]:
    """Leave the block after so long, and say so; may be nested. Unlimited where there are no signals."""
    if seconds is None or not _signals():
        yield Deadline(math.inf)
        return
    deadline, outermost = Deadline(seconds), not _deadlines
    before = signal.signal(signal.SIGALRM, _stop) if outermost else None
    rest = signal.getitimer(signal.ITIMER_REAL) if outermost else None
    _deadlines.append(deadline)
    _arm()
    try:
        yield deadline
    except _TimeIsUp as up:
        if up.deadline is not deadline:
            raise
        deadline.over = True
    finally:
        deadline.limit = math.inf  # from here on it is too late to be late
        _deadlines.remove(deadline)
        if rest is None:
            _arm()
        else:
            signal.setitimer(signal.ITIMER_REAL, *rest)
            signal.signal(signal.SIGALRM, before)


def _signals() -> bool:
    return threading.current_thread() is threading.main_thread() and sys.platform != "win32"


def _stop(number: int, frame: FrameType | None) -> None:
    for deadline in _deadlines:  # the outermost ends all within it
        if deadline.left <= 0:
            raise _TimeIsUp(deadline)
    _arm()


def _arm() -> None:
    left = min(deadline.left for deadline in _deadlines)
    signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), AGAIN)


@contextmanager
def _memory(gigabytes: float | None) -> Iterator[None]:
    if gigabytes is None or sys.platform != "linux" or not _signals():
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    wanted = now + int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        raise CannotCheck(
            f"the target wanted more than {gigabytes:g} GiB of memory; give more with --memory"
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
