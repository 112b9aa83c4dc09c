"""Masks: what they mean, and what they hide."""

from __future__ import annotations

import inspect
from dataclasses import replace
from enum import StrEnum

import torch
from torch import Tensor

from ..equal import equal
from ..foreign.adapt import Adapted
from ..foreign.said import is_switch, says_hidden, unread
from ..foreign.signature import function_of
from ..foreign.sizes import cut
from ..foreign.words import Role
from ..masks import Form, Found, Numbers, Trial, forms
from ..outcome import Clue, Outcome, Sure
from ..reference import distance
from ..signs import half_hidden
from ..subject import QUIET, Subject
from ..trouble import Trouble
from .rows import has_positions, scrambled

TOKENS_ARE_ONES = {"attention_mask", "input_mask"}  # as tokenizers give them; of other names nothing is known
GARBAGE = (1e3, 10.0)  # what padding holds: much, and not more than a stream may


def meaning(subject: Subject) -> Outcome:
    """Some usual form of every mask argument hides; its polarity is that of its name, or that which was declared."""
    if not subject.masks:
        return Outcome.moot("mask", "it takes no mask")
    clues = [clue for found in subject.masks.values() for clue in _judged(subject, found)]
    told = "; ".join(found.forms[0].words() for found in subject.masks.values() if found.forms)
    wrong = [clue for clue in clues if clue.sure > Sure.CONVENTION]
    if wrong:
        return Outcome.broken("mask", wrong[0].evidence, *clues)
    if not told:
        return Outcome.moot("mask", "none of its mask arguments is used in this call")
    return Outcome.held("mask", told, 0.0, 0.0, *clues)


def _judged(subject: Subject, found: Found) -> list[Clue]:
    role = subject.call.signature.roles[found.argument]
    if found.forms:
        shared = _one_for_all(subject, found)
        return [*_polarity(subject, found, role), *_nothing_hidden(subject, found), *([shared] if shared else [])]
    called = function_of(subject.target) if not isinstance(subject.target, Adapted) else None
    if not found.taken and is_switch(called, found.argument):
        return []
    if not found.taken and (words := _always_raises(subject, found)) is not None:
        return [Clue("mask-raises", Sure.CERTAIN, words)]
    if not found.taken or _another_part(subject, found) or _looked_at_nothing(subject):
        return []
    if not found.felt:
        words = f"{found.argument} changes nothing, in any of {len(found.taken)} forms that are taken"
        others = any(other.forms for other in subject.masks.values())  # it may be for something that was not given
        sure = Sure.HINT if others and not _dropped(subject, found.argument) else Sure.LIKELY
        return [Clue("mask-ignored", sure, words, _unkept(subject))]
    return [_not_hiding(subject, found)]


def _dropped(subject: Subject, name: str) -> bool:
    """Whether an argument is never read, though a part takes one of the same name: it was not handed on."""
    if subject.module is None or isinstance(subject.module, Adapted) or not unread(subject.module.forward, name):
        return False
    parts = list(subject.module.modules())[1:]
    return any(name in inspect.signature(part.forward).parameters for part in parts)


def _unkept(subject: Subject) -> tuple[str, ...]:
    """What follows where the mask would have made true what the name alone promises."""
    ahead = subject.declared.causal is None and subject.named_causal and bool(subject.looks_ahead.any())
    return ("future-leak",) if ahead and not bool((~subject.looks_ahead).triu(1).any()) else ()


