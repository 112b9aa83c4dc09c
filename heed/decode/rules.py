"""When a row ends and what it may hold: the same rules for every way of choosing tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ..core.errors import InputError
from .constraints import Constraint, restrict
from .stop import Stop


@dataclass(frozen=True)
class Rules:
    """At most `limit` tokens, until one of `ends` or a stop string; of what is allowed."""

    limit: int
    ends: frozenset[int]
    stop: Stop | None = None
    constraint: Constraint | None = None

    @classmethod
    def of(
        cls, limit: int, end: int | Collection[int] | None, stop: Stop | None, constraint: Constraint | None
    ) -> Rules:
        """From what a caller gives."""
        if limit < 1:
            raise InputError(f"max_new_tokens is {limit}; at least 1 token must be generated")
        ends = () if end is None else (end,) if isinstance(end, int) else end
        return cls(limit, frozenset(ends), stop, constraint)

    def fit(self, logits: Tensor) -> None:
        """Raise if an end token is none of the vocabulary: it would never come."""
        strange = sorted(end for end in self.ends if not 0 <= end < logits.shape[1])
        if strange:
            raise InputError(f"end tokens {strange} are not in the vocabulary, which is 0 to {logits.shape[1] - 1}")

    def allowed(self, logits: Tensor, rows: Iterable[tuple[int, Sequence[int]] | None]) -> Tensor:
        """Logits with -inf at what is not allowed. `rows` has the prompt and the answer so far; None = all may come."""
        ask = self.constraint
        if ask is None:
            return logits
        return restrict(logits, [None if row is None else ask(row[0], tuple(row[1])) for row in rows])
