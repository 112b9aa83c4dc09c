"""Where its projections can be seen: which form of attention it is, right or wrong, to the last digit."""

from __future__ import annotations

from ..inside import Core, Match, core, matches
from ..outcome import Clue, Outcome, Sure
from ..reference import SCALES, scale_number
from ..subject import Subject

FAULTY = {"width", "heads", "times", "tokens", "value"}  # scales that are never meant


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
    """Conventions that differ from what was declared, or from what is usual."""
    clues = []
    if match.how.tiled:
        words = "query head h looks at key head h mod K; usually neighbouring heads share a key head"
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
