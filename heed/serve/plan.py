"""Who does what in the next tick: a pure function of numbers. No tensor, no clock, no thread.

Writers go in every tick, the oldest first. What the budget leaves is read of prompts, in whole chunks, owner by owner.
A writer that finds no page takes it from the youngest, which is put off and retraced later. New requests are admitted
in the order of the queue, nobody overtakes, and only if a page is left for each that runs: the oldest always goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .pool import Prices


@dataclass
class Job:
    """What the planner knows of a request."""

    number: int  # by arrival: smaller is older
    owner: str
    prompt: int  # tokens
    limit: int  # new tokens, at most
    source: int = 0  # tokens of its source
    written: int = 0  # tokens sampled so far
    done: int = 0  # tokens in its state
    pages: int = 0  # that it holds
    units: list[int] = field(default_factory=list)  # of the pool: slot, source and pages
    preemptions: int = 0

    @property
    def known(self) -> int:
        """Tokens of the prompt, and those written after it."""
        return self.prompt + self.written

    @property
    def reading(self) -> bool:
        """Whether some of its prompt is not in its state."""
        return self.done < self.prompt


@dataclass(frozen=True)
class Tick:
    """What is to be done, in this order, by the numbers of jobs."""

    preempt: tuple[int, ...] = ()
    grow: tuple[int, ...] = ()  # those that need one page more
    admit: tuple[int, ...] = ()
    read: tuple[tuple[int, int], ...] = ()  # a job, and how many of its tokens; a job may come several times
    step: tuple[int, ...] = ()


@dataclass(frozen=True)
class Bounds:
    """What a tick may use."""

    free: int  # bytes, those counted that others would give back when asked
    rows: int  # at once, at most
    chunk: int  # tokens
    budget: int  # tokens to be read in this tick; one chunk is always read
    ahead: int = 0  # tokens that a writer may step beside its next one, if there is room for them anyway


def plan(waiting: Iterable[Job], running: Sequence[Job], prices: Prices, bounds: Bounds) -> Tick:
    """The next tick."""
    by_age = sorted(running, key=lambda job: job.number)
    free, put_off, grow = bounds.free, list[Job](), list[int]()
    staying = deque(by_age)
    for job in by_age:
        if job in put_off or job.reading or prices.pages(job.done + 1) <= job.pages:
            continue
        while free < prices.page_bytes and job not in put_off:
            youngest = staying.pop()
            put_off.append(youngest)
            free += prices.slot_bytes + youngest.pages * prices.page_bytes + youngest.source * prices.source_bytes
            if youngest.number in grow:
                grow.remove(youngest.number)
                free += prices.page_bytes
        if job not in put_off:
            grow.append(job.number)
            free -= prices.page_bytes
    admitted = [] if put_off else _admitted(waiting, staying, prices, free, bounds.rows)
    free -= sum(first_bytes(job, prices) for job in admitted)
    if not put_off:
        grow += _ahead(staying, grow, prices, free - len((*staying, *admitted)) * prices.page_bytes, bounds.ahead)
    read = _read([job for job in (*staying, *admitted) if job.reading], bounds)
    return Tick(
        preempt=tuple(job.number for job in put_off),
        grow=tuple(grow),
        admit=tuple(job.number for job in admitted),
        read=read,
        step=tuple(job.number for job in staying if not job.reading),
    )


def first_bytes(job: Job, prices: Prices) -> int:
    """What a job takes when it is admitted: room for all tokens that are known, and for one more."""
    return prices.bytes(job.known + 1, job.source)


def chunk_after(done: int, prompt: int, size: int) -> int:
    """Tokens to be read next: up to a multiple of `size`, or the prompt's end. Borders follow from the prompt alone."""
    return min(prompt, (done // size + 1) * size) - done


def _admitted(waiting: Iterable[Job], running: Sequence[Job], prices: Prices, free: int, rows: int) -> list[Job]:
    """Those at the head of the queue that fit, while a page is left for each of the others."""
    admitted = list[Job]()
    for job in waiting:
        count = len(running) + len(admitted)
        needed = first_bytes(job, prices)
        if count >= rows or needed + count * prices.page_bytes > free:
            break
        admitted.append(job)
        free -= needed
    return admitted


def _ahead(writers: Iterable[Job], grow: Sequence[int], prices: Prices, free: int, count: int) -> list[int]:
    """Those that could step more than one token if they had a page more, as long as nobody else will miss it."""
    found = list[int]()
    for job in writers:
        most = min(job.done + 1 + count, job.prompt + job.limit)
        held = job.pages + (job.number in grow)
        if not job.reading and free >= prices.page_bytes and prices.pages(most) > held:
            found.append(job.number)
            free -= prices.page_bytes
    return found


def _read(readers: Sequence[Job], bounds: Bounds) -> tuple[tuple[int, int], ...]:
    """Chunks by turns of their owners, each owner's oldest first, until the budget is used up."""
    owners: dict[str, deque[Job]] = {}
    for job in sorted(readers, key=lambda job: job.number):
        owners.setdefault(job.owner, deque()).append(job)
    turns, left, found = deque(owners.values()), bounds.budget, list[tuple[int, int]]()
    at = {job.number: job.done for job in readers}
    while turns:
        jobs = turns.popleft()
        job = jobs[0]
        done = at[job.number]
        count = chunk_after(done, job.prompt, bounds.chunk)
        if found and count > left:
            break
        found.append((job.number, count))
        left -= count
        at[job.number] += count
        if at[job.number] == job.prompt:
            jobs.popleft()
        if jobs:
            turns.append(jobs)
    return tuple(found)
