"""Tokens in chunks that form a ring: each chunk looks at itself and at some chunks before and after it.

The chunk before the first one is the last one. How long the ring of a row is depends on that row alone, never on how
far a batch is padded. Costs O(n·c) for n tokens in chunks of c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor

from ...core.config import Config, Count, Size


class Chunks(Config):
    """How a row is cut: into chunks of `length` tokens that look `before` chunks back and `after` ahead.

    A row is filled up with empty places to a multiple of `multiple`, and to at least `filled` places.
    """

    length: Size = 4  # tokens of a chunk
    before: Count = 1  # chunks before its own that a token sees
    after: Count = 0  # chunks after it
    multiple: Size | None = None  # of `length`; None = one chunk
    filled: Count = 0  # places that a row has at least

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.multiple is not None and self.multiple % self.length:
            raise ValueError(f"multiple is {self.multiple}, which {self.length} does not divide; use whole chunks")
        return self

    def places(self, lengths: Tensor) -> Tensor:
        """How many places rows of so many tokens have, at least one chunk."""
        step = self.multiple or self.length
        return -(-lengths.clamp(min=max(self.filled, 1)) // step) * step

    def neighbours(self, chunks: int, ring: Tensor) -> Tensor:
        """Which chunks each one looks at, in rings of so many. A step beyond the whole ring is no step.

        [S] -> [S, chunks, before + 1 + after]
        """
        step = torch.arange(-self.before, self.after + 1, device=ring.device)
        ring = ring[:, None, None]
        step = torch.where(step.abs() < ring, step, 0)
        own = torch.arange(chunks, device=ring.device)[:, None]
        return torch.where(own < ring, (own + step) % ring, own)


@dataclass(frozen=True, eq=False)
class Laid:
    """How tokens are laid out in rings, and which chunks each chunk looks at."""

    order: Tensor  # [S, L] of the token at each place; -1 = an empty one
    near: Tensor  # [S, chunks, *]

    @property
    def keys(self) -> Tensor:
        """The places that the tokens of each chunk look at. [S, chunks, k]"""
        length = self.order.shape[1] // self.near.shape[1]
        return (self.near[..., None] * length + torch.arange(length, device=self.near.device)).flatten(2)

    def at(self, keys: Tensor, x: Tensor) -> Tensor:
        """What stands at these places. [S, chunks, k], [S, L, ...] -> [S, chunks, k, ...]"""
        return x[torch.arange(len(keys), device=keys.device)[:, None, None], keys]

    def scores(self, keys: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """q·k of every token and the places that it looks at. [S, L, d] twice -> [S, chunks, c, k]"""
        return query.view(*self.near.shape[:2], -1, query.shape[-1]) @ self.at(keys, key).mT

    def visible(self, keys: Tensor, *, causal: bool, itself: bool) -> Tensor:
        """Which of the places that it looks at hold a token that each token may see. [S, chunks, c, k]"""
        asks, stands = self.order.view(*self.near.shape[:2], -1, 1), self.at(keys, self.order)[:, :, None]
        visible = (asks >= 0) & (stands >= 0)
        if causal:
            visible = visible & (stands <= asks)
        return visible if itself else visible & (stands != asks)


@dataclass(frozen=True, eq=False)
class Ring:
    """What the tokens of rings got from their chunks."""

    y: Tensor  # [S, L, e] zeros for a token that sees nothing
    total: Tensor  # [S, L] the logarithm of what the softmax divided by; -inf for a token that sees nothing
    weight: Tensor  # [S, chunks, c, k]
    key: Tensor  # [S, chunks, k] the places that these weights are about


def around(
    query: Tensor, key: Tensor, value: Tensor, laid: Laid, *, causal: bool, itself: bool, dropout: float
) -> Ring:
    """Softmax attention of every chunk over its neighbours, scores q·k. [S, L, d] three times.

    A place that is a neighbour twice counts twice.
    """
    keys = laid.keys
    visible = laid.visible(keys, causal=causal, itself=itself)
    return attended(laid.scores(keys, query, key), visible, laid.at(keys, value), keys, dropout)


def attended(score: Tensor, visible: Tensor, value: Tensor, keys: Tensor, dropout: float) -> Ring:
    """The softmax over visible scores [S, chunks, c, k], and the values [S, chunks, k, e] that it weighs."""
    blind = ~visible.any(-1, keepdim=True)
    total = score.masked_fill(~(visible | blind), -torch.inf).logsumexp(-1)
    weight = (score - total[..., None]).exp().masked_fill(~visible, 0)
    dropped = F.dropout(weight, dropout) if dropout else weight
    y = (dropped @ value).flatten(1, 2)
    return Ring(y, total.masked_fill(blind[..., 0], -torch.inf).flatten(1), weight, keys)
