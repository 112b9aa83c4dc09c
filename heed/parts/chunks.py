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

from ..core.config import Config, Count, Size


class Chunks(Config):
    """How a row is cut: into chunks of `length` tokens that look `before` chunks back and `after` ahead.

    A row is filled up with empty places to a multiple of `multiple`, and to at least `filled` places.
    """

    length: Size = 4
    before: Count = 1
    after: Count = 0
    multiple: Size | None = None  # of `length`; None = one chunk
    filled: Count = 0

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
class Ring:
    """What the tokens of rings got from their chunks."""

    y: Tensor  # [S, L, e] zeros for who sees nothing
    total: Tensor  # [S, L] the logarithm of what the softmax divided by; -inf for who sees nothing
    weight: Tensor  # [S, chunks, c, k]
    key: Tensor  # [S, chunks, k] the places that these weights are about


def around(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    order: Tensor,
    near: Tensor,
    *,
    causal: bool,
    itself: bool,
    dropout: float,
) -> Ring:
    """Softmax attention of every chunk over its neighbours [S, chunks, *], scores q·k. [S, L, d] three times.

    `order` [S, L] is -1 at empty places. A place that is a neighbour twice counts twice.
    """
    rings, chunks, _ = near.shape
    length = query.shape[1] // chunks
    place = (near[..., None] * length + torch.arange(length, device=near.device)).flatten(2)  # [S, chunks, k]
    ring = torch.arange(rings, device=near.device)[:, None, None]
    asks, stands = order.view(rings, chunks, length, 1), order[ring, place][:, :, None]
    visible = (asks >= 0) & (stands >= 0)
    if causal:
        visible = visible & (stands <= asks)
    if not itself:
        visible = visible & (stands != asks)
    score = query.view(rings, chunks, length, -1) @ key[ring, place].mT  # [S, chunks, c, k]
    blind = ~visible.any(-1)
    total = score.masked_fill(~(visible | blind[..., None]), -torch.inf).logsumexp(-1)
    weight = (score - total[..., None]).exp().masked_fill(~visible, 0)
    dropped = F.dropout(weight, dropout) if dropout else weight
    y = (dropped @ value[ring, place]).flatten(1, 2)
    return Ring(y, total.masked_fill(blind, -torch.inf).flatten(1), weight, place)
