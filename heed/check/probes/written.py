"""Where its projections can be seen: which form of attention it is, right or wrong, to the last digit."""

from __future__ import annotations

import torch
from torch import Tensor

from ..inside import Core, Match, core, matches
from ..outcome import Clue, Outcome, Sure
from ..reference import SCALES, distance, scale_number
from ..subject import Subject
from ..trace import traced

FINE, MISMATCH = 1e-5, 3e-2  # float32 angles stay below the first, tables in half precision below the second
FAULTY = {"width", "heads", "times", "tokens", "value"}  # scales that nobody means


def found(subject: Subject) -> tuple[Core | None, Match | None]:
    """What is inside, and the form that it equals; looked for once."""
    kept: tuple[Core | None, Match | None] | None = subject.__dict__.get("_inside")
    if kept is None:
        inner = core(subject)
        match = next(matches(subject, inner), None) if inner is not None else None
        kept = subject.__dict__["_inside"] = (inner, match)
    return kept


def equal(subject: Subject) -> Outcome:
    """Its output is that of attention written out with its own weights."""
    inner, match = found(subject)
    if inner is None:
        return Outcome.moot("written-out", "its projections cannot be seen")
    if match is None:
        return Outcome.moot("written-out", "it is none of the forms that are known here, right or wrong")
    if match.slug is None and match.blind:
        words = f"the output equals attention in which no token sees itself, to {match.error:.0e}"
        return Outcome.broken("written-out", words, Clue("excludes-self", Sure.CERTAIN, words))
    if match.slug is None:
        told = "; ".join(f"{name} {value}" for name, value in match.how.words())
        return Outcome.held(
            "written-out", f"equals attention written out: {told}", match.error, 1e-9, *_told(subject, match)
        )
    words = f"the output equals {match.words}, to {match.error:.0e}"
    return Outcome.broken("written-out", words, Clue(match.slug, Sure.CERTAIN, words), error=match.error)


def _told(subject: Subject, match: Match) -> tuple[Clue, ...]:
    """Conventions that differ from what was declared, or from what nearly everybody does."""
    clues = []
    if match.how.tiled:
        words = "query head h looks at key head h mod K; nearly everybody gives neighbouring heads the same key head"
        sure = Sure.CERTAIN if subject.declared.gqa == "interleave" else Sure.CONVENTION
        clues.append(Clue("gqa-order", sure, words))
    elif subject.declared.gqa == "tile":
        clues.append(Clue("gqa-order", Sure.CERTAIN, "neighbouring query heads share a key head; declared: tile"))
    if subject.declared.rope and match.how.rotation not in ("none", subject.declared.rope):
        words = f"rotary positions turn {match.how.rotation}; declared: {subject.declared.rope}"
        clues.append(Clue("rope-mismatch", Sure.CERTAIN, words))
    return tuple(clues)


def scale(subject: Subject) -> Outcome:
    """Scores are divided by √(size of a head), or scaled as was declared."""
    _, match = found(subject)
    if match is None or match.slug is not None:
        return Outcome.moot("scale", "the form of attention is not known")
    declared, name = subject.declared.scale, match.how.scale
    told = f"scores are scaled by {SCALES[name]}"
    if isinstance(declared, float | int):
        real = scale_number(name, subject.sizes.head, subject.sizes.heads, subject.sizes.tokens)
        if abs(real - declared) > 1e-6 * max(1.0, abs(declared)):
            words = f"{told} = {real:.6g}; declared: {declared:.6g}"
            return Outcome.broken("scale", words, Clue("wrong-scale", Sure.CERTAIN, words))
        return Outcome.held("scale", told)
    if declared is not None and declared != name:
        words = f"{told}; declared: {SCALES.get(declared, declared)}"
        return Outcome.broken("scale", words, Clue("wrong-scale", Sure.CERTAIN, words))
    if declared is None and name in FAULTY and subject.sizes.heads > 1:
        return Outcome.broken("scale", told, Clue("wrong-scale", Sure.LIKELY, told))
    if declared is None and name != "head":
        return Outcome.held("scale", told, 0.0, 0.0, Clue("wrong-scale", Sure.CONVENTION, told))
    return Outcome.held("scale", told)


def shift(subject: Subject) -> Outcome:
    """Scores between equal tokens depend on their distance alone, where queries and keys are only turned by place."""
    if subject.crossed:
        return Outcome.moot("shift", "it looks at a source")
    many = min(48, subject.sizes.longest - 1)
    x = subject.stream(tokens=1, rows=1).expand(-1, many, -1).contiguous()
    seen = _scored(subject, x)
    if seen is None:
        return Outcome.moot("shift", "its scores cannot be seen")
    query, key = seen
    turned = _length_kept(query) and _length_kept(key)
    if not turned or distance(query, query[..., :1, :].expand_as(query)) <= 1e-12:
        return Outcome.moot("shift", "it does not turn queries and keys by their place")
    gap = _uneven(query.double() @ key.double().mT)
    words = f"scores between equal tokens at equal distances differ by {gap:.1e} of the largest"
    if gap > MISMATCH:
        return Outcome.broken("shift", words, Clue("rope-mismatch", Sure.LIKELY, words), error=gap, bound=FINE)
    if gap > FINE:
        return Outcome.broken("shift", words, Clue("rope-precision", Sure.LIKELY, words), error=gap, bound=FINE)
    return Outcome.held("shift", "scores depend on the distance alone", gap, FINE)


def _scored(subject: Subject, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Queries and keys as they meet. [..., T, d] each"""
    with torch.enable_grad(), traced(subject.target) as trace:
        try:
            subject.call(x)
        except Exception:  # a text of another length
            return None
    if trace.fused:
        return trace.fused[0].query.detach(), trace.fused[0].key.detach()
    for one, other, made in trace.products:
        if made.shape[-2:] == (x.shape[1], x.shape[1]) and one.shape[-2] == x.shape[1]:
            return one.detach(), other.mT.detach()
    return None


def _length_kept(x: Tensor) -> bool:
    """Whether every token's vector is equally long, as a rotation leaves it; coarse tables stretch it a little."""
    length = x.double().norm(dim=-1)
    return distance(length, length[..., :1].expand_as(length)) < 0.02


def _uneven(score: Tensor) -> float:
    """How far scores at one distance are apart at most, relative to the largest score."""
    tokens = score.shape[-1]
    worst = 0.0
    for gap in range(tokens - 1):
        along = score.diagonal(-gap, -2, -1)
        worst = max(worst, float((along.amax(-1) - along.amin(-1)).max()))
    return worst / max(float(score.abs().max()), 1e-30)
