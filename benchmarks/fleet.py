"""A fleet of replicas in a simulation: the planner and the schedule are those of heed.serve, only the model is a table.

    python -m benchmarks.fleet --replicas 1,4,16 --requests 4000
    python -m benchmarks.fleet --validate          # beside real workers of a small model

A replica plans its ticks by `heed.serve.plan`; a tick takes the time that reading and stepping took here. Requests
arrive by chance (Poisson), begin with one of some shared prompts, and have log-normal lengths. A router gives each to a
replica. Replicas may fail: what they had is asked again elsewhere, and what they remembered is lost.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import count
from statistics import quantiles
from typing import Annotated

import typer

from benchmarks.fleet_load import Asked, Costs, Load, Size, asked
from heed.serve.answer import Busy
from heed.serve.plan import Job, Tick, chunk_after
from heed.serve.pool import Pool
from heed.serve.schedule import Schedule
from heed.serve.statistics import Pace

CROWD = 1.25  # times the mean of requests, above which a replica that knows a prefix is passed over


class Replica:
    """One engine: its schedule, and what it remembers of shared prompts."""

    def __init__(self, number: int, size: Size, costs: Costs) -> None:
        self.number, self.size, self.costs = number, size, costs
        self.version, self.down = 0, False
        self.empty()

    def empty(self) -> None:
        """As at its start."""
        size = self.size
        self.pool, self.known = Pool(size.memory), OrderedDict[int, list[int]]()
        self.schedule = Schedule(
            self.pool,
            size.prices,
            rows=size.rows,
            waiting=size.waiting,
            chunk=size.chunk,
            reclaim=self._reclaim,
        )
        self.held: dict[int, Asked] = {}
        self.pace = Pace(size.gap)
        self.tick: Tick | None = None
        self.begun, self.each, self.times = 0.0, 0.0, 0  # of the ticks at work: so many alike

    def submit(self, one: Asked) -> None:
        """It waits from now on; raises Busy if too many do."""
        self.schedule.submit(Job(one.number, "", one.prompt, one.limit))
        self.held[one.number] = one

    def begin(self, now: float) -> float | None:
        """Plan the next tick, or as many as will be alike; when they end. None: there is nothing to do."""
        if not self.held:
            self.tick = None
            return None
        running = self.schedule.running
        writing = any(not job.reading for job in running.values())
        budget = self.pace.budget(self.size.chunk, writing=writing)
        self.tick = tick = self.schedule.plan(budget, self._cached_bytes())
        for number in tick.admit:
            self._find(running[number])
        tokens = self._read([running[number] for number, _ in tick.read])
        known = sum(self.held[number].cached for number in tick.admit)
        seats = sum(running[number].done == running[number].prompt for number in tick.step)
        once = known * self.costs.resume + seats * self.costs.seat
        self.each = tokens * self.costs.read + self.costs.steps(len(tick.step)) + once
        alike = not (seats or tick.read or tick.preempt or tick.admit or len(self.schedule) > len(running))
        self.times = min(map(self._left, tick.step), default=1) if alike and tick.step else 1
        if tokens:
            self.pace.read(tokens, tokens * self.costs.read)
        if tick.step:
            self.pace.stepped(self.costs.steps(len(tick.step)))
        self.begun = now
        return now + max(self.each * self.times, 1e-9)

    def interrupt(self, now: float) -> float | None:
        """Somebody came: it ends after the tick that it is in. When; None: it does anyway."""
        if self.tick is None or self.times == 1:
            return None
        times = max(1, math.ceil((now - self.begun) / self.each))
        if times >= self.times:
            return None
        self.times = times
        return self.begun + self.each * times

    def end(self, now: float) -> list[Asked]:
        """The ticks are over: who was answered."""
        assert self.tick is not None
        running, ended = self.schedule.running, list[Asked]()
        for number in self.tick.step:
            job = running[number]
            job.done += self.times
            job.written += self.times if job.done == job.known else 0
            if job.done < job.known:  # retraced after a preemption
                continue
            job.written = job.done - job.prompt + 1
        for number in dict.fromkeys(number for number, _ in self.tick.read):
            job = running[number]
            self._keep(job)
            if not job.reading and not job.written:
                job.written, self.held[number].first = 1, now
        for number in {*self.tick.step, *(number for number, _ in self.tick.read)}:
            job = running[number]
            if not job.reading and job.written >= job.limit:
                self.schedule.finish(job)
                self.held[number].ended = now
                ended.append(self.held.pop(number))
        return ended

    def fail(self) -> list[Asked]:
        """It ends: what it had, and forgets."""
        lost = [*self.held.values()]
        self.empty()
        self.version, self.down = self.version + 1, True
        return lost

    def _read(self, jobs: Sequence[Job]) -> int:
        """A chunk of each of these, which may be there several times; tokens, without those that were known."""
        tokens = 0
        for job in jobs:
            if job.reading:
                some = chunk_after(job.done, job.prompt, self.size.chunk)
                job.done, tokens = job.done + some, tokens + some
        return tokens

    def _left(self, number: int) -> int:
        """Ticks until something changes for it: its answer or its page ends."""
        job, prices = self.schedule.running[number], self.size.prices
        room = job.pages * prices.page - job.done if prices.page_bytes else job.limit
        return max(1, min(job.limit - job.written, room))

    def _find(self, job: Job) -> None:
        one = self.held[job.number]
        if one.group in self.known and not job.done:
            self.known.move_to_end(one.group)
            job.done = one.shared // self.size.chunk * self.size.chunk
            one.cached = job.done

    def _keep(self, job: Job) -> None:
        one = self.held[job.number]
        whole = one.shared // self.size.chunk * self.size.chunk
        if one.group in self.known or not whole or job.done < whole:
            return
        wanted = self.size.prices.bytes(whole)
        while self.pool.free < wanted and self.known:
            self._forget()
        units = self.pool.take([wanted])
        if units is not None:
            self.known[one.group] = units

    def _cached_bytes(self) -> int:
        whole = Load.shared // self.size.chunk * self.size.chunk
        return len(self.known) * self.size.prices.bytes(whole)

    def _reclaim(self, wanted: int) -> None:
        free = self.pool.free
        while self.known and self.pool.free - free < wanted:
            self._forget()

    def _forget(self) -> None:
        _, units = self.known.popitem(last=False)
        self.pool.give(units)


Router = Callable[[Asked, Sequence[Replica]], Replica]


def round_robin() -> Router:
    """One after the other."""
    turns = count()
    return lambda one, alive: alive[next(turns) % len(alive)]


def least_loaded() -> Router:
    """Who has the fewest of two that are drawn: nobody can look at a thousand for every request."""
    rng = random.Random(1)
    return lambda one, alive: min(rng.choices(alive, k=2), key=lambda replica: len(replica.held))


def prefix_affinity() -> Router:
    """Who knows the prompt: the first by a hash of prompt and replica that is not much busier than others."""
    orders, anybody = dict[tuple[int, int], list[Replica]](), least_loaded()

    def route(one: Asked, alive: Sequence[Replica]) -> Replica:
        key = one.group, len(alive)
        if key not in orders:
            orders[key] = sorted(alive, key=lambda replica: _rank(one.group, replica.number))[:8]
        mean = sum(len(replica.held) for replica in alive[:64]) / min(64, len(alive))
        able = (each for each in orders[key] if not each.down and len(each.held) <= CROWD * mean + 2)
        return next(able, None) or anybody(one, alive)

    return route


def _rank(group: int, replica: int) -> bytes:
    return blake2b(f"{group} {replica}".encode(), digest_size=8).digest()


ROUTERS = {"prefix affinity": prefix_affinity, "round robin": round_robin, "least loaded of two": least_loaded}


@dataclass
class Fleet:
    """Replicas, a router, and events in their order."""

    replicas: list[Replica]
    router: Router
    failures: float = math.inf  # mean seconds between two failures of a replica
    repair: float = 30.0  # seconds until it is back
    seed: int = 0
    answered: list[Asked] = field(default_factory=list)
    refused: int = 0
    failed: int = 0  # replicas

    def run(self, requests: Sequence[Asked]) -> None:
        """All of them, to the last."""
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order, self._rng, self._coming = count(), random.Random(self.seed), deque(requests)
        self._open = len(requests)
        if math.isfinite(self.failures):
            for replica in self.replicas:
                self._at(self._rng.expovariate(1 / self.failures), partial(self._fails, replica))
        self._at(self._coming[0].arrived, self._arrives)
        while self._events and self._open:
            now, _, act = heapq.heappop(self._events)
            act(now)

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def _arrives(self, now: float) -> None:
        self._route(self._coming.popleft(), now)
        if self._coming:
            self._at(self._coming[0].arrived, self._arrives)

    def _route(self, one: Asked, now: float) -> None:
        alive = [replica for replica in self.replicas if not replica.down] if self.failed else self.replicas
        one.tries += 1
        if not alive or one.tries > 60:
            self.refused, self._open = self.refused + 1, self._open - 1
            return
        replica = self.router(one, alive)
        idle = replica.tick is None
        try:
            replica.submit(one)
        except Busy as busy:
            self._at(now + busy.retry_after, partial(self._route, one))
            return
        if idle:
            self._begin(replica, now)
        elif (sooner := replica.interrupt(now)) is not None:
            self._end_at(replica, sooner)

    def _begin(self, replica: Replica, now: float) -> None:
        end = replica.begin(now)
        if end is not None:
            self._end_at(replica, end)

    def _end_at(self, replica: Replica, when: float) -> None:
        replica.version += 1
        version = replica.version
        self._at(when, partial(self._ends, replica, version))

    def _ends(self, replica: Replica, version: int, now: float) -> None:
        if version != replica.version:  # it ended sooner, or not at all
            return
        ended = replica.end(now)
        self.answered += ended
        self._open -= len(ended)
        self._begin(replica, now)

    def _fails(self, replica: Replica, now: float) -> None:
        self.failed += 1
        for one in replica.fail():
            one.first, one.cached = math.nan, 0
            self._at(now, partial(self._route, one))
        self._at(now + self.repair, partial(self._is_back, replica))

    def _is_back(self, replica: Replica, now: float) -> None:
        replica.down = False
        self._at(now + self._rng.expovariate(1 / self.failures), partial(self._fails, replica))


@dataclass(frozen=True)
class Told:
    """What became of the requests."""

    p50: float  # seconds to the first token
    p99: float
    cached: float  # share of the tokens of prompts that were not read
    goodput: float  # good answers a second
    answered: int
    refused: int

    @classmethod
    def of(cls, fleet: Fleet) -> Told:
        """Of all that were answered."""
        some = fleet.answered
        waits = quantiles([one.first - one.arrived for one in some], n=100, method="inclusive")
        span = max(one.ended for one in some) - min(one.arrived for one in some)
        cached = sum(one.cached for one in some) / sum(one.prompt for one in some)
        return cls(waits[49], waits[98], cached, sum(one.good for one in some) / span, len(some), fleet.refused)


def simulated(load: Load, replicas: int, size: Size, costs: Costs, router: str, failures: float = math.inf) -> Told:
    """One fleet and what became of its requests."""
    fleet = Fleet([Replica(number, size, costs) for number in range(replicas)], ROUTERS[router](), failures)
    fleet.run(asked(load))
    return Told.of(fleet)


def capacity(load: Load, size: Size, costs: Costs) -> float:
    """Requests a second that a replica could answer if no prompt were known and all its rows were busy."""
    mean = math.exp(load.spread**2 / 2)
    read = (load.shared + load.prompt * mean) * costs.read
    return 1 / (read + load.written * mean * costs.steps(size.rows) / size.rows)


def main(
    replicas: Annotated[str, typer.Option(help="How many, by commas.")] = "1,4,16",
    requests: Annotated[int, typer.Option(min=100, help="For each replica.")] = 400,
    use: Annotated[float, typer.Option(help="Of what replicas could do without prefixes.")] = 1.2,
    failures: Annotated[float, typer.Option(help="Mean seconds between two failures of a replica; 0: none.")] = 0.0,
    validate: Annotated[bool, typer.Option("--validate", help="Beside two real workers instead.")] = False,
) -> None:
    """Print a table: fleets of several sizes, each with every router."""
    from benchmarks.fleet_costs import measured, validated

    costs, size = measured()
    print(f"read {costs.read * 1e6:.1f} us a token; step {', '.join(f'{one * 1e3:.2f}' for one in costs.step)} ms")
    if validate:
        print(validated(costs, size))
        return
    print("| replicas | requests | router | first token p50, s | p99, s | cached | good answers / s | refused |")
    print("|---|---|---|---|---|---|---|---|")
    for number in map(int, replicas.split(",")):
        load = Load(rate=0.0, requests=requests * number)
        load = Load(rate=use * number * capacity(load, size, costs), requests=requests * number)
        for router in ROUTERS:
            told = simulated(load, number, size, costs, router, failures or math.inf)
            cells = f"{told.p50:.3f} | {told.p99:.3f} | {told.cached:.0%} | {told.goodput:.1f} | {told.refused}"
            print(f"| {number} | {load.requests} | {router} | {cells} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
