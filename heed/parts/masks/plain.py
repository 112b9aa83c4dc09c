"""Masks by distance and by place: windows, prefixes, segments."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ...core.config import Count, Size
from ...core.contract import Reach
from ...core.stamps import Span
from .base import Mask


class Window(Mask):
    """A token looks at itself, `back` tokens before it and `ahead` after it: -ahead <= i - j <= back.

    "A window of w tokens" in the sense of Mistral and Longformer's decoders is `back = w - 1`.
    """

    kind: Literal["window"] = "window"
    back: Count  # tokens before it that a token sees
    ahead: Count = 0  # tokens after it that it sees

    @property
    def reach(self) -> Reach:
        return Reach(self.back, self.ahead)

    @property
    def uniform(self) -> bool:
        return True

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        gap = query - key
        return (gap <= self.back) & (gap >= -self.ahead)

    def covers(self, query: Span, key: Span) -> bool:
        return query.last - key.first <= self.back and key.last - query.first <= self.ahead

    def thinned(self, step: int) -> Mask:
        return Window(back=self.back // step, ahead=self.ahead // step)


class Prefix(Mask):
    """The first `length` tokens look at one another in both directions, the others look back (prefix LM)."""

    kind: Literal["prefix"] = "prefix"
    length: Size  # tokens of the prefix

    @property
    def reach(self) -> Reach:
        return Reach(None, self.length - 1)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) | (key < self.length)


class Segments(Mask):
    """A token looks at its own segment of `length` tokens and at `memory` tokens before that segment.

    With `& Causal()` this is what a token of Transformer-XL sees.
    """

    kind: Literal["segments"] = "segments"
    length: Size  # tokens of a segment
    memory: Count = 0  # tokens before the segment that are seen, too

    @property
    def reach(self) -> Reach:
        return Reach(self.length - 1 + self.memory, self.length - 1)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        begin = query // self.length * self.length
        return (key >= begin - self.memory) & (key < begin + self.length)
