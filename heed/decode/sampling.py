"""How the next token of a row is chosen: the largest score, or a draw.

The order of operations is fixed: repetition, temperature, top-k, top-p, min-p. What a constraint forbids is gone before
all of them. Where logits are equal, truncation keeps all of them or none, so a set never depends on the sorting.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from annotated_types import Ge, Gt, Le
from pydantic import Strict
from torch import Tensor

from ..core.config import Config, Fraction, Seed, Size
from ..engine import SamplingSettings

# Bounded, so that no logit a model gives becomes infinite, nor NaN, by being divided or multiplied.
Penalty = Annotated[float, Strict(), Ge(1e-3), Le(1e9)]
Temperature = Annotated[float, Strict(), Gt(0), Le(1e6)]


class Sampler(ABC):
    """What a pick remembers from step to step."""

    @abstractmethod
    def __call__(self, logits: Tensor) -> Tensor:
        """A token per row. [R, V] -> [R]"""

    @abstractmethod
    def settings(self, sampling: SamplingSettings, most: int) -> SamplingSettings:
        """The same for a burst of the next tokens, `most` at most."""

    @abstractmethod
    def used(self, count: int) -> None:
        """So many tokens per row were sampled in a burst."""

    @abstractmethod
    def select(self, rows: Sequence[int]) -> None:
        """Only these rows go on."""


class SamplingConfig(Config):
    """How the next token is chosen."""

    repetition: Penalty = 1.0  # logits of tokens seen in prompt or answer: divided if positive, else multiplied

    @abstractmethod
    def start(self, rows: int) -> Sampler:
        """For so many rows."""

    def seeded(self, seed: int | None = None) -> Self:
        """The same with a seed, if it draws: its own if it has one, else this one, else a fresh one."""
        return self


class Greedy(SamplingConfig):
    """The token of the largest score."""

    kind: Literal["greedy"] = "greedy"

    def start(self, rows: int) -> Sampler:
        return GreedySampler()


class Sample(SamplingConfig):
    """A draw from softmax(logits / temperature), cut to its likely part.

    top_k   the k largest logits
    top_p   of what top-k left, the smallest set of most probable tokens that together have this probability
            (Holtzman et al. 2020)
    min_p   tokens at least this share as probable as the most probable (Nguyen et al. 2024)

    Prompt i draws from a generator of its own, seeded with `seed + i`: the same row alone, with that seed, writes the
    same tokens. Without a seed every call draws its own; `seeded` draws it beforehand, so that it can be told.
    """

    kind: Literal["sample"] = "sample"
    temperature: Temperature = 1.0  # logits are divided by it: below 1 surer, above 1 wilder
    top_k: Size | None = None  # only the k most probable tokens
    top_p: Fraction | None = None  # only the most probable tokens that make up p (nucleus sampling)
    min_p: Fraction | None = None  # only tokens at least p times as probable as the best
    seed: Seed | None = None  # of the draws; None: another one in every call

    FEW: ClassVar[int] = 256  # so many tokens mostly have the share `top_p`; sorting all of them is slow

    def start(self, rows: int) -> Sampler:
        first = fresh_seed() if self.seed is None else self.seed
        return RandomSampler(self, [first + row for row in range(rows)])

    def seeded(self, seed: int | None = None) -> Self:
        if self.seed is not None:
            return self
        return self.model_copy(update={"seed": fresh_seed() if seed is None else seed})

    def weigh(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities up to a factor per row, 0 for what is cut, and the tokens that have them. Each [R, C]

        The tokens are in the order of their ids: a draw does not depend on how many candidates other rows have.
        """
        logits, tokens = self._top(logits)
        logits = logits.double()
        weights = ((logits - logits.amax(1, keepdim=True)) / self.temperature).exp()  # at most 1, however cold
        if self.top_p is not None and self.top_p < 1:
            weights = weights.masked_fill(weights < self._least(weights, self.top_p), 0)
        if self.min_p is not None:
            weights = weights.masked_fill(weights < self.min_p, 0)
        return weights, tokens

    def _top(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """What top-k leaves: so few that all further work is small."""
        rows, vocabulary = logits.shape
        if self.top_k is None or self.top_k >= vocabulary:
            return logits, torch.arange(vocabulary, device=logits.device).expand(rows, -1)
        least = logits.topk(self.top_k).values[:, -1:]
        count = int(((logits >= least) & (logits > -torch.inf)).sum(1).max())  # more than k where logits are equal
        tokens = logits.topk(max(count, 1)).indices.sort().values
        kept = logits.gather(1, tokens)
        return kept.masked_fill(kept < least, -torch.inf), tokens

    @classmethod
    def _least(cls, weights: Tensor, share: float) -> Tensor:
        """The smallest weight of the smallest set that has this share of the sum. [R, 1]"""
        whole = share * weights.sum(1, keepdim=True)
        largest = weights.topk(min(cls.FEW, weights.shape[1])).values
        sums = largest.cumsum(1)
        if bool((sums[:, -1:] < whole).any()):
            largest = weights.sort(descending=True).values
            sums = largest.cumsum(1)
        late = sums - largest >= whole  # those before it have the share already
        return largest.masked_fill(late, torch.inf).amin(1, keepdim=True)


def fresh_seed() -> int:
    """A seed from the system's randomness: another one in every process, short enough to be typed again."""
    return secrets.randbelow(1 << 31)


class GreedySampler(Sampler):
    """The token of the largest score; the first of equals."""

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.argmax(1)

    def settings(self, sampling: SamplingSettings, most: int) -> SamplingSettings:
        return sampling

    def used(self, count: int) -> None:
        """Nothing is used up."""

    def select(self, rows: Sequence[int]) -> None:
        """Nothing is remembered."""


class RandomSampler(Sampler):
    """Draws by the inverse of the distribution function: token i if u falls between the sums before and after it."""

    BLOCK = 64  # numbers are drawn so many at a time

    def __init__(self, strategy: Sample, seeds: Iterable[int]) -> None:
        self._strategy = strategy
        self._generators = [
            torch.Generator("cpu").manual_seed(seed) for seed in seeds
        ]  # on the CPU, whatever the model's
        self._drawn = torch.empty(
            len(self._generators), 0, dtype=torch.float64, device="cpu"
        )  # device: the same draws everywhere
        self._used = 0

    def __call__(self, logits: Tensor) -> Tensor:
        weights, tokens = self._strategy.weigh(logits)
        sums = weights.cumsum(1)
        level = self._uniform().to(sums.device) * sums[:, -1:]
        place = torch.searchsorted(sums, level, right=True).clamp_(max=sums.shape[1] - 1)  # beyond only if NaN
        return tokens.gather(1, place)[:, 0]

    def settings(self, sampling: SamplingSettings, most: int) -> SamplingSettings:
        own, draws = self._strategy, self._ahead(most).T.contiguous()
        warm = replace(sampling, draws=draws, temperature=own.temperature)
        return replace(warm, top_k=own.top_k, top_p=own.top_p, min_p=own.min_p)

    def used(self, count: int) -> None:
        self._used += count

    def select(self, rows: Sequence[int]) -> None:
        self._generators = [self._generators[row] for row in rows]
        self._drawn = self._drawn[list(rows)]

    def _uniform(self) -> Tensor:
        """The next number of every row, at least 0 and less than 1. [R, 1]"""
        number = self._ahead(1)
        self._used += 1
        return number

    def _ahead(self, count: int) -> Tensor:
        """The next numbers of every row. They count as used when they are. [R, count]"""
        while self._drawn.shape[1] < self._used + count:
            blocks = [
                torch.rand(self.BLOCK, dtype=torch.float64, device="cpu", generator=own) for own in self._generators
            ]
            self._drawn, self._used = torch.cat((self._drawn[:, self._used :], torch.stack(blocks)), 1), 0
        return self._drawn[:, self._used : self._used + count]


class Repetition:
    """Makes what a row has seen less likely to come again (Keskar et al. 2019, sec. 4.1)."""

    def __init__(self, penalty: float, prompts: Sequence[Sequence[int]]) -> None:
        self._penalty, self._prompts = penalty, prompts
        self._seen: Tensor | None = None  # [R, V] where a token was seen; made when the vocabulary is known

    def __call__(self, logits: Tensor) -> Tensor:
        if self._penalty == 1:
            return logits
        if self._seen is None:
            self._seen = torch.zeros_like(logits, dtype=torch.bool)
            rows = [row for row, prompt in enumerate(self._prompts) for _ in prompt]
            self._seen[rows, [token for prompt in self._prompts for token in prompt]] = True
        weaker = torch.where(logits > 0, logits / self._penalty, logits * self._penalty)
        return torch.where(self._seen, weaker, logits)

    def settings(self, sampling: SamplingSettings) -> SamplingSettings:
        """The same for a burst, which notes itself what it writes."""
        return sampling if self._seen is None else replace(sampling, penalty=self._penalty, seen=self._seen)

    def add(self, tokens: Tensor) -> None:
        """These were written now, one per row."""
        if self._seen is not None:
            self._seen.scatter_(1, tokens[:, None], True)

    def select(self, rows: Sequence[int]) -> None:
        """Only these rows go on."""
        if self._seen is not None:
            self._seen = self._seen[list(rows)]


SAMPLING: tuple[type[SamplingConfig], ...] = (Greedy, Sample)
