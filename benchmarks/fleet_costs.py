"""What a replica's work costs here, and whether the simulation tells what real workers do.

Both are timed by the processor's time of the thread that works, as workers themselves are here told: so other work on
the machine changes neither, and two workers in one process are two replicas that do not disturb one another.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from statistics import median
from time import thread_time
from typing import Any

import torch

from benchmarks.fleet import ROUTERS, Fleet, Replica, Told, capacity
from benchmarks.fleet_load import Asked, Costs, Load, Size, asked
from heed.mixers import Attention
from heed.models import Decoder
from heed.parts.positions import Rope
from heed.serve import worker as working
from heed.serve.answer import Answer
from heed.serve.batch import ROWS
from heed.serve.request import Request
from heed.serve.served import Limits, Served
from heed.serve.worker import Worker

VOCABULARY, LONG = 512, 512  # tokens of a prompt with which costs are measured
LIMITS = Limits(memory=1 << 26, rows=16, waiting=256, chunk=64, page=16, ahead=0)


def model() -> Any:
    """A small language model, of grouped queries."""
    torch.manual_seed(0)
    mixer = Attention.Config(heads=4, kv_heads=2, position=Rope.Config())
    return Decoder.Config(vocabulary=VOCABULARY, width=128, depth=4, mixer=mixer).build().eval()


@dataclass
class Real:
    """A worker whose clock is the processor's time that it took."""

    number: int
    worker: Worker
    now: float = 0.0
    down: bool = False
    held: dict[int, Asked] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)

    def submit(self, one: Asked, prompt: list[int]) -> None:
        """It waits from now on."""
        if not self.held:
            self.now = max(self.now, one.arrived)
        request = Request(prompt=prompt, max_new_tokens=one.limit, ends=())
        self.answers[one.number] = self.worker.submit(request, one.number, lambda _: Answer(lambda: None))
        self.held[one.number] = one

    @torch.no_grad()
    def tick(self) -> list[Asked]:
        """One tick, and who was answered by it."""
        begun = thread_time()
        self.worker.tick()
        self.now += thread_time() - begun
        ended = list[Asked]()
        for number, answer in [*self.answers.items()]:
            one = self.held[number]
            while not answer.ended or one.ended != one.ended:
                try:
                    event = answer.next(0)
                except TimeoutError:
                    break
                assert event is not None
                one.first = self.now if math.isnan(one.first) else one.first
                if event.usage is not None:
                    one.ended, one.cached = self.now, event.usage.cached_tokens
                    ended.append(self.held.pop(number))
                    del self.answers[number]
                    break
        return ended


def real(number: int) -> Real:
    """A new one, which is told the processor's time where it asks for the time."""
    working.monotonic = thread_time  # type: ignore[attr-defined]  # its own name for the clock
    return Real(number, Worker(Served("model", model()), LIMITS, LIMITS.memory))


def measured() -> tuple[Costs, Size]:
    """What reading and stepping cost here, and the size of a replica."""
    rng, steps, first, read = random.Random(0), list[float](), list[float](), 0.0
    one = real(0)
    for rows in range(1, ROWS + 1):
        for place in range(rows):
            prompt = [rng.randrange(VOCABULARY) for _ in range(LONG)]
            one.submit(Asked(100 * rows + place, 0.0, 0, LONG, 0, 64), prompt)
        begun = one.now
        while any(job.reading for job in one.worker._schedule.running.values()) or len(one.worker._schedule.queue):
            one.tick()
        if rows == 1:
            read = (one.now - begun) / LONG
        times = list[float]()
        while len(one.held) == rows:
            begun = one.now
            one.tick()
            times.append(one.now - begun)
        while one.held:
            one.tick()
        steps.append(median(times))
        first.append((times[0] - steps[-1]) / rows)
    resume = median(_resumed(one, rng, read) for _ in range(9))
    size = Size(one.worker._prices, LIMITS.memory, LIMITS.rows, LIMITS.waiting, LIMITS.chunk, LIMITS.gap)
    return Costs(read, tuple(steps), resume, max(0.0, median(first))), size


def _resumed(one: Real, rng: random.Random, read: float) -> float:
    """Seconds for each token of a prompt that is known."""
    known, took = [rng.randrange(VOCABULARY) for _ in range(LONG)], 0.0
    for number in (1, 2):
        begun = one.now
        one.submit(Asked(10_000 + number, 0.0, 0, LONG + 1, 0, 1), [*known, number])
        while one.held:
            one.tick()
        took = one.now - begun
    return max(0.0, took - read) / LONG


def validated(costs: Costs, size: Size) -> str:
    """Two real workers beside two simulated ones, with the same requests: a table."""
    load = Load(rate=0.0, requests=80, groups=12)
    lines = ["| router | | first token p50, s | p99, s | of prompts cached | tokens / s |", "|---|---|---|---|---|---|"]
    for router in ("prefix affinity", "round robin"):
        for use in (0.6, 1.2):
            rate = use * 2 * capacity(load, size, costs)
            both = Load(rate=rate, requests=load.requests, groups=load.groups)
            for what, found in (("real", _ran(both, router)), ("simulated", _simulated(both, size, costs, router))):
                told = Told.of(found)
                span = max(one.ended for one in found.answered)
                tokens = sum(one.limit for one in found.answered) / span
                cells = f"{told.p50:.4f} | {told.p99:.4f} | {told.cached:.0%} | {tokens:.0f}"
                lines.append(f"| {router}, load {use} | {what} | {cells} |")
    return "\n".join(lines)


def _simulated(load: Load, size: Size, costs: Costs, router: str) -> Fleet:
    fleet = Fleet([Replica(number, size, costs) for number in range(2)], ROUTERS[router]())
    fleet.run(asked(load))
    return fleet


def _ran(load: Load, router: str) -> Fleet:
    """The same with real workers: whoever is behind the others is next."""
    replicas: Any = [real(number) for number in range(2)]  # a router asks for their number, and for what they hold
    fleet, rng = Fleet(replicas, ROUTERS[router]()), random.Random(7)
    shared = [[rng.randrange(VOCABULARY) for _ in range(load.shared)] for _ in range(load.groups)]
    for one in asked(load):
        _until(fleet, replicas, one.arrived)
        prompt = [*shared[one.group], *(rng.randrange(VOCABULARY) for _ in range(one.prompt - one.shared))]
        fleet.router(one, replicas).submit(one, prompt)  # type: ignore[call-arg]  # a real one is told the ids
    _until(fleet, replicas, math.inf)
    return fleet


def _until(fleet: Fleet, replicas: list[Real], when: float) -> None:
    """Everything that begins before."""
    while busy := [replica for replica in replicas if replica.held and replica.now < when]:
        fleet.answered += min(busy, key=lambda replica: replica.now).tick()
