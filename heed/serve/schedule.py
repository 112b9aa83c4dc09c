"""The requests of one model as numbers: those that wait, those that run, and what of the pool each holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from ..core.errors import InputError, counted
from .answer import Busy
from .plan import Bounds, Job, Tick, first_bytes, plan
from .pool import Pool, Prices


class FairQueue:
    """Bounded; owners take turns, and an owner's requests keep their order."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._owners: dict[str, deque[Job]] = {}  # in the order of their turns

    def __len__(self) -> int:
        return sum(map(len, self._owners.values()))

    def __iter__(self) -> Iterator[Job]:
        """In the order in which they would be taken."""
        turns = deque(iter(jobs) for jobs in self._owners.values())
        while turns:
            jobs = turns.popleft()
            job = next(jobs, None)
            if job is not None:
                yield job
                turns.append(jobs)

    def push(self, job: Job, retry_after: float) -> None:
        """One more, at the end of its owner's."""
        if len(self) >= self.most:
            raise Busy(f"{counted(self.most, 'request')} are waiting already; ask again later", retry_after)
        self._owners.setdefault(job.owner, deque()).append(job)

    def take(self, job: Job) -> None:
        """It leaves to be admitted: its owner's turn is over."""
        self.drop(job)
        if job.owner in self._owners:
            self._owners[job.owner] = self._owners.pop(job.owner)

    def drop(self, job: Job) -> None:
        """It leaves, and no turn was used."""
        jobs = self._owners[job.owner]
        jobs.remove(job)
        if not jobs:
            del self._owners[job.owner]


class Schedule:
    """Every change of who waits, runs and holds what. `reclaim` frees bytes that are held for later use only."""

    def __init__(
        self,
        pool: Pool,
        prices: Prices,
        *,
        rows: int,
        waiting: int,
        chunk: int,
        reclaim: Callable[[int], None],
        ahead: int = 0,
    ) -> None:
        self.pool, self.prices, self._reclaim = pool, prices, reclaim
        self.rows, self.chunk, self.ahead = rows, chunk, ahead
        self.queue = FairQueue(waiting)
        self.put_off: list[Job] = []  # preempted; they go first, the oldest of them before the others
        self.running: dict[int, Job] = {}

    def __len__(self) -> int:
        return len(self.queue) + len(self.put_off) + len(self.running)

    def must_fit(self, job: Job) -> None:
        """Raise if it could not be answered even if it were alone: so whatever waits will run."""
        needed = self.prices.bytes(job.prompt + job.limit, job.source)
        if needed > self.pool.budget:
            raise InputError(
                f"a prompt of {job.prompt:,} tokens and {job.limit:,} new ones need {needed:,} bytes; the memory of "
                f"this model is {self.pool.budget:,}: ask for fewer, or serve it with more memory"
            )

    def submit(self, job: Job, retry_after: float = 1.0) -> None:
        """It waits from now on; raises if it never fits, or if too many wait."""
        self.must_fit(job)
        self.queue.push(job, retry_after)

    def plan(self, budget: int, reclaimable: int) -> Tick:
        """The next tick, with memory taken for it: those put off hold nothing, those admitted what they begin with."""
        bounds = Bounds(self.pool.free + reclaimable, self.rows, self.chunk, budget, self.ahead)
        waiting = [*self.put_off, *self.queue]
        tick = plan(waiting, list(self.running.values()), self.prices, bounds)
        by_number = {job.number: job for job in waiting}
        for number in tick.preempt:
            self._preempt(self.running.pop(number))
        for number in tick.grow:
            self._take(self.running[number], [self.prices.page_bytes])
            self.running[number].pages += 1
        for number in tick.admit:
            self._admit(by_number[number])
        return tick

    def finish(self, job: Job) -> None:
        """It ended, wherever it was; nothing is held for it any more."""
        if job.number in self.running:
            del self.running[job.number]
            self._release(job)
        elif job in self.put_off:
            self.put_off.remove(job)
        else:
            self.queue.drop(job)

    def _preempt(self, job: Job) -> None:
        self._release(job)
        job.done, job.preemptions = 0, job.preemptions + 1
        self.put_off.append(job)
        self.put_off.sort(key=lambda job: job.number)

    def _admit(self, job: Job) -> None:
        if job in self.put_off:
            self.put_off.remove(job)
        else:
            self.queue.take(job)
        prices = self.prices
        job.pages = prices.pages(job.known + 1)
        own = prices.slot_bytes + job.source * prices.source_bytes
        assert own + job.pages * prices.page_bytes == first_bytes(job, prices)
        self._take(job, [own, *[prices.page_bytes] * job.pages])
        self.running[job.number] = job

    def _take(self, job: Job, sizes: list[int]) -> None:
        missing = sum(sizes) - self.pool.free
        if missing > 0:
            self._reclaim(missing)
        units = self.pool.take(sizes)
        assert units is not None  # the plan counted on no more than there is
        job.units += units

    def _release(self, job: Job) -> None:
        self.pool.give(job.units)
        job.units, job.pages = [], 0