def _always_raises(subject: Subject, found: Found) -> str | None:
    """What the target raises on every mask, if it is one slip of its own; to want another shape is none."""
    x, source = subject.stream(), subject.source()
    sees = torch.ones(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
    told = set[str]()
    for form in forms(found.argument, subject.call.signature.roles[found.argument]):
        try:
            subject.run(x, source, sees=sees, form=form)
        except Exception as error:  # foreign code may raise anything
            if not _slip(error):
                return None
            told.add(Trouble.of(error).words)
        else:
            return None
    return f"any {found.argument} raises {told.pop()}" if len(told) == 1 else None


def _slip(error: Exception) -> bool:
    """Whether no tensor could have prevented it: a tensor asked for one truth, a name that is not there."""
    ambiguous = isinstance(error, RuntimeError) and "Boolean value of Tensor" in str(error)
    missing = isinstance(error, AttributeError | NameError) and "'Tensor'" not in str(error)
    return ambiguous or missing


def _looked_at_nothing(subject: Subject) -> bool:
    """Whether no token is influenced by another: then there is nothing that a mask could hide."""
    moves = subject.map > QUIET
    return moves.shape[0] == moves.shape[1] and not bool((moves & ~torch.eye(len(moves), dtype=torch.bool)).any())


def _another_part(subject: Subject, found: Found) -> bool:
    """Whether a mask is for something that this call does not have: a decoder's own tokens, an encoder's output."""
    words = found.argument.lower()
    if subject.crossed:
        return any(word in words for word in ("tgt", "trg", "self", "slf", "target", "causal", "look_ahead"))
    others = ("memory", "encoder", "cross", "context", "ctx", "media", "retriev", "src_mask_unused", "head_mask")
    return any(word in words for word in others)


def _polarity(subject: Subject, found: Found, role: Role) -> list[Clue]:
    form = found.forms[0]
    if form.numbers is Numbers.ADDED or role is Role.LENGTHS:
        return []
    told = f"{form.words()}"
    declared = subject.declared.mask_true
    if declared is not None:
        meant = declared == "attend"
        return [] if meant == form.attend else [Clue("mask-inverted", Sure.CERTAIN, f"{told}; declared: {declared}")]
    names_hidden = role is Role.PADDING and ("padding" in found.argument or "pad" in found.argument)
    if names_hidden and form.attend:
        words = f"{told}, though the name says that True marks padding"
        return [Clue("mask-inverted", Sure.CONVENTION, words)]
    ones_hide = role is Role.MASK and any(f.numbers is Numbers.ONE and not f.attend for f in found.forms)
    read = _read(subject, found) if ones_hide else Reading.ADDED
    if read is Reading.COMPARED or (read is Reading.ASKED and found.argument in TOKENS_ARE_ONES):
        words = f"{told}: a mask of ones hides everything, a mask of zeros nothing"
        sure = Sure.CONVENTION if says_hidden(subject.origin) else Sure.LIKELY  # as it is said to be, it may be
        return [Clue("mask-inverted", sure, words)]
    seen = equal(subject)
    if role is Role.MASK and form.numbers is Numbers.TRUE and not form.attend and seen is not None and seen.trace.fused:
        words = f"{told}, though torch's own scaled_dot_product_attention has it the other way round"
        return [Clue("mask-inverted", Sure.CONVENTION, words)]
    return []


def _nothing_hidden(subject: Subject, found: Found) -> list[Clue]:
    """A mask that hides nothing changes nothing; only who sees whom may be told anew by it."""
    form, name = found.forms[0], found.argument
    if subject.meant_causal and (bool(subject.looks_ahead.any()) or (subject.three and form.shape.pairs)):
        return []
    x, source = subject.stream(), subject.source()
    every = torch.ones(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
    if form.shape.pairs and subject.meant_causal:
        every = every.tril()
    try:
        plain = subject.run(x, source)
    except Exception:  # a mask that must be given
        return []
    gap = distance(subject.run(x, source, sees=every, form=form), plain)
    if gap <= 10 * subject.bound or name in subject.call.made:
        return []
    if form.shape.pairs and distance(subject.run(x, source, sees=every.tril(), form=form), plain) <= 10 * subject.bound:
        return []  # without a mask it looks back only: what is given takes the place of that
    words = f"{name} that hides nothing changes the output by {gap:.1e}"
    if not subject.crossed and subject.meant_causal and not subject.looks_ahead.any():
        seen = subject.influence(lambda one, _: subject.run(one, sees=every[:1], form=form))
        if bool((seen > QUIET).triu(1).any()):
            return [Clue("future-leak", Sure.LIKELY, f"with {name} given, tokens are influenced by later ones")]
    if form.attend and form.numbers is not Numbers.ADDED:  # it hides what it should: without it something else is done
        return [Clue("path-differs", Sure.LIKELY, f"{words}, though it hides what it should")]
    return [Clue("mask-inverted", Sure.LIKELY, words)]


class Reading(StrEnum):
    """How a mask of numbers is read."""

    COMPARED = "with a number: a fraction is neither"
    ASKED = "by its truth: a fraction is as good as one"
    ADDED = "times a large number, and added to the scores: a fraction hides by halves"


def _read(subject: Subject, found: Found) -> Reading:
    form = next(f for f in found.forms if f.numbers is Numbers.ONE)
    x, source = subject.stream(), subject.source()
    sees = torch.ones(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
    written = form.write(sees, subject.sizes.heads).double()
    plain, half, hidden = (written.clone() for _ in range(3))
    half[..., 0], hidden[..., 0] = 1e-10, 1.0 - written[..., 0]
    try:
        with torch.no_grad():
            made = [subject.call(x, source, extra={form.argument: mask}) for mask in (plain, half, hidden)]
    except Exception:  # takes no fractions
        return Reading.COMPARED
    if not 0 < distance(made[1], made[0]) < 0.9:
        return Reading.COMPARED
    return Reading.ADDED if distance(made[1], made[2]) > 0 else Reading.ASKED


def _not_hiding(subject: Subject, found: Found) -> Clue:
    """No form hides, though some are felt: what is hidden still matters somehow."""
    role = subject.call.signature.roles[found.argument]
    meant = [form for form in found.felt if form.numbers is not Numbers.ADDED] or list(found.felt)
    form = meant[0]
    moved = _queries_or_keys(subject, form)
    if moved == "queries" and {"q", "query", "queries"} & set(cut(found.argument)):
        return Clue("mask-on-queries", Sure.CONVENTION, f"{found.argument} hides queries, as it is called")
    if moved == "queries":
        words = f"hiding key j by {found.argument} changes the output of token j, and lets every query see it"
        return Clue("mask-on-queries", Sure.LIKELY, words, _unkept(subject))
    added = [replace(form, upside=True) for form in found.taken if form.numbers is Numbers.ADDED]
    if role is Role.MASK and any(_hides(subject, form) for form in added):
        words = f"{found.argument} is subtracted from the scores: what should be hidden is all that is seen"
        return Clue("mask-inverted", Sure.LIKELY, words)
    if (slug := scrambled(subject)) is not None:
        words = f"{found.argument} hides nothing, in none of {len(found.taken)} forms: tokens are mixed up"
        return Clue(slug, Sure.HINT, words)
    if (shared := _one_for_all(subject, found)) is not None:
        return shared
    half = next((told for one in meant if (told := half_hidden(subject, one)) is not None), None)
    if half is not None:
        return Clue(half[0], Sure.LIKELY, f"hiding a key by {found.argument}: {half[1]}")
    if subject.three and _only_keys_matter(subject, found):
        words = f"a key hidden by {found.argument} still changes the weights of the others, but its value is not seen"
        return Clue("mask-after-softmax", Sure.LIKELY, words)
    slug = "padding-leak" if role in (Role.PADDING, Role.LENGTHS) else "mask-ignored"
    words = f"{found.argument} changes the output, but in none of {len(found.taken)} forms does it hide a key"
    edges = {"adj", "adjacency", "edge", "edges"} & set(cut(found.argument))  # of a graph: they may only add
    return Clue(slug, Sure.HINT if edges else Sure.LIKELY, words, _unkept(subject))


def _one_for_all(subject: Subject, found: Found) -> Clue | None:
    """A mask that has rows, of which one is used for all of them."""
    if any(form.shape.by_row for form in found.forms):
        return None
    alike = Trial.alike(subject.call)
    with torch.no_grad():
        if not any(form.shape.by_row and alike.hides(form).hides for form in found.felt):
            return None
    words = f"{found.argument} hides where all rows hide the same key, and not where each hides one of its own"
    return Clue("batch-mixing", Sure.LIKELY, words)


def _hides(subject: Subject, form: Form) -> bool:
    with torch.no_grad():
        try:
            return Trial.of(subject.call).hides(form).hides
        except Exception:  # not a form it takes
            return False


def _queries_or_keys(subject: Subject, form: Form) -> str:
    """Where a mask that names one key acts: on the output of that token alone?"""
    if subject.crossed:
        return "unknown"
    x = subject.stream()
    every = torch.ones(len(x), x.shape[1], x.shape[1], dtype=torch.bool)
    for attend in (True, False):
        same = Form(form.argument, form.shape, form.numbers, attend)
        sees = every.clone()
        sees[:, :, 2] = False
        try:
            plain = subject.run(x, sees=every, form=same)
            hidden = subject.run(x, sees=sees, form=same)
        except Exception:  # not a form it takes
            continue
        moved = (hidden - plain).abs().nan_to_num(9.0).amax((0, 2)) > QUIET
        if bool(moved[2]) and int(moved.sum()) == 1:
            return "queries"
    return "unknown"


def _only_keys_matter(subject: Subject, found: Found) -> bool:
    x, y = subject.stream(), subject.stream(seed=6)
    sees = torch.ones(len(x), x.shape[1], x.shape[1], dtype=torch.bool)
    sees[:, :, 2] = False
    for form in found.felt:
        plain = subject.run(x, y, value=y, sees=sees, form=form)
        other_value, other_key = subject.nudged(y, 2), subject.nudged(y, 2)
        by_value = distance(subject.run(x, y, value=other_value, sees=sees, form=form), plain)
        by_key = distance(subject.run(x, other_key, value=y, sees=sees, form=form), plain)
        if by_value <= QUIET < by_key:
            return True
    return False


def alone(subject: Subject) -> Outcome:
    """A mask that lets every token see only itself: every token as if it were alone."""
    form = subject.pairs
    if form is None or subject.crossed:
        return Outcome.moot("alone", "no mask says who sees whom" if form is None else "it looks at a source")
    x = subject.stream()
    sees = torch.eye(x.shape[1], dtype=torch.bool).expand(len(x), -1, -1)
    together = subject.run(x, sees=sees, form=form)
    worst = 0.0
    for t in range(x.shape[1]):
        one = torch.ones(len(x), 1, 1, dtype=torch.bool)
        try:
            single = subject.run(x[:, t : t + 1], sees=one, form=form)
        except Exception:  # foreign code may raise anything
            return Outcome.moot("alone", "it does not take one token alone")
        worst = max(worst, distance(together[:, t : t + 1], single))
    if worst <= 10 * subject.bound:
        return Outcome.held("alone", "a token that sees only itself is as if alone", worst, subject.bound)
    if has_positions(subject):
        return Outcome.moot("alone", "it knows where a token stands")
    words = f"a token that may see only itself differs from the same token alone ({worst:.1e})"
    slug = "head-mixing" if scrambled(subject) == "head-mixing" else "padding-leak"
    return Outcome.broken("alone", words, Clue(slug, Sure.HINT, words), error=worst, bound=subject.bound)


def padding(subject: Subject) -> Outcome:
    """Rows of different lengths, with garbage behind (or before) their tokens: each is what it is without."""
    form = subject.padding
    if form is None:
        return Outcome.moot("padding", "no mask says who is there")
    if subject.call.filled:
        return Outcome.moot("padding", "what is passed beside the stream is as long as it is, and has no mask")
    for side in ("right", "left"):
        outcome = _padded(subject, form, side)
        if outcome is not None:
            return outcome
    return Outcome.held("padding", "padding changes nothing, on either side")


def _padded(subject: Subject, form: Form, side: str) -> Outcome | None:
    x, source = subject.stream(), subject.source()
    keys, lacking = subject.keys(x), 2
    real = torch.arange(keys) < keys - lacking if side == "right" else torch.arange(keys) >= lacking
    sees = real.expand(len(x), x.shape[1], keys)
    if form.shape.name == "LENGTHS" and side == "left":
        return None
    outputs = dict[float, Tensor]()
    for garbage in (0.0, *GARBAGE):
        filled, beside = x.clone(), None if source is None else source.clone()
        (filled if beside is None else beside)[:, ~real] = garbage
        outputs[garbage] = subject.run(filled, beside, sees=sees, form=form)
    kept = torch.ones(x.shape[1], dtype=torch.bool) if source is not None else real
    much, little = (distance(outputs[garbage][:, kept], outputs[0.0][:, kept]) for garbage in GARBAGE)
    if much > subject.bound:
        words = f"{lacking} tokens of padding on the {side} change the others by {much:.1e} when they hold garbage"
        if little <= subject.bound:
            words += f" of size {GARBAGE[0]:.0f}; what is not larger than a stream stays hidden"
            return Outcome.held("padding", words, much, subject.bound, Clue("finite-mask", Sure.CONVENTION, words))
        return Outcome.broken(
            "padding", words, Clue("padding-leak", _leak(subject, form), words), error=much, bound=subject.bound
        )
    if source is not None or (side == "left" and has_positions(subject)):
        return None
    if not subject.takes(int(real.sum())):
        return None
    every = torch.ones(len(x), int(real.sum()), int(real.sum()), dtype=torch.bool)
    gap = distance(outputs[0.0][:, real], subject.run(x[:, real], sees=every, form=form))
    if gap > subject.bound:
        words = f"a row with {lacking} tokens of padding on the {side} differs from the same row without ({gap:.1e})"
        clue = Clue("padding-leak", _leak(subject, form), words)
        return Outcome.broken("padding", words, clue, error=gap, bound=subject.bound)
    return None


def _leak(subject: Subject, form: Form) -> Sure:
    """How sure a leak is: there may be a mask of another part, which was not given, to hide what leaks there."""
    names = subject.call.signature.all(Role.MASK, Role.PADDING)
    open_ = [name for name in names if name != form.argument and name not in subject.call.made]
    unknown = any(name not in subject.masks or not subject.masks[name].forms for name in open_)
    return Sure.HINT if unknown else Sure.LIKELY
