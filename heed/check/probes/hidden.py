"""Masks: what they mean, what they hide, and what happens where they hide everything."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..equal import equal
from ..foreign.words import Role
from ..masks import Form, Found, Numbers, Trial
from ..outcome import Clue, Outcome, Sure
from ..reference import distance
from ..subject import QUIET, Subject, torchs_own
from ..trace import traced
from .rows import has_positions, scrambled

LOUD = 300.0  # times the usual size: scores grow ninety thousand times
SCORES = 3e5  # how large scores are made, where they can be seen: real models reach a hundred thousand


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
        return [*_polarity(subject, found, role), *_nothing_hidden(subject, found)]
    if not found.taken or _another_part(subject, found) or _looked_at_nothing(subject):
        return []
    if not found.felt:
        words = f"{found.argument} changes nothing, in any of {len(found.taken)} forms that are taken"
        others = any(other.forms for other in subject.masks.values())  # it may be for something that was not given
        return [Clue("mask-ignored", Sure.HINT if others else Sure.LIKELY, words)]
    return [_not_hiding(subject, found)]


def _looked_at_nothing(subject: Subject) -> bool:
    """Whether no token is influenced by another: then there is nothing that a mask could hide."""
    moves = subject.map > QUIET
    return moves.shape[0] == moves.shape[1] and not bool((moves & ~torch.eye(len(moves), dtype=torch.bool)).any())


def _another_part(subject: Subject, found: Found) -> bool:
    """Whether a mask is for something that this call does not have: a decoder's own tokens, an encoder's output."""
    words = found.argument.lower()
    if subject.crossed:
        return any(word in words for word in ("tgt", "trg", "self", "slf", "target", "causal", "look_ahead"))
    return any(word in words for word in ("memory", "encoder", "cross", "src_mask_unused", "head_mask"))


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
    seen = equal(subject)
    if role is Role.MASK and form.numbers is Numbers.TRUE and not form.attend and seen is not None and seen.trace.fused:
        words = f"{told}, though torch's own scaled_dot_product_attention has it the other way round"
        return [Clue("mask-inverted", Sure.CONVENTION, words)]
    compared = any(f.numbers is Numbers.ONE and not f.attend for f in found.forms) and not _adds(subject, found)
    if compared and role is Role.MASK:
        words = f"{told}: a mask of ones hides everything, a mask of zeros nothing"
        return [Clue("mask-inverted", Sure.LIKELY, words)]
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
    words = f"{name} that hides nothing changes the output by {gap:.1e}"
    if not subject.crossed and subject.meant_causal and not subject.looks_ahead.any():
        seen = subject.influence(lambda one, _: subject.run(one, sees=every[:1], form=form))
        if bool((seen > QUIET).triu(1).any()):
            return [Clue("future-leak", Sure.LIKELY, f"with {name} given, tokens are influenced by later ones")]
    return [Clue("mask-inverted", Sure.LIKELY, words)]


def _adds(subject: Subject, found: Found) -> bool:
    """Whether the mask is multiplied and added, as in scores + mask · -1e9: then a half hides half."""
    form = next(f for f in found.forms if f.numbers is Numbers.ONE)
    x, source = subject.stream(), subject.source()
    sees = torch.ones(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
    written = form.write(sees, subject.sizes.heads).double()
    half = written.clone()
    half[..., 0] = 1e-10
    try:
        with torch.no_grad():
            plain = subject.call(x, source, extra={form.argument: written})
            touched = subject.call(x, source, extra={form.argument: half})
    except Exception:  # takes no fractions
        return False
    return 0 < distance(touched, plain) < 0.9


def _not_hiding(subject: Subject, found: Found) -> Clue:
    """No form hides, though some are felt: what is hidden still matters somehow."""
    role = subject.call.signature.roles[found.argument]
    meant = [form for form in found.felt if form.numbers is not Numbers.ADDED] or list(found.felt)
    form = meant[0]
    moved = _queries_or_keys(subject, form)
    if moved == "queries":
        words = f"hiding key j by {found.argument} changes the output of token j, and lets every query see it"
        return Clue("mask-on-queries", Sure.LIKELY, words)
    added = [replace(form, upside=True) for form in found.taken if form.numbers is Numbers.ADDED]
    if role is Role.MASK and any(_hides(subject, form) for form in added):
        words = f"{found.argument} is subtracted from the scores: what should be hidden is all that is seen"
        return Clue("mask-inverted", Sure.LIKELY, words)
    if (slug := scrambled(subject)) is not None:
        words = f"{found.argument} hides nothing, in none of {len(found.taken)} forms: tokens are mixed up"
        return Clue(slug, Sure.HINT, words)
    if any(form.shape.by_row and Trial.alike(subject.call).hides(form).hides for form in found.felt):
        words = f"{found.argument} hides where all rows hide the same key, and not where each hides one of its own"
        return Clue("batch-mixing", Sure.LIKELY, words)
    if subject.three and _only_keys_matter(subject, found):
        words = f"a key hidden by {found.argument} still changes the weights of the others, but its value is not seen"
        return Clue("mask-after-softmax", Sure.LIKELY, words)
    slug = "padding-leak" if role is Role.PADDING else "mask-after-softmax"
    words = f"{found.argument} changes the output, but in none of {len(found.taken)} forms does it hide a key"
    return Clue(slug, Sure.LIKELY, words)


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
        except Exception as error:  # foreign code may raise anything
            return Outcome.moot("alone", f"one token alone raises {type(error).__name__}: {error}")
        worst = max(worst, distance(together[:, t : t + 1], single))
    if worst <= 10 * subject.bound:
        return Outcome.held("alone", "a token that sees only itself is as if alone", worst, subject.bound)
    if has_positions(subject):
        return Outcome.moot("alone", "it knows where a token stands")
    words = f"a token that may see only itself differs from the same token alone ({worst:.1e})"
    return Outcome.broken("alone", words, Clue("head-mixing", Sure.HINT, words), error=worst, bound=subject.bound)


def padding(subject: Subject) -> Outcome:
    """Rows of different lengths, with garbage behind (or before) their tokens: each is what it is without."""
    form = subject.padding
    if form is None:
        return Outcome.moot("padding", "no mask says who is there")
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
    outputs = []
    for garbage in (0.0, 1e3):
        filled, beside = x.clone(), None if source is None else source.clone()
        (filled if beside is None else beside)[:, ~real] = garbage
        outputs.append(subject.run(filled, beside, sees=sees, form=form))
    kept = torch.ones(x.shape[1], dtype=torch.bool) if source is not None else real
    if subject.meant_causal and side == "left" and source is None:
        kept = real
    gap = distance(outputs[1][:, kept], outputs[0][:, kept])
    if gap > subject.bound:
        words = f"{lacking} tokens of padding on the {side} change the others by {gap:.1e} when they hold garbage"
        return Outcome.broken(
            "padding", words, Clue("padding-leak", Sure.LIKELY, words), error=gap, bound=subject.bound
        )
    if source is not None or (side == "left" and has_positions(subject)):
        return None
    every = torch.ones(len(x), int(real.sum()), int(real.sum()), dtype=torch.bool)
    gap = distance(outputs[0][:, real], subject.run(x[:, real], sees=every, form=form))
    if gap > subject.bound:
        words = f"a row with {lacking} tokens of padding on the {side} differs from the same row without ({gap:.1e})"
        return Outcome.broken(
            "padding", words, Clue("padding-leak", Sure.LIKELY, words), error=gap, bound=subject.bound
        )
    return None


def dead_row(subject: Subject) -> Outcome:
    """A token that may see nothing: finite output, and finite gradients everywhere."""
    form = subject.pairs or subject.padding
    dead = torch.isnan(subject.run(subject.stream(), subject.source())).flatten(0, 1).any(-1)
    if bool(dead.any()):
        words = f"without any mask, the output of {int(dead.sum())} of {len(dead)} tokens is NaN"
        return Outcome.broken("dead-row", words, Clue("dead-row-nan", Sure.LIKELY, words))
    if form is None:
        return Outcome.moot("dead-row", "it takes no mask")
    if subject.coarse:  # the smallest number of float64 is minus infinity in float32: not what it would meet
        return _dead_row(subject.single(), form, torch.float32)
    return _dead_row(subject, form, torch.float64)


def _dead_row(subject: Subject, form: Form, dtype: torch.dtype) -> Outcome:
    x, source = subject.stream().to(dtype).requires_grad_(), subject.source()
    source = None if source is None else source.to(dtype)
    sees = torch.ones(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
    where = "row 0" if not form.shape.pairs else "token 2 of row 0"
    sees[0] = sees[0] if form.shape.pairs else False
    if form.shape.pairs:
        sees[0, 2] = False
    form = replace(form, finite=True)  # a mask that is added and hides everything is made of the smallest number
    try:
        y = subject.live(x, source, sees=sees, form=form)
    except Exception as error:  # foreign code may raise anything
        words = f"a mask that hides everything from {where} raises {type(error).__name__}: {error}"
        return Outcome.broken("dead-row", words, Clue("dead-row-nan", Sure.HINT, words))
    if not bool(torch.isfinite(y).all()):
        words = f"a mask that hides everything from {where} gives {_kind(y)}"
        if torchs_own(subject):
            words += ", as torch's own nn.MultiheadAttention does"
            return Outcome.held("dead-row", words, 0.0, 0.0, Clue("dead-row-nan", Sure.CONVENTION, words))
        return Outcome.broken("dead-row", words, Clue("dead-row-nan", Sure.CERTAIN, words))
    (gradient,) = torch.autograd.grad(y.square().sum(), [x], allow_unused=True, materialize_grads=True)
    weights = [] if subject.module is None else _gradients(subject, x.detach(), source, sees, form)
    if not all(bool(torch.isfinite(g).all()) for g in (gradient, *weights)):
        words = f"a mask that hides everything from {where} gives finite outputs, but gradients that are no numbers"
        return Outcome.broken("dead-row", words, Clue("dead-row-gradient", Sure.CERTAIN, words))
    y = y.detach()
    zero = bool((y[0, 2] == 0).all()) if form.shape.pairs else bool((y[0] == 0).all())
    return Outcome.held("dead-row", f"finite; {where} gives {'zeros' if zero else 'a mean or a bias'}")


def _gradients(subject: Subject, x: Tensor, source: Tensor | None, sees: Tensor, form: Form) -> list[Tensor]:
    assert subject.module is not None
    weights = [p for p in subject.module.parameters() if p.requires_grad]
    y = subject.live(x, source, sees=sees, form=form)
    found: tuple[Tensor | None, ...] = torch.autograd.grad(y.square().sum(), weights, allow_unused=True)
    return [g for g in found if g is not None]


def _kind(y: Tensor) -> str:
    return "NaN" if bool(torch.isnan(y).any()) else "infinity"


def large(subject: Subject) -> Outcome:
    """Inputs 300 times as large: numbers, and the mask still hides."""
    loud = _loudness(subject)
    x, source = subject.stream() * loud, subject.source()
    source = None if source is None else source * loud
    y = subject.run(x, source)
    if not bool(torch.isfinite(y).all()) and bool(torch.isfinite(subject.run(x / loud, subject.source())).all()):
        words = f"inputs {loud:.0f} times as large give {_kind(y)}"
        return Outcome.broken("large", words, Clue("overflow", Sure.LIKELY, words))
    leak = _loud_leak(subject, x, source, loud)
    if leak is not None:
        return leak
    return Outcome.held("large", f"finite at {loud:.0f} times the usual size, and hidden stays hidden")


def _loudness(subject: Subject) -> float:
    """By what to multiply the input so that scores reach some hundred thousand."""
    with torch.enable_grad(), traced(subject.target) as trace:
        subject.call(subject.stream(), subject.source())
    scores = [s.scores for s in trace.softmaxes]
    scores += [
        f.query @ f.key.mT * f.query.shape[-1] ** -0.5 for f in trace.fused if f.query.shape[1] == f.key.shape[1]
    ]
    shown = [s[torch.isfinite(s) & (s.abs() < 1e3)] for s in scores]
    largest = max((float(s.abs().max()) for s in shown if s.numel()), default=0.0)
    return LOUD if largest <= 0 else max(LOUD, (SCORES / largest) ** 0.5)


def _loud_leak(subject: Subject, x: Tensor, source: Tensor | None, loud: float) -> Outcome | None:
    """Both a mask that is given and a triangle that is built in, beside scores as large as they get."""
    if subject.meant_causal and not subject.crossed and not bool(subject.looks_ahead.any()):
        for t in (0, x.shape[1] // 2):
            other = x.clone()
            other[:, t + 1 :] = -other[:, t + 1 :]
            gap = distance(subject.run(other)[:, : t + 1], subject.run(x)[:, : t + 1])
            if gap > subject.bound:
                words = f"with inputs {loud:.0f} times as large, token {t} changes by {gap:.1e} with what comes later"
                return Outcome.broken(
                    "large", words, Clue("finite-mask", Sure.LIKELY, words), error=gap, bound=subject.bound
                )
    form = subject.pairs or subject.padding
    if form is None or form.numbers is Numbers.ADDED:
        return None
    sees = torch.zeros(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
    sees[:, :, 0] = True  # one key alone: where its score is very small, those of hidden keys are not smaller
    outputs = []
    for sign in (1.0, -1.0):
        other, beside = x.clone(), None if source is None else source.clone()
        (other if beside is None else beside)[:, 1:] *= sign
        outputs.append(subject.run(other, beside, sees=sees, form=form))
    kept = slice(None) if source is not None else slice(0, 1)
    gap = distance(outputs[1][:, kept], outputs[0][:, kept])
    if gap > subject.bound:
        words = f"with inputs {loud:.0f} times as large, hidden keys change the output by {gap:.1e}"
        return Outcome.broken("large", words, Clue("finite-mask", Sure.LIKELY, words), error=gap, bound=subject.bound)
    return None
