"""The OpenMP runtime that torch computes with, and how long its threads spin before they sleep, while they run.

The number of threads of a training must not change on its way: the last bits of sums depend on it (of LayerNorm's
gradients, of a mean over all elements), and with them everything that follows. How threads wait changes no bit. libgomp
reads how long they spin once, when it is loaded, but spins for a moment only while it manages more threads than there
are cores. So a team that does nothing but sleep makes all others sleep soon; when it ends, they spin as before.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import CDLL, c_uint, c_void_p, cast
from typing import NamedTuple

from .cores import bound_to


class Runtime(NamedTuple):
    """Addresses of its functions."""

    parallel: int  # GOMP_parallel
    me: int  # omp_get_thread_num
    size: int  # omp_get_num_threads


def runtime() -> Runtime | None:
    """The runtime that torch's own library is bound to, whatever its file is called; None if it is not found."""
    if sys.platform != "linux":
        return None
    try:
        torch = CDLL("libtorch_cpu.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        found = (torch.GOMP_parallel, torch.omp_get_thread_num, torch.omp_get_num_threads)
    except (OSError, AttributeError):
        return None
    return Runtime(*(cast(function, c_void_p).value or 0 for function in found))


class SleepingTeam:
    """More threads than cores, of which these sleep: as long as they are there, libgomp's other threads spin little."""

    def __init__(self, beside: int) -> None:
        """Beside so many threads that compute."""
        self._end = threading.Event()
        found, ready = runtime(), threading.Event()
        self._holder = threading.Thread(target=self._hold, args=(found, beside, ready), daemon=True)
        if found is not None:
            self._holder.start()
            ready.wait()

    def _hold(self, found: Runtime, beside: int, ready: threading.Event) -> None:
        parallel = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_uint, c_uint)(found.parallel)
        try:
            parallel(found.me, None, max(2, bound_to() - beside + 2), 0)  # they ask for their number, and sleep
        finally:
            ready.set()
        self._end.wait()  # a team ends with the thread that it belongs to

    def end(self) -> None:
        """Waiting is as it was."""
        self._end.set()
        if self._holder.ident is not None:
            self._holder.join()
