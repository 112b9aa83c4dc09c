"""A call over equal tokens: whatever then differs from place to place knows about places.

Queries, keys and scores of such a call tell whether a module has positions, of which kind they are, and whether what
was projected is still in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .foreign.words import Role
from .reference import distance
from .subject import Subject
from .trace import Trace

MANY = 48  # tokens: far enough that tables in half precision show
SHOWN = 1e3  # scores beyond this are those of a mask


@dataclass(frozen=True)
class Equal:
    """What one call over equal tokens did."""

    tokens: int
    trace: Trace
    crossed: bool

    @property
    def flat(self) -> bool:
        """Whether a first projection of equal tokens is equal: then no place was added before it."""
        made = [p.made for p in self.trace.projections if p.made.shape[-2:-1] == (self.tokens,)][:4]
        alike = any(distance(part, part[..., :1, :].expand_as(part)) <= 1e-9 for part in made)
        return alike or not self.trace.projections

    @property
    def met(self) -> tuple[Tensor, Tensor] | None:
        """Queries and keys as they meet. [..., T, d] each"""
        if self.crossed:
            return None
        for fused in self.trace.fused[:1]:
            query, key = fused.query.detach(), fused.key.detach()
            many = query.shape[1] // max(key.shape[1], 1)  # heads that share one
            if query.dim() != 4 or query.shape[-2:] != key.shape[-2:] or query.shape[1] != many * key.shape[1]:
                return None
            return query, key.repeat_interleave(many, 1)
        for one, other, made in self.trace.products:
            if made.shape[-2:] == (self.tokens, self.tokens) and one.shape[-2] == self.tokens:
                return one.detach(), other.mT.detach()
        return None

    @property
    def values(self) -> Tensor | None:
        """Values as they are summed. [..., T, d]"""
        if self.trace.fused:
            return self.trace.fused[0].value.detach()
        last = [other for one, other, _ in self.trace.products if one.shape[-1] == self.tokens == other.shape[-2]]
        return last[-1].detach() if last else None

    @property
    def scores(self) -> Tensor | None:
        """What went into the softmax, head by head; what is hidden is no number. [H, T, T]"""
        for seen in self.trace.softmaxes:
            if seen.scores.shape[-2:] == (self.tokens, self.tokens):
                found = seen.scores.detach().double().reshape(-1, self.tokens, self.tokens)
                return found.masked_fill(~(found.abs() < SHOWN), float("nan"))
        return None

    @property
    def across(self) -> bool:
        """Whether a softmax runs along another axis than that of the keys, which stands last."""
        shapes = [(s.scores.dim() - 1 - s.axis, s.scores.shape[-2:]) for s in self.trace.softmaxes]
        return any(axis > 0 and shape == (self.tokens, self.tokens) for axis, shape in shapes)


def equal(subject: Subject) -> Equal | None:
    """The call over equal tokens, made once; None if it cannot be made."""
    if "_equal" not in subject.__dict__:
        subject.__dict__["_equal"] = called(subject)
    kept: Equal | None = subject.__dict__["_equal"]
    return kept


def called(subject: Subject, times: float = 1.0) -> Equal | None:
    """The same, of tokens so many times as large."""
    many = max(min(MANY, subject.sizes.longest - 1), subject.sizes.tokens)
    x = times * subject.stream(tokens=1, rows=1).expand(-1, many, -1).contiguous()
    source = x.flip(2).contiguous() if subject.crossed else None
    try:
        _, trace = subject.watched(x, source)
    except Exception:  # a text of another length
        return None
    return Equal(many, trace, subject.crossed)


def places(subject: Subject) -> tuple[bool, bool]:
    """Whether places may turn queries and keys, and whether they may be added to scores: True unless seen otherwise."""
    seen = equal(subject)
    if seen is None or subject.crossed:
        return True, True
    met, score = seen.met, seen.scores
    still = met is not None and not any(moves(part) for part in met)
    turned = met is None or (not still and all(length_kept(part) for part in met))
    if score is None or not seen.flat:
        return turned, True
    spread = _most(score) - _least(score)
    return turned, float(spread.max()) > 1e-9 * max(1.0, float(score.nan_to_num(0.0).abs().max()))


def rotates(subject: Subject) -> bool:
    """Whether there is a rotation in it: sines and cosines, computed, kept or given, or vectors that only turn."""
    if subject.has(Role.TABLES):
        return True
    seen = equal(subject)
    if seen is not None and seen.trace.waves:
        return True
    if any(_waves(table) for table in _tables(subject)):
        return True
    met = None if seen is None or subject.crossed else seen.met
    return met is not None and any(moves(part) for part in met) and all(length_kept(part) for part in met)


def _tables(subject: Subject) -> Iterator[Tensor]:
    """Tensors that a module keeps and does not learn."""
    for part in () if subject.module is None else subject.module.modules():
        for value in (*part._buffers.values(), *vars(part).values()):
            if isinstance(value, Tensor):
                yield value


def _waves(table: Tensor) -> bool:
    """Whether a table is one of cosines, of sines, or of both: at place 0 they are 1 and 0, elsewhere between."""
    if table.is_complex():
        return True
    if not table.is_floating_point() or table.dim() < 2 or not table.numel():
        return False
    rows = table.reshape(-1, table.shape[-1])
    still = bool(((rows[0] == 0) | (rows[0] == 1)).all())
    between = bool(((rows != 0) & (rows.abs() != 1)).any())
    return still and between and float(rows.abs().max()) <= 1


def moves(x: Tensor) -> bool:
    """Whether the vectors of equal tokens differ from place to place."""
    return distance(x, x[..., :1, :].expand_as(x)) > 1e-12


def length_kept(x: Tensor) -> bool:
    """Whether every token's vector is equally long, as a rotation leaves it; coarse tables stretch it a little."""
    length = x.double().norm(dim=-1)
    return distance(length, length[..., :1].expand_as(length)) < 0.02


def from_itself(score: Tensor) -> Tensor:
    """Scores counted from a token's own: what is added for all keys of a query, a softmax does not see. [H, T, T]"""
    own = score.diagonal(dim1=-2, dim2=-1)[..., None]
    return score - own if bool(own.isfinite().all()) else score


def uneven(score: Tensor, largest: float | None = None) -> float:
    """How far scores at one distance are apart at most, relative to the largest; hidden ones are NaN. [H, T, T]"""
    worst, size = 0.0, float(score.nan_to_num(0.0).abs().max()) if largest is None else largest
    for gap in range(score.shape[-1] - 1):
        along = score.diagonal(-gap, -2, -1).flatten(0, -2)
        worst = max(worst, float((_most(along[:, None]) - _least(along[:, None])).max()))
    return worst / max(size, 1e-30)


def _most(score: Tensor) -> Tensor:
    return score.nan_to_num(-1e30).flatten(1).amax(1)


def _least(score: Tensor) -> Tensor:
    """Of each head; where nothing is shown, no larger than the most."""
    shown = score.nan_to_num(1e30).flatten(1).amin(1)
    return torch.minimum(shown, _most(score)).where(shown < 1e29, _most(score))
