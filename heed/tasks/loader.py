"""Loading the items of batches: here, or ahead of time in processes of their own, which change nothing but the time."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, TypeVar

import torch

from ..core.errors import RunError

if TYPE_CHECKING:
    from .base import Item, Task

T = TypeVar("T")

AHEAD = 2  # batches that a process is ahead


class Loader:
    """Items as a batch needs them, in the order in which they are asked for.

    What an item becomes follows from the item alone (`Task.fetch`), so that the number of processes is a matter of time
    alone. They are started when first needed, and none for a task that has nothing to load.
    """

    def __init__(self, task: Task, workers: int = 0) -> None:
        self._task, self._workers = task, workers if task.loads else 0
        self._pool: ProcessPoolExecutor | None = None

    def over(self, turns: Iterable[tuple[T, Sequence[Item]]]) -> Iterator[tuple[T, list[Item]]]:
        """The items of each turn, loaded; what comes with them stays with them."""
        if not self._workers:
            for turn, items in turns:
                yield turn, [self._task.fetch(item) for item in items]
            return
        ahead: deque[tuple[T, Future[list[Item]]]] = deque()
        coming = iter(turns)
        try:
            while True:
                while len(ahead) < AHEAD * self._workers and (found := next(coming, None)) is not None:
                    ahead.append((found[0], self._pool_of().submit(_load, list(found[1]))))
                if not ahead:
                    return
                turn, future = ahead.popleft()
                yield turn, self._of(future)
        finally:
            for _, future in ahead:
                future.cancel()

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _pool_of(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a fork would copy threads of torch that hold locks
            self._pool = ProcessPoolExecutor(self._workers, context, _begin, (self._task,))
        return self._pool

    @staticmethod
    def _of(future: Future[list[Item]]) -> list[Item]:
        try:
            return future.result()
        except BrokenProcessPool:
            raise RunError(
                "a process that loads files ahead was ended from outside (for want of memory, perhaps), or could not "
                "begin: a script that trains with training.workers needs `if __name__ == '__main__':` around it; "
                "training.workers=0 loads files in this process, with the same result"
            ) from None


_TASK: list[Task] = []  # of this process, which loads for one task alone


def _begin(task: Task) -> None:
    """What a process does first. Ctrl-C is for the training, which ends this process when it is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _TASK[:] = [task]


def _load(items: Sequence[Item]) -> list[Item]:
    return [_TASK[0].fetch(item) for item in items]
