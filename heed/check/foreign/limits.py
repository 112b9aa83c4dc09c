"""Limits of time and memory for foreign code, where the system offers them."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .target import CannotCheck


class _TimeIsUp(BaseException):
    """Not an Exception: what catches all that foreign code may raise lets it pass."""


@contextmanager
def limited(seconds: float | None, gigabytes: float | None) -> Iterator[None]:
    """Stop with `CannotCheck` after so long; let no more memory be taken than this. In the main thread only."""
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield
        return
    with _memory(gigabytes), _time(seconds):
        yield


@contextmanager
def _time(seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _TimeIsUp:
        words = f"the target was not done after {seconds:g} s; give it more time with --timeout"
        raise CannotCheck(words) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _memory(gigabytes: float | None) -> Iterator[None]:
    if gigabytes is None or sys.platform != "linux":
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
