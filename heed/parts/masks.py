"""Which token may look at which: masks are values that combine with `&` and `|` and read `order`, never indices.

A mask says how far it reaches (so a window needs to remember only its window) and which pairs it allows. Whatever it
allows, nobody looks at padding: `Padding` is part of every mask.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Annotated, Literal, Self

import torch
from annotated_types import MinLen
from pydantic import model_validator
from torch import Tensor

from ..core.config import Config, Count, OneOf, Size, Text
from ..core.contract import Reach
from ..core.errors import InputError
from ..core.stamps import Span, Stamps, one_row


class Mask(Config):
    """A rule on pairs of orders."""

    @property
    @abstractmethod
    def reach(self) -> Reach:
        """How far back and ahead a token looks at most."""

    @abstractmethod
    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """True where a token of order `query` may look at one of order `key`.

        The two broadcast: [B, 1, T, 1] and [B, 1, 1, N] give [B, P, T, N], where P is 1 or the number of patterns
        that the heads take in turn.
        """

    def covers(self, query: Span, key: Span) -> bool:
        """Whether every pair of these is allowed, as far as their spans tell: then no mask is needed at all."""
        return False

    @property
    def uniform(self) -> bool:
        """Whether the rule depends on the distance only: then one block of a band is like the next."""
        return False

    def check(self, query: Span, key: Span) -> None:
        """Raise if the rule does not say anything about tokens that far."""

    def __call__(self, query: Stamps, key: Stamps) -> Sight:
        return Sight(self, query, key)

    def __and__(self, other: Mask) -> Mask:
        return And(parts=(*_parts(And, self), *_parts(And, other)))

    def __or__(self, other: Mask) -> Mask:
        return Or(parts=(*_parts(Or, self), *_parts(Or, other)))


@dataclass(frozen=True, eq=False)
class Sight:
    """A mask applied to the tokens of a call: who sees whom here and now."""

    mask: Mask
    query: Stamps
    key: Stamps

    def pairs(self, heads: int) -> Tensor:
        """Every pair written out. [B or 1, heads or 1, T, N]"""
        self.mask.check(self.query.span, self.key.span)
        query, key = one_row(self.query.order, self.key.order)
        query, key = query[:, None, :, None], key[:, None, None, :]
        allowed = self.mask.allows(query, key) & PADDING.allows(query, key)
        patterns = allowed.shape[1]
        return allowed if patterns in (1, heads) else allowed[:, torch.arange(heads, device=allowed.device) % patterns]

    @property
    def whole(self) -> bool:
        """Known without looking: everybody sees everybody."""
        if self.key.span.padded:
            return False
        self.mask.check(self.query.span, self.key.span)
        return self.mask.covers(self.query.span, self.key.span)

    @property
    def clear(self) -> bool:
        """Known without looking: who looks only back meets no padding. There is none, or it ends both rows alike."""
        return not self.key.span.padded or self.query.order is self.key.order

    @property
    def triangle(self) -> bool:
        """Known without looking: the plain causal triangle over one run of tokens."""
        query, key = self.query.span, self.key.span
        same = query.run and key.run and query.first == key.first and self.query.shape == self.key.shape
        return same and self.clear and isinstance(self.mask, Causal)


class Padding(Mask):
    """Nobody looks at padding, and padding looks at nobody. Implied by every mask."""

    kind: Literal["padding"] = "padding"

    @property
    def reach(self) -> Reach:
        return Reach(None, None)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query >= 0) & (key >= 0)

    def covers(self, query: Span, key: Span) -> bool:
        return not key.padded


PADDING = Padding()


class Whole(Mask):
    """Every token looks at every token (an encoder)."""

    kind: Literal["whole"] = "whole"

    @property
    def reach(self) -> Reach:
        return Reach(None, None)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.ones_like(query * key, dtype=torch.bool)

    def covers(self, query: Span, key: Span) -> bool:
        return True


class Causal(Mask):
    """A token looks at itself and at what was revealed before it: j <= i."""

    kind: Literal["causal"] = "causal"

    @property
    def reach(self) -> Reach:
        return Reach(None, 0)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    def covers(self, query: Span, key: Span) -> bool:
        return key.last <= query.first


class Window(Mask):
    """A token looks at itself, `back` tokens before it and `ahead` after it: -ahead <= i - j <= back.

    "A window of w tokens" in the sense of Mistral and Longformer's decoders is `back = w - 1`.
    """

    kind: Literal["window"] = "window"
    back: Count
    ahead: Count = 0

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


class Atrous(Mask):
    """A token looks at those a multiple of `step` away: i - j ≡ 0 (mod step)."""

    kind: Literal["atrous"] = "atrous"
    step: Size

    @property
    def reach(self) -> Reach:
        return Reach(None, None)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key) % self.step == 0


class Sparse(Mask):
    """Local and atrous at once: |i - j| <= step, or i - j ≡ 0 (mod step)."""

    kind: Literal["sparse"] = "sparse"
    step: Size

    @property
    def reach(self) -> Reach:
        return Reach(None, None)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        gap = query - key
        return (gap.abs() <= self.step) | (gap % self.step == 0)


class Strided(Mask):
    """The strided half of the Sparse Transformer (Child et al. 2019): j <= i and i - j ≡ 0 (mod stride).

    Its other half is a `Window`; the paper gives the two to different heads, or merges them with `|`.
    """

    kind: Literal["strided"] = "strided"
    stride: Size

    @property
    def reach(self) -> Reach:
        return Reach(None, 0)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & ((query - key) % self.stride == 0)


class Fixed(Mask):
    """The fixed pattern of the Sparse Transformer (Child et al. 2019), in the block form of its authors' code.

    Tokens come in blocks of `block`, blocks in groups of `context / block`. A token looks back over its own group, and
    at `summaries` summary blocks of every group before it: the last ones for the first pattern, those before them for
    the second, and so on over `patterns` patterns, which the heads take in turn.
    """

    kind: Literal["fixed"] = "fixed"
    context: Size
    block: Size = 1
    summaries: Size = 1
    patterns: Size = 1

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.context % self.block:
            raise ValueError(f"context {self.context} is not a multiple of block {self.block}")
        if self.summaries * self.patterns > self.context // self.block:
            raise ValueError(
                f"{self.patterns} patterns of {self.summaries} summary blocks need a context of at least "
                f"{self.summaries * self.patterns * self.block}, not {self.context}"
            )
        return self

    @property
    def reach(self) -> Reach:
        return Reach(None, 0)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        size = self.context // self.block
        own = query // self.context == key // self.context
        place = key // self.block % size
        last = size - 1 - self.summaries * torch.arange(self.patterns, device=key.device)[:, None, None]  # [P, 1, 1]
        summary = (place <= last) & (place > last - self.summaries)
        return (key <= query) & (own | summary)


class Prefix(Mask):
    """The first `length` tokens look at one another in both directions, the others look back (prefix LM)."""

    kind: Literal["prefix"] = "prefix"
    length: Size

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
    length: Size
    memory: Count = 0

    @property
    def reach(self) -> Reach:
        return Reach(self.length - 1 + self.memory, self.length - 1)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        begin = query // self.length * self.length
        return (key >= begin - self.memory) & (key < begin + self.length)


class Blocks(Mask):
    """A pattern given block by block: `layouts[p][i][j] == "1"` lets block i look at block j.

    Several layouts are patterns that the heads take in turn.
    """

    kind: Literal["blocks"] = "blocks"
    size: Size
    layouts: tuple[tuple[Text, ...], ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.layouts or not self.layouts[0]:
            raise ValueError("a block pattern needs at least one layout of at least one row, such as (('1',),)")
        count = len(self.layouts[0])
        for row in (row for layout in self.layouts for row in layout):
            if len(row) != count or set(row) - {"0", "1"}:
                raise ValueError(
                    f"{row!r} is not a row of {count} characters 0 or 1; layouts are square and equal in size"
                )
        if any(len(layout) != count for layout in self.layouts):
            raise ValueError(f"every layout must have {count} rows, as the first one has")
        return self

    @cached_property
    def reach(self) -> Reach:
        gaps = [
            i - j for layout in self.layouts for i, row in enumerate(layout) for j, on in enumerate(row) if on == "1"
        ]
        back, ahead = max([*gaps, 0]), max([-gap for gap in gaps] + [0])
        return Reach(back * self.size + self.size - 1, ahead * self.size + self.size - 1)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        table = self._table.to(key.device)
        pattern = torch.arange(len(table), device=key.device)[:, None, None]
        return table[pattern, query.clamp(min=0) // self.size, key.clamp(min=0) // self.size]

    @cached_property
    def _table(self) -> Tensor:  # [P, n, n]
        return torch.tensor([[[on == "1" for on in row] for row in layout] for layout in self.layouts])

    def check(self, query: Span, key: Span) -> None:
        limit = len(self.layouts[0]) * self.size
        if max(query.last, key.last) >= limit:
            raise InputError(
                f"the block pattern covers {limit} tokens, but token {max(query.last, key.last)} was given; "
                f"give layouts with more rows, or blocks larger than {self.size}"
            )


class Combined(Mask):
    """Several masks as one."""

    parts: Annotated[tuple[AnyMask, ...], MinLen(1)]

    @property
    def uniform(self) -> bool:
        return all(part.uniform for part in self.parts)

    def check(self, query: Span, key: Span) -> None:
        for part in self.parts:
            part.check(query, key)


class And(Combined):
    """Only what all parts allow."""

    kind: Literal["and"] = "and"

    @property
    def reach(self) -> Reach:
        return reduce(Reach.within, (part.reach for part in self.parts))

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return reduce(torch.logical_and, (part.allows(query, key) for part in self.parts))

    def covers(self, query: Span, key: Span) -> bool:
        return all(part.covers(query, key) for part in self.parts)


class Or(Combined):
    """What any part allows."""

    kind: Literal["or"] = "or"

    @property
    def reach(self) -> Reach:
        return reduce(Reach.beside, (part.reach for part in self.parts))

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return reduce(torch.logical_or, (part.allows(query, key) for part in self.parts))

    def covers(self, query: Span, key: Span) -> bool:
        return any(part.covers(query, key) for part in self.parts)


MASKS: tuple[type[Mask], ...] = (Whole, Causal, Window, Atrous, Sparse, Strided, Fixed, Prefix, Segments, Blocks)
MASKS += (Padding, And, Or)
AnyMask = Annotated[Mask, OneOf(lambda: MASKS)]
for combined in (Combined, And, Or):
    combined.model_rebuild()


def _parts(kind: type[And | Or], mask: Mask) -> tuple[Mask, ...]:
    return mask.parts if isinstance(mask, kind) else (mask,)
