"""Positions that act on queries, keys and scores: they are relative, and so depend on distances alone."""

from __future__ import annotations

import torch
from torch import Tensor

from ..equal import Equal, called, equal, from_itself, length_kept, moves, rotates, uneven
from ..foreign.adapt import Ours
from ..outcome import Clue, Outcome, Sure
from ..reference import distance, slopes
from ..signs import NUDGED, Looks, looked, unbiased
from ..subject import Subject

FINE, MISMATCH = 1e-5, 3e-2  # float32 angles stay below the first, tables in half precision below the second


def shift(subject: Subject) -> Outcome:
    """Scores between equal tokens depend on their distance alone, where places act on queries, keys or scores."""
    if subject.crossed:
        return Outcome.moot("shift", "it looks at a source")
    seen = equal(subject)
    if seen is None or (seen.met is None and seen.scores is None):
        return Outcome.moot("shift", "its scores cannot be seen")
    looks = looked(subject)
    if looks is not None and looks.apart and len(looks.strayed) == 1 and _tabled(looks):
        words = f"scores of token {looks.strayed[0]} change with the query of token {NUDGED}: they are another's"
        return Outcome.broken("shift", words, Clue("relative-shift", Sure.LIKELY, words))
    if seen.met is not None and _turned(subject, seen, *seen.met):
        query, key = seen.met
        return _rotated(uneven((query.double() @ key.double().mT).flatten(0, -3)))
    return _added(subject, seen)


def _tabled(looks: Looks) -> bool:
    """Whether queries meet a table that has an entry for every distance."""
    size, tokens = None if looks.flow is None else looks.flow.size, looks.x.shape[1]
    return any(p.given.shape[-1] == size and p.made.shape[-1] >= tokens for p in looks.first.projections)


def _rotated(gap: float) -> Outcome:
    words = f"scores between equal tokens at equal distances differ by {gap:.1e} of the largest"
    if gap > MISMATCH:
        return Outcome.broken("shift", words, Clue("rope-mismatch", Sure.LIKELY, words), error=gap, bound=FINE)
    if gap > FINE:
        return Outcome.broken("shift", words, Clue("rope-precision", Sure.LIKELY, words), error=gap, bound=FINE)
    return Outcome.held("shift", "scores depend on the distance alone", gap, FINE)


def _turned(subject: Subject, seen: Equal, query: Tensor, key: Tensor) -> bool:
    """Whether queries or keys are turned by their place: they differ, and are as long, or linear in the stream."""
    if not moves(query) and not moves(key):
        return False
    return (length_kept(query) and length_kept(key)) or (
        rotates(subject) and seen.flat and query.shape[-1] == subject.sizes.head and _linear(subject)
    )


def _linear(subject: Subject) -> bool:
    """Whether a stream twice as large gives queries twice as large: nothing is added to them."""
    if subject.module is None or isinstance(subject.module, Ours):
        return False
    plain = unbiased(subject)
    one, two = called(plain), called(plain, times=2.0)
    if one is None or two is None or one.met is None or two.met is None:
        return False
    return all(distance(b, 2 * a) <= 1e-9 for a, b in zip(one.met, two.met, strict=True))


def _added(subject: Subject, seen: Equal) -> Outcome:
    """Something added to the scores: slopes of ALiBi, or learned distances."""
    if seen.scores is None or not seen.flat:
        return Outcome.moot("shift", "places act before the projections, or not at all")
    if seen.met is not None and any(moves(part) for part in seen.met):
        return Outcome.moot("shift", "places act on queries and keys, and are no rotation")
    score = from_itself(seen.scores)
    gap = uneven(score, float(seen.scores.nan_to_num(0.0).abs().max()))
    if gap > FINE and subject.meant_causal and not bool(subject.looks_ahead.any()):
        words = f"scores between equal tokens at equal distances differ by {gap:.1e} of the largest"
        return Outcome.broken("shift", words, Clue("relative-shift", Sure.LIKELY, words), error=gap, bound=FINE)
    if gap > FINE:
        return Outcome.moot("shift", "places act on the scores by more than their distance")
    found = _slopes(score)
    if found is None:
        return Outcome.held("shift", "scores depend on the distance alone", gap, FINE)
    return _judged(subject, found)


def _slopes(score: Tensor) -> Tensor | None:
    """By how much each head's scores fall with every step of distance; None if they do not fall by steps. [H]"""
    along = torch.stack([score.diagonal(-gap, -2, -1)[:, -1] for gap in range(score.shape[-1] - 1)], -1)  # [H, gaps]
    if not bool(torch.isfinite(along).all()):
        return None
    steps = along[:, :-1] - along[:, 1:]
    even = distance(steps, steps[:, :1].expand_as(steps)) <= 1e-6
    return steps[:, 0] if even and bool((steps[:, 0].abs() > 1e-6).any()) else None


def _judged(subject: Subject, found: Tensor) -> Outcome:
    heads = subject.sizes.heads
    right = slopes(heads)
    found = found[:heads]
    told = ", ".join(f"{value:.4g}" for value in found.tolist()[:6])
    if found.shape == right.shape and distance(found, right) <= FINE:
        return Outcome.held("shift", f"ALiBi with the paper's slopes: {told}")
    words = f"slopes of {heads} heads: {told}; the paper's: {', '.join(f'{v:.4g}' for v in right.tolist()[:6])}"
    learnt = subject.module is not None and any(p.numel() == heads for p in subject.module.parameters())
    if learnt:
        return Outcome.held("shift", words, 0.0, 0.0, Clue("alibi-slopes", Sure.CONVENTION, words))
    if bool((found < 0).any()):
        words += "; what is farther away counts more"
    return Outcome.broken("shift", words, Clue("alibi-slopes", Sure.LIKELY, words))
