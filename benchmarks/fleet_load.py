"""What a fleet is asked, and what its replicas can: sizes, costs and requests as numbers."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from heed.serve.batch import ROWS
from heed.serve.pool import Prices

PATIENCE, GAP = 2.0, 0.25  # seconds to the first token, and between two, within which an answer is a good one


@dataclass(frozen=True)
class Costs:
    """Seconds of a replica's work, as they were measured."""

    read: float  # of a token of a prompt
    step: tuple[float, ...]  # of a tick in which 1, 2 ... ROWS rows step together
    resume: float = 0.0  # of a token of a prompt that is known: what was remembered is copied
    seat: float = 0.0  # of a request that begins to write: what was read is put among the others

    def steps(self, rows: int) -> float:
        """Of a tick in which so many rows step."""
        whole, rest = divmod(rows, ROWS)
        return whole * self.step[ROWS - 1] + (self.step[rest - 1] if rest else 0.0)


@dataclass(frozen=True)
class Size:
    """What a replica has, as `heed.serve.Limits` says it, and what a request takes of it."""

    prices: Prices
    memory: int = 1 << 30
    rows: int = 64
    waiting: int = 256
    chunk: int = 64
    gap: float = 0.1


@dataclass(frozen=True)
class Load:
    """What is asked."""

    rate: float  # requests a second
    requests: int
    groups: int = 200  # shared prompts; how often each comes follows Zipf's law
    shared: int = 384  # tokens of a shared prompt
    prompt: float = 120.0  # median of the tokens behind it
    written: float = 60.0  # median of the tokens of an answer
    spread: float = 0.7  # of both, as the deviation of their logarithm
    seed: int = 0


@dataclass
class Asked:
    """A request."""

    number: int
    arrived: float
    group: int
    prompt: int
    shared: int
    limit: int
    first: float = math.nan  # when its first token came
    ended: float = math.nan
    cached: int = 0
    tries: int = 0

    @property
    def good(self) -> bool:
        """Whether it was answered as fast as a person reads."""
        gap = (self.ended - self.first) / max(1, self.limit - 1)
        return self.first - self.arrived <= PATIENCE and gap <= GAP


def asked(load: Load) -> list[Asked]:
    """All requests, by arrival."""
    rng, now, found = random.Random(load.seed), 0.0, list[Asked]()
    weights = [1 / (1 + group) for group in range(load.groups)]
    groups = rng.choices(range(load.groups), weights, k=load.requests)
    for number, group in enumerate(groups):
        now += rng.expovariate(load.rate)
        own, limit = (
            max(1, min(4096, round(rng.lognormvariate(math.log(median), load.spread))))
            for median in (load.prompt, load.written)
        )
        found.append(Asked(number, now, group, load.shared + own, load.shared, limit))
    return found
