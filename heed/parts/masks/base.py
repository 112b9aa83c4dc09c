"""What a mask is, the plainest of them, how several make one, and a mask applied to tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import gcd, lcm
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import MinLen
from torch import Tensor

from ...core.config import Config, OneOf
from ...core.contract import Reach
from ...core.stamps import Span, Stamps, one_row


class Layout(NamedTuple):
    """Which block may look at which, for each of several patterns."""

    size: int  # tokens per block
    table: Tensor  # [P, n, n]


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

    @property
    def modulus(self) -> int:
        """Tokens meet only those a multiple of this many away."""
        return 1

    def thinned(self, step: int) -> Mask | None:
        """The same rule among every `step`-th token, counted in steps; None if it is no rule about distances."""
        return None

    @property
    def terms(self) -> tuple[Mask, ...]:
        """Rules that allow together what this one allows; where they overlap, no matter."""
        return (self,)

    @property
    def layout(self) -> Layout | None:
        """Blocks outside of which it allows nothing, if it is drawn in blocks."""
        return None

    def columns(self, keys: int) -> Tensor | None:
        """Of the keys of orders 0 .. keys-1, all that any query sees, if they are few: for each pattern. [P, m]"""
        return None

    def check(self, query: Span, key: Span) -> None:
        """Raise if the rule does not say anything about tokens that far."""

    def __call__(self, query: Stamps, key: Stamps) -> Sight:
        return Sight(self, query, key)

    def __and__(self, other: Mask) -> And:
        return And(parts=(*_parts(And, self), *_parts(And, other)))

    def __or__(self, other: Mask) -> Or:
        return Or(parts=(*_parts(Or, self), *_parts(Or, other)))

    def __sub__(self, other: Mask) -> Without:
        return Without(mask=self, hidden=other)


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

    def shown(self, heads: int) -> Tensor:
        """Every pair, written out only where it must be: if the mask hides no token, padding is all there is to hide.

        Padding as a query sees something then, which is blanked. [B or 1, heads or 1, T or 1, N]
        """
        if self.mask.covers(self.query.span, self.key.span) and self.key.span.run:
            self.mask.check(self.query.span, self.key.span)
            return one_row(self.key.order)[0][:, None, None, :] >= 0
        return self.pairs(heads)

    @property
    def whole(self) -> bool:
        """Known without looking: every token sees every token."""
        if self.key.span.padded:
            return False
        self.mask.check(self.query.span, self.key.span)
        return self.mask.covers(self.query.span, self.key.span)

    @property
    def clear(self) -> bool:
        """Known without looking: looking only back meets no padding. There is none, or it ends both rows alike."""
        return not self.key.span.padded or self.query.order is self.key.order

    @property
    def triangle(self) -> bool:
        """Known without looking: the plain causal triangle over one run of tokens."""
        query, key = self.query.span, self.key.span
        same = query.run and key.run and query.first == key.first and self.query.shape == self.key.shape
        return same and self.clear and isinstance(self.mask, Causal)


class Padding(Mask):
    """No token looks at padding, and padding looks at none. Implied by every mask."""

    kind: Literal["padding"] = "padding"

    @property
    def reach(self) -> Reach:
        return Reach(None, None)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query >= 0) & (key >= 0)

    def covers(self, query: Span, key: Span) -> bool:
        return not key.padded

    def thinned(self, step: int) -> Mask:
        return self


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

    @property
    def uniform(self) -> bool:
        return True

    def thinned(self, step: int) -> Mask:
        return self


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

    @property
    def uniform(self) -> bool:
        return True

    def thinned(self, step: int) -> Mask:
        return self


class Combined(Mask):
    """Several masks as one."""

    parts: Annotated[tuple[AnyMask, ...], MinLen(1)]  # the masks

    @property
    def uniform(self) -> bool:
        return all(part.uniform for part in self.parts)

    def check(self, query: Span, key: Span) -> None:
        for part in self.parts:
            part.check(query, key)

    def thinned(self, step: int) -> Mask | None:
        parts = [part.thinned(step) for part in self.parts]
        return None if None in parts else type(self).of([part for part in parts if part is not None])

    @classmethod
    def of(cls, parts: Sequence[Mask]) -> Mask:
        """These parts as one mask."""
        return cls(parts=tuple(parts))


class And(Combined):
    """Only what all parts allow."""

    kind: Literal["and"] = "and"

    @classmethod
    def of(cls, parts: Sequence[Mask]) -> Mask:
        """Without those that allow everything."""
        kept = [part for part in parts if not isinstance(part, Whole)]
        return cls(parts=tuple(kept)) if len(kept) > 1 else next(iter(kept), Whole())

    @property
    def reach(self) -> Reach:
        return reduce(Reach.within, (part.reach for part in self.parts))

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return reduce(torch.logical_and, (part.allows(query, key) for part in self.parts))

    def covers(self, query: Span, key: Span) -> bool:
        return all(part.covers(query, key) for part in self.parts)

    @property
    def modulus(self) -> int:
        return lcm(*(part.modulus for part in self.parts))

    @property
    def layout(self) -> Layout | None:
        return next((part.layout for part in self.parts if part.layout is not None), None)

    @property
    def terms(self) -> tuple[Mask, ...]:
        """By the law of distribution: (a | b) & c = (a & c) | (b & c)."""
        choices = list(product(*(part.terms for part in self.parts)))
        return (self,) if len(choices) == 1 else tuple(And(parts=chosen) for chosen in choices)


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

    @property
    def modulus(self) -> int:
        return gcd(*(part.modulus for part in self.parts))

    @property
    def terms(self) -> tuple[Mask, ...]:
        return tuple(term for part in self.parts for term in part.terms)


class Without(Mask):
    """What one mask allows and another does not: `mask - hidden`."""

    kind: Literal["without"] = "without"
    mask: AnyMask  # what is allowed
    hidden: AnyMask  # what of it is not

    @property
    def reach(self) -> Reach:
        return self.mask.reach

    @property
    def uniform(self) -> bool:
        return self.mask.uniform and self.hidden.uniform

    @property
    def modulus(self) -> int:
        return self.mask.modulus

    @classmethod
    def of(cls, mask: Mask, hidden: Mask) -> Mask:
        """`mask - hidden`"""
        return cls(mask=mask, hidden=hidden)

    def thinned(self, step: int) -> Mask | None:
        mask, hidden = self.mask.thinned(step), self.hidden.thinned(step)
        return None if mask is None or hidden is None else mask - hidden

    @property
    def terms(self) -> tuple[Mask, ...]:
        return tuple(term - self.hidden for term in self.mask.terms)

    def check(self, query: Span, key: Span) -> None:
        self.mask.check(query, key)
        self.hidden.check(query, key)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return self.mask.allows(query, key) & ~self.hidden.allows(query, key)


def _parts(kind: type[And | Or], mask: Mask) -> tuple[Mask, ...]:
    return mask.parts if isinstance(mask, kind) else (mask,)


def _table() -> tuple[type[Mask], ...]:
    from . import MASKS  # the whole package is there by the time that it is asked for

    return MASKS


AnyMask = Annotated[Mask, OneOf(_table)]
