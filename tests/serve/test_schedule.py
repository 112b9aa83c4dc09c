"""The planner and the pool: numbers only, driven by hypothesis through arrivals, cancellations and scarce memory."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from heed.core.errors import InputError
from heed.core.spec import STAMP_BYTES, Entries, Slot, price
from heed.serve.answer import Busy
from heed.serve.plan import Bounds, Job, plan
from heed.serve.pool import Pool, Prices
from heed.serve.schedule import FairQueue, Schedule

PRICES = Prices(page=4, page_bytes=10, slot_bytes=7, source_bytes=3)
CHUNK = 8


class Life(RuleBasedStateMachine):
    """Requests come, are cancelled, read, write and end; memory is scarce and partly held by a cache."""

    @initialize(budget=st.integers(40, 200), rows=st.integers(1, 5), pages=st.booleans())
    def begin(self, budget: int, rows: int, pages: bool) -> None:
        self.prices = PRICES if pages else Prices(page=4, page_bytes=0, slot_bytes=20, source_bytes=3)
        self.pool, self.cached, self.number = Pool(budget), list[int](), 0
        self.alive: dict[int, Job] = {}
        self.schedule = Schedule(self.pool, self.prices, rows=rows, waiting=6, chunk=CHUNK, reclaim=self.uncache)

    def uncache(self, missing: int) -> None:
        before = self.pool.free
        while self.pool.free - before < missing:
            self.pool.give([self.cached.pop()])

    def sampled(self, job: Job) -> None:
        job.written += 1
        if job.written == job.limit:
            self.schedule.finish(job)
            del self.alive[job.number]

    @rule(owner=st.sampled_from("abc"), prompt=st.integers(1, 30), limit=st.integers(1, 12), source=st.integers(0, 3))
    def submit(self, owner: str, prompt: int, limit: int, source: int) -> None:
        job = Job(self.number, owner, prompt, limit, source)
        fits = self.prices.bytes(prompt + limit, source) <= self.pool.budget
        full = len(self.schedule.queue) == 6
        if fits and not full:
            self.schedule.submit(job)
            self.alive[job.number], self.number = job, self.number + 1
        else:
            with pytest.raises(Busy if fits else InputError):
                self.schedule.submit(job)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = self.alive.pop(data.draw(st.sampled_from(sorted(self.alive))))
        self.schedule.finish(job)
        assert not job.units

    @rule(size=st.integers(1, 15))
    def cache(self, size: int) -> None:
        self.cached += self.pool.take([size]) or []

    @rule(budget=st.sampled_from((1, CHUNK, 40)))
    def tick(self, budget: int) -> None:
        schedule, before = self.schedule, dict(self.schedule.running)
        waiting = [job.number for job in (*schedule.put_off, *schedule.queue)]
        tick = schedule.plan(budget, sum(self.pool._held(unit)[0] for unit in self.cached))
        assert list(tick.admit) == waiting[: len(tick.admit)]  # nobody overtakes
        assert not (tick.admit and tick.preempt)
        assert all(number > min(before) for number in tick.preempt)  # the oldest is never put off
        assert set(tick.step) | {job for job, _ in tick.read} <= set(schedule.running)
        assert set(tick.step) == {n for n in before if n in schedule.running and not before[n].reading}
        total = sum(count for _, count in tick.read)
        assert total <= budget or len(tick.read) == 1
        assert tick.read or not any(job.reading for job in schedule.running.values())
        for number, count in tick.read:
            job = schedule.running[number]
            job.done += count
            assert job.done == job.prompt or job.done % CHUNK == 0  # borders follow from the prompt alone
        for number in tick.step:
            schedule.running[number].done += 1
        moved = {*tick.step, *(number for number, _ in tick.read)}
        for number in sorted(moved):
            job = self.alive[number]
            if job.done == job.known:
                self.sampled(job)
        assert moved or not self.alive  # somebody always goes on

    @invariant()
    def conserved(self) -> None:
        if not hasattr(self, "schedule"):
            return
        held = [unit for job in self.alive.values() for unit in job.units]
        assert len({*held, *self.cached}) == len(held) + len(self.cached) == len(self.pool)
        assert self.pool.used == sum(self.pool._held(unit)[0] for unit in (*held, *self.cached)) <= self.pool.budget
        assert len(self.schedule.running) <= self.schedule.rows
        assert len(self.schedule) == len(self.alive)
        for job in self.schedule.running.values():
            assert len(job.units) == 1 + job.pages
            assert self.prices.pages(job.done) <= job.pages  # nothing is written that no page was taken for

    def teardown(self) -> None:
        if not hasattr(self, "schedule"):
            return
        most = sum(2 + job.prompt + job.limit for job in self.alive.values()) * (1 + len(self.alive))
        for _ in range(most):
            if not self.alive:
                break
            self.tick(CHUNK)
            self.conserved()
        assert not self.alive, "somebody starves"
        self.pool.give(self.cached)
        assert not len(self.pool)
        assert self.pool.used == 0


def test_pages_are_conserved_and_no_request_starves() -> None:
    run_state_machine_as_test(Life, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))


def test_pool_is_given_back_once() -> None:
    pool = Pool(10)
    units = pool.take([4, 4])
    assert units is not None
    assert pool.take([3]) is None
    pool.share(units[:1])
    pool.give(units)
    assert (pool.used, len(pool)) == (4, 1)  # one is still held
    pool.give(units[:1])
    with pytest.raises(InputError, match="given back twice"):
        pool.give(units[1:])
    assert pool.free == 10


def test_prices_cover_what_a_spec_declares() -> None:
    spec = (
        Slot(((2, 3), (2, 3)), Entries(each=1)),
        Slot(((4,),), Entries(each=1, cap=5)),
        Slot(((8,),), Entries(fixed=2)),
        (Slot(((3,),), Entries(per_source=True)), Slot(((2,),), Entries(each=4, lead=3))),
    )
    prices = Prices.of(spec, page=16)
    for tokens in (1, 15, 16, 17, 200, 5_000):
        for source in (0, 9):
            assert prices.bytes(tokens, source) >= price(spec, tokens, source)
    assert prices.bytes(160, 0) - prices.bytes(16, 0) <= 1.1 * (price(spec, 160, 0) - price(spec, 16, 0))
    assert Prices.of(Slot(((8,),), Entries(fixed=1)), page=16).pages(1000) == 0  # a recurrence does not grow


@pytest.mark.parametrize("entries", [Entries(each=1, cap=5), Entries(each=3), Entries(each=5, lead=2)])
def test_prices_cover_each_kind_of_entries_by_itself(entries: Entries) -> None:
    spec = Slot(((4,),), entries)
    prices = Prices.of(spec, page=16)
    assert all(prices.bytes(tokens) >= price(spec, tokens) for tokens in range(1, 400))
    full = 6 * (price(Slot(((4,),), Entries(fixed=1)), 1) + STAMP_BYTES)
    assert prices.slot_bytes == full or entries.cap is None, "a full ring has a free column"


def test_a_page_is_left_for_each_that_runs() -> None:
    running = [Job(number, "a", 4, 9, written=1, done=4, pages=2) for number in range(2)]
    new = Job(9, "b", 3, 4)
    needed = PRICES.bytes(4)
    for free, admitted in ((needed + 2 * PRICES.page_bytes, (9,)), (needed + 2 * PRICES.page_bytes - 1, ())):
        assert plan([new], running, PRICES, Bounds(free, rows=8, chunk=CHUNK, budget=64)).admit == admitted


def test_the_oldest_of_those_put_off_goes_on_first() -> None:
    schedule = Schedule(Pool(1000), PRICES, rows=8, waiting=6, chunk=CHUNK, reclaim=lambda missing: None)
    for number in range(3):
        schedule.submit(Job(number, "a", 4, 9))
    schedule.plan(64, 0)
    for number in (2, 0, 1):
        schedule._preempt(schedule.running.pop(number))
    assert [job.number for job in schedule.put_off] == [0, 1, 2]
    assert schedule.plan(64, 0).admit == (0, 1, 2)


def test_owners_take_turns() -> None:
    queue = FairQueue(9)
    jobs = [Job(i, owner, 1, 1) for i, owner in enumerate("aaabcb")]
    for job in jobs:
        queue.push(job, 1.0)
    taken = list[int]()
    shown = [job.number for job in queue]
    while len(queue):
        job = next(iter(queue))
        queue.take(job)
        taken.append(job.number)
    assert taken == shown == [0, 3, 4, 1, 5, 2]


def test_a_cold_owner_reads_beside_one_with_many_prompts() -> None:
    jobs = [Job(i, "a" if i < 3 else "b", 64, 4) for i in range(4)]
    tick = plan([], jobs, PRICES, Bounds(free=0, rows=8, chunk=16, budget=64))
    assert tick.read == ((0, 16), (3, 16), (0, 16), (3, 16))
