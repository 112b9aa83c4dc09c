"""Where masks hide everything, and where scores are large."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..masks import Form, Numbers, Shape
from ..outcome import Clue, Outcome, Sure
from ..reference import distance
from ..subject import Subject
from ..trouble import Trouble

LOUD = 300.0  # times the usual size: scores grow ninety thousand times
SCORES = 3e5  # how large scores are made, where they can be seen: real models reach a hundred thousand
LIVELY, ORDINARY = 20.0, 3e2  # the same for scores that many a trained model reaches


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
        y = subject.live(1.0 * x, source, sees=sees, form=form)  # what comes from a layer may be written to
    except Exception as error:  # foreign code may raise anything
        trouble = Trouble.of(error)
        return Outcome.moot("dead-row", f"a mask that hides everything from {where} raises {trouble.words}")
    if not bool(torch.isfinite(y).all()):
        words = f"a mask that hides everything from {where} gives {_kind(y)}"
        return Outcome.held("dead-row", words, 0.0, 0.0, Clue("dead-row-nan", Sure.CONVENTION, words))
    if not all(bool(torch.isfinite(g).all()) for g in _gradients(subject, x, y)):
        words = f"a mask that hides everything from {where} gives finite outputs, but gradients that are no numbers"
        return Outcome.broken("dead-row", words, Clue("dead-row-gradient", Sure.CERTAIN, words))
    y = y.detach()
    zero = bool((y[0, 2] == 0).all()) if form.shape.pairs else bool((y[0] == 0).all())
    return Outcome.held("dead-row", f"finite; {where} gives {'zeros' if zero else 'a mean or a bias'}")


def _gradients(subject: Subject, x: Tensor, y: Tensor) -> list[Tensor]:
    """Those of the stream and of all weights that the output depends on; none where it depends on nothing."""
    if not y.requires_grad:
        return []
    weights = [] if subject.module is None else [p for p in subject.module.parameters() if p.requires_grad]
    found: tuple[Tensor | None, ...] = torch.autograd.grad(y.square().sum(), [x, *weights], allow_unused=True)
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
    for times, sure in (
        (_ordinary(subject), Sure.LIKELY),
        (loud, Sure.CONVENTION),
    ):  # only what ordinary scores pass is a bug
        leak = _loud_leak(subject, times)
        if leak is not None:
            words, gap = leak
            clue = Clue("finite-mask", sure, words)
            if sure is Sure.CONVENTION:
                return Outcome.held("large", words, gap, subject.bound, clue)
            return Outcome.broken("large", words, clue, error=gap, bound=subject.bound)
    return Outcome.held("large", f"finite at {loud:.0f} times the usual size, and hidden stays hidden")


def _loudness(subject: Subject) -> float:
    """By what to multiply the input so that scores reach some hundred thousand."""
    largest = _largest(subject)
    return LOUD if largest <= 0 else max(LOUD, (SCORES / largest) ** 0.5)


def _ordinary(subject: Subject) -> float:
    """By what to multiply it so that scores become as large as in many a trained model."""
    largest = _largest(subject)
    return LIVELY if largest <= 0 else (ORDINARY / largest) ** 0.5


def _largest(subject: Subject) -> float:
    """The largest score that can be seen and that no causal mask has touched; 0 if none can be seen."""
    _, trace = subject.watched(subject.stream(), subject.source())
    scores = [s.scores for s in trace.softmaxes]
    scores += [
        f.query @ f.key.mT * f.query.shape[-1] ** -0.5 for f in trace.fused if f.query.shape[1] == f.key.shape[1]
    ]
    seen = [s.tril() if s.dim() > 1 and s.shape[-1] == s.shape[-2] else s for s in scores]
    shown = [s[torch.isfinite(s) & (s.abs() < 1e3)] for s in seen]
    return max((float(s.abs().max()) for s in shown if s.numel()), default=0.0)


def _loud_leak(subject: Subject, loud: float) -> tuple[str, float] | None:
    """What leaks, and how much: through a mask that is given, or a triangle that is built in, beside large scores."""
    x, source = loud * subject.stream(), subject.source()
    source = None if source is None else loud * source
    if subject.meant_causal and not subject.crossed and not bool(subject.looks_ahead.any()):
        for t in (0, x.shape[1] // 2):
            other = x.clone()
            other[:, t + 1 :] = -other[:, t + 1 :]
            gap = distance(subject.run(other)[:, : t + 1], subject.run(x)[:, : t + 1])
            if gap > subject.bound:
                return (
                    f"with inputs {loud:.0f} times as large, token {t} changes by {gap:.1e} with what comes later",
                    gap,
                )
    form = subject.pairs or subject.padding
    if form is None or form.numbers is Numbers.ADDED:
        return None
    seen = 1 if form.shape is Shape.LENGTHS else subject.keys(x)  # a length shows the first key before any other
    gap = max(_through(subject, form, x, source, key) for key in range(seen))
    if gap <= subject.bound:
        return None
    return f"with inputs {loud:.0f} times as large, hidden keys change the output by {gap:.1e}", gap


def _through(subject: Subject, form: Form, x: Tensor, source: Tensor | None, key: int) -> float:
    """How far hidden keys matter beside one that is seen: where its score is very small, theirs are not smaller."""
    sees = torch.zeros(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
    sees[:, :, key] = True
    outputs = []
    for sign in (1.0, -1.0):
        other = sign * (x if source is None else source)
        other[:, key] *= sign
        given = (other, None) if source is None else (x, other)
        outputs.append(subject.run(*given, sees=sees, form=form))
    kept = slice(None) if source is not None else slice(key, key + 1)
    return distance(outputs[1][:, kept], outputs[0][:, kept])
