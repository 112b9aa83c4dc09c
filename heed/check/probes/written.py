"""Where its projections can be seen: which form of attention it is, right or wrong, to the last digit."""

from __future__ import annotations

import math

from ..bugs import named_by
from ..foreign.calls import Face
from ..inside import Core, Match, core, matches
from ..outcome import Clue, Outcome, Sure
from ..reference import SCALES
from ..signs import looked
from ..subject import Subject

FAULTY = {"width", "model", "heads", "times", "times width", "tokens", "value"}  # scales that are never meant
BY_LENGTH = ("padding-leak", "future-leak", "cache-mismatch", "relative-shift", "position-sliced")


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
    if match is None:
        return _by_signs(
            subject, "its projections cannot be seen" if inner is None else "it is no form that is known here"
        )
    if match.slug is None and match.blind:
        words = f"the output equals attention in which no token sees itself, to {match.error:.0e}"
        if not subject.meant_causal:
            clue = Clue("excludes-self", Sure.CONVENTION, words)
            return Outcome.held("written-out", words, match.error, 1e-9, clue)
        follows = (
            () if bool(subject.looks_ahead[1:].any()) else ("future-leak",)
        )  # token 0, left with nothing, sees all
        return Outcome.broken("written-out", words, Clue("excludes-self", Sure.CERTAIN, words, follows))
    if match.slug is None:
        told = "; ".join(f"{name} {value}" for name, value in match.how.words())
        return Outcome.held(
            "written-out", f"equals attention written out: {told}", match.error, 1e-9, *_told(subject, match)
        )
    words = f"the output equals {match.words}, to {match.error:.0e}"
    if match.slug == "no-softmax" and match.slug in named_by(subject.name):
        return Outcome.held("written-out", f"{words}, as it is called", match.error, 1e-9)
    return Outcome.broken("written-out", words, Clue(match.slug, Sure.CERTAIN, words), error=match.error)


def _by_signs(subject: Subject, why: str) -> Outcome:
    """What can be seen of it though its form is not known."""
    looks = looked(subject)
    if looks is not None and looks.apart is False:
        words = (
            "tokens are mixed up when heads are cut or merged: a head's queries, keys or outputs are of other tokens"
        )
        return Outcome.broken("written-out", words, Clue("head-mixing", Sure.LIKELY, words))
    if looks is not None and looks.summed is False:
        words = "the weights that sum the values do not sum to one over the keys: the softmax is of another axis"
        return Outcome.broken("written-out", words, Clue("softmax-axis", Sure.LIKELY, words))
    return Outcome.moot("written-out", why)


def recognised(subject: Subject) -> bool:
    """Whether scale and softmax could be judged: the form is known, or both could be followed."""
    looks, match = looked(subject), found(subject)[1]
    return match is not None or (looks is not None and looks.summed is not None and looks.scale is not None)


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


def _as_told(subject: Subject, factor: float) -> bool:
    """Whether heads that come from outside are scaled by a size that was guessed: its caller says which it is."""
    if subject.recipe is None or subject.call.face is not Face.HEADS:
        return False
    guessed = [value for name, value in subject.recipe.arguments.items() if name not in subject.recipe.declared]
    return any(type(size) is int and math.isclose(factor, size**-0.5, rel_tol=1e-6) for size in guessed if size)


def scale(subject: Subject) -> Outcome:
    """Scores are divided by √(size of a head), or scaled as was declared."""
    _, match = found(subject)
    looks = looked(subject)
    if match is not None and match.slug is None:
        name, real = match.how.scale, match.scale
    elif match is None and looks is not None and looks.flow is not None and looks.scale is not None:
        name, real = looks.scale, looks.flow.factor
    else:
        return Outcome.moot("scale", "the form of attention is not known")
    declared, told = subject.declared.scale, f"scores are scaled by {SCALES[name].format(real)}"
    if isinstance(declared, float | int):
        if abs(real - declared) > 1e-6 * max(1.0, abs(declared)):
            words = f"{told} = {real:.6g}; declared: {declared:.6g}"
            return Outcome.broken("scale", words, Clue("wrong-scale", Sure.CERTAIN, words))
        return Outcome.held("scale", told)
    if declared is not None and declared != name:
        words = f"{told}; declared: {SCALES.get(declared, declared)}"
        return Outcome.broken("scale", words, Clue("wrong-scale", Sure.CERTAIN, words))
    if declared is None and name in FAULTY and _as_told(subject, real):
        words = f"{told}: by the size that its constructor is told, which was guessed"
        return Outcome.held("scale", words, 0.0, 0.0, Clue("wrong-scale", Sure.CONVENTION, words))
    if declared is None and name in FAULTY:
        follows = BY_LENGTH if name == "tokens" else ()  # then how long a text is matters everywhere
        return Outcome.broken("scale", told, Clue("wrong-scale", Sure.LIKELY, told, follows))
    if declared is None and name == "size" and looks is not None and any(one.own_scale for one in looks.first.fused):
        words = f"{told}: by 1/√(size of a head) by hand, and once more by scaled_dot_product_attention"
        return Outcome.broken("scale", words, Clue("wrong-scale", Sure.LIKELY, words))
    if declared is None and name != "head" and (name != "other" or match is not None):
        return Outcome.held("scale", told, 0.0, 0.0, Clue("wrong-scale", Sure.CONVENTION, told))
    return Outcome.held("scale", told)
