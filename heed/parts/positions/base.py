"""What a position code is: it adds to the input, it rotates queries and keys, or it adds a term to the scores.

All of them read `position`, the place of a token in the text, from its stamps; columns are not counted. So a code gives
the same numbers for a whole sequence, for its pieces, for ragged rows and for the blocks of a window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.config import Config
from ...core.errors import InputError
from ...core.stamps import Stamps, one_row
from ..attention.sdpa import Term

How = Literal["adds", "rotates", "scores", "nothing"]


class PositionConfig(Config):
    """How to build a position code. Every code nests one."""

    how: ClassVar[How]
    paper: ClassVar[str] = ""

    @classmethod
    def samples(cls) -> tuple[Self, ...]:
        """Small configurations that together use every option: what the laws are run over.

        They fit 4 heads of size 6, a stream of width 24 and at least 64 positions.
        """
        return (cls(),)


class AddedConfig(PositionConfig):
    """How to build a code that is added to the input."""

    how: ClassVar[How] = "adds"

    @abstractmethod
    def build(self, width: int) -> Adds:
        """The code for a stream of this width."""


class RelativeConfig(PositionConfig):
    """How to build a code that acts between queries and keys."""

    @abstractmethod
    def build(self, heads: int, size: int) -> Relates:
        """The code for this many heads of this size."""


class Adds(nn.Module, ABC):
    """A code that is added to the input of the first layer: x_t + code(position of t)."""

    longest: int | None = None  # positions it has a code for; None = any number

    @abstractmethod
    def code(self, position: Tensor) -> Tensor:
        """One vector per token. [B, T] -> [B, T, width]"""

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """`x` [B, T, width] with the code of every token added to it."""
        (position,) = one_row(position)
        if position.shape[0] <= 1:
            return x + self.code(position).to(x)
        places, index = distinct(position, room=position.numel())  # ragged rows are at the same places mostly
        return x + F.embedding(index, self.code(places[None])[0].to(x))

    if TYPE_CHECKING:  # nn.Module's own __call__ is untyped

        def __call__(self, x: Tensor, position: Tensor) -> Tensor: ...


class Relates(nn.Module):
    """A code that acts between queries and keys. The hooks here do nothing; a code overrides the ones it needs."""

    def turn(self, x: Tensor, where: Stamps) -> Tensor:
        """Queries or keys [B, T, H, d] turned by their own position, before the keys are remembered."""
        return x

    def turn_value(self, x: Tensor, where: Stamps) -> Tensor:
        """Values [B, T, K, d] turned by their own position (RoFormer, if asked for)."""
        return x

    def meet(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> tuple[Tensor, Tensor]:
        """Queries [B, T, H, d] and remembered keys [B, N, K, d], adjusted to one another when they are read."""
        return query, key

    def beside(self, first: Relates) -> Relates:
        """The code of a layer that shares with the first layer what there is to share: here, all of it."""
        return first

    @property
    def bias(self) -> Term | None:
        """What is added to the scaled scores: (query, key, their stamps) -> [B|1, H|1, T, N]. None = nothing."""
        return None


class Takes(Relates):
    """A code of which a query takes something beside the values. It needs the weights, so no fused kernel serves it."""

    @abstractmethod
    def taken(self, weight: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """What is added to the mean of the values. Weights [B, H, T, N] give [B, T, H, d]"""


class NoPosition(Relates):
    """No code at all. A causal model can still tell places apart by what each token sees (Haviv et al. 2022)."""

    class Config(RelativeConfig):
        """Nothing to choose."""

        how: ClassVar[How] = "nothing"
        paper: ClassVar[str] = "Haviv et al. 2022, arXiv 2203.16634"
        kind: Literal["none"] = "none"

        def build(self, heads: int, size: int) -> NoPosition:
            return NoPosition()


def gaps(where: Stamps, seen: Stamps) -> Tensor:
    """How far the query stands behind the key, i - j, for every pair. [B|1, T, N]"""
    query, key = one_row(where.position, seen.position)
    return query[:, :, None] - key[:, None, :]


def distinct(value: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """The different numbers in `value`, ascending, and for each of its elements which of them it is.

    Costly work is then done once per number. The numbers are a whole range (which may hold some that do not occur)
    where that has at most `room` of them, because sorting to find those that do would cost more.
    """
    if value.numel() == 0:
        return value.flatten(), value
    if value.is_meta:  # no numbers are there: as many as a text without gaps has
        return torch.arange(sum(value.shape[-2:]) - 1, device=value.device), torch.zeros_like(value)
    low, high = (int(end) for end in value.aminmax())
    if high - low < room:
        return torch.arange(low, high + 1, device=value.device), value - low
    found, index = torch.unique(value, return_inverse=True)
    return found, index


def must_fit(position: Tensor, limit: int, what: str, remedy: str, lowest: int = 0) -> None:
    """Raise unless every position lies in lowest .. limit-1."""
    if position.numel() == 0 or position.is_meta:
        return
    low, high = (int(end) for end in position.aminmax())
    if low < lowest or high >= limit:
        given = low if low < lowest else high
        raise InputError(f"position {given} is outside {lowest} to {limit - 1}, all that {what} covers; {remedy}")
