"""Every weight matters: a gradient reaches it, on some way that the target can be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..foreign.adapt import Adapted
from ..foreign.build import forget
from ..foreign.calls import default_type
from ..foreign.layouts import Layout
from ..foreign.returned import numbers
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Sure
from ..signs import looked
from ..subject import Subject


def everywhere(subject: Subject) -> Outcome:
    """Every parameter is reached by a gradient, and every gradient is a number."""
    if subject.module is None:
        return Outcome.moot("gradients", "it has no weights")
    named = {name: p for name, p in subject.module.named_parameters() if p.requires_grad}
    if not named:
        return Outcome.moot("gradients", "it has no weights")
    y, trace = subject.watched(subject.stream(), subject.source())
    draw = torch.randn(y.shape, generator=torch.Generator().manual_seed(4), dtype=y.dtype)
    if not y.requires_grad:
        if _learns(subject):
            return Outcome.moot("gradients", "it gives gradients only while training, or to its input")
        words = "no gradient reaches any weight: the output is cut off from them"
        return Outcome.broken("gradients", words, Clue("parameter-unused", _unused(subject), words))
    found: tuple[Tensor | None, ...] = torch.autograd.grad((y * draw).sum(), list(named.values()), allow_unused=True)
    for name, gradient in zip(named, found, strict=True):
        if gradient is not None and not bool(torch.isfinite(gradient).all()):
            words = f"the gradient of {name} is not finite"
            return Outcome.broken("gradients", words, Clue("overflow", Sure.HINT, words))
    lost = [name for name, gradient in zip(named, found, strict=True) if gradient is None]
    for elsewhere in (_in_other_outputs, _while_training, _in_a_larger_image, _not_chosen):
        reached = elsewhere(subject, {name: named[name] for name in lost}) if lost else set()
        lost = [name for name in lost if name not in reached]
    if lost:
        words = (
            f"no gradient reaches {', '.join(lost[:4])}{' ...' if len(lost) > 4 else ''}: nothing is computed with it"
        )
        cross = [name for name in lost if any(word in name.lower() for word in ("cross", "enc", "src", "multihead"))]
        if cross and subject.crossed:
            return Outcome.broken("gradients", words, Clue("shared-self-cross", Sure.LIKELY, words))
        if (looks := looked(subject)) is not None and looks.keys_summed:
            words += ", and what the weights sum is the keys"
            return Outcome.broken("gradients", words, Clue("value-is-key", Sure.LIKELY, words))
        plain = [name for name in lost if named[name].dim() > 1 and not _replaced(subject, name)]
        sure = _unused(subject) if plain else Sure.HINT  # biases of keys cancel
        return Outcome.broken("gradients", words, Clue("parameter-unused", sure, words))
    size = max(float(g.abs().max()) for g in found if g is not None)
    matrices = {projected.name for projected in trace.projections}  # a bias of keys cancels, whatever its shape
    idle = [n for n, g in zip(named, found, strict=True) if g is not None and n in matrices and _none(g, size)]
    if idle and _always_idle(subject, idle, size):
        words = f"the gradient of {', '.join(idle[:4])} is zero: what is computed with it has no effect"
        return Outcome.broken("gradients", words, Clue("parameter-unused", _unused(subject), words))
    return Outcome.held("gradients", f"all {len(named)} weights matter")


def _always_idle(subject: Subject, names: Sequence[str], size: float) -> bool:
    """Whether other inputs and other weights give them no gradient either: a few units may be off by chance."""
    seeds = () if subject.recipe is None else (1, 2)
    others = [subject, *(subject.with_target(subject.recipe.build(seed)) for seed in seeds if subject.recipe)]
    if _reached_with_more(subject, names, size):
        return False
    for other in others:
        weights = dict(other.module.named_parameters()) if other.module is not None else {}
        if not set(names) <= weights.keys():
            continue
        for seed, sign in ((1, -1.0), (7, 1.0)):
            made = other.live(sign * other.stream(seed=seed), other.source())
            found: Sequence[Tensor | None] = torch.autograd.grad(
                made.pow(2).sum(), [weights[name] for name in names], allow_unused=True
            )
            if not all(_none(gradient, size) for gradient in found if gradient is not None):
                return False
    return True


def _reached_with_more(subject: Subject, names: Sequence[str], size: float) -> bool:
    """Whether a larger image gives them a gradient: of one key alone, no query asks for more or less."""
    assert subject.module is not None
    weights, made = dict(subject.module.named_parameters()), _larger(subject)
    if made is None:
        return False
    found: Sequence[Tensor | None] = torch.autograd.grad(
        made.pow(2).sum(), [weights[name] for name in names], allow_unused=True
    )
    return not all(_none(gradient, size) for gradient in found if gradient is not None)


def _in_other_outputs(subject: Subject, weights: Mapping[str, Tensor]) -> set[str]:
    """Of these weights, those that something else which is returned is made of: places that are moved, a loss."""
    if subject.module is None or isinstance(subject.module, Adapted):
        return set()
    forget(subject.module)
    with default_type(subject.dtype):
        returned = subject.call.raw(subject.stream(), subject.source(), None, subject.needed(subject.stream()))
    return _reached([tensor for tensor in numbers(returned) if tensor.requires_grad], weights)


def _while_training(subject: Subject, weights: Mapping[str, Tensor]) -> set[str]:
    """Those that are reached while training: what is made of them may be kept for use."""
    trained = subject.copied()
    assert trained.module is not None
    trained.module.train()
    theirs = dict(trained.module.named_parameters())
    return _reached([trained.live(subject.stream(), subject.source())], {name: theirs[name] for name in weights})


def _in_a_larger_image(subject: Subject, weights: Mapping[str, Tensor]) -> set[str]:
    """Those that are reached where there is more than one window."""
    made = _larger(subject)
    return set() if made is None else _reached([made], weights)


def _larger(subject: Subject) -> Tensor | None:
    """What an image of twice the height and breadth gives; None if there is no image, or this size only is taken."""
    if subject.call.layout not in (Layout.IMAGE, Layout.GRID):
        return None
    larger = replace(subject, call=subject.call.with_(only=None))
    try:
        made = larger.live(subject.stream(tokens=4 * subject.sizes.tokens), subject.source())
    except Exception:  # foreign code may raise anything
        return None
    return made if made.requires_grad else None


def _not_chosen(subject: Subject, weights: Mapping[str, Tensor]) -> set[str]:
    """Those of entries of a dict of modules of which another one is used: a name chooses between them."""
    assert subject.module is not None
    tables = {name: part for name, part in subject.module.named_modules() if isinstance(part, nn.ModuleDict)}
    found = set[str]()
    for table, part in tables.items():
        beside = {f"{table}.{n}".lstrip("."): w for n, w in part.named_parameters() if w.requires_grad}
        if _reached([subject.live(subject.stream(), subject.source())], beside):
            found |= beside.keys() & weights.keys()
    return found


def _reached(made: Sequence[Tensor], weights: Mapping[str, Tensor]) -> set[str]:
    """Of these weights, those towards which there is a gradient."""
    sums = [tensor.sum() for tensor in made if tensor.requires_grad]
    if not sums:
        return set()
    found: Sequence[Tensor | None] = torch.autograd.grad(
        torch.stack(sums).sum(), list(weights.values()), allow_unused=True
    )
    return {name for name, gradient in zip(weights, found, strict=True) if gradient is not None}


def _learns(subject: Subject) -> bool:
    """Whether a gradient reaches its output while training, or where its input has one: some go back by hand."""
    trained = subject.copied()
    assert trained.module is not None
    trained.module.train()
    streams = (subject.stream(), subject.stream().requires_grad_())
    return any(trained.live(stream, subject.source()).requires_grad for stream in streams)


def _none(gradient: Tensor, size: float) -> bool:
    """Whether a gradient is zero up to rounding, beside the largest."""
    return float(gradient.abs().max()) <= 1e-13 * size


def _unused(subject: Subject) -> Sure:
    """A weight that this call does not use may be for an input that it was not given."""
    if isinstance(subject.module, Adapted):  # the adapter chose what to pass
        return Sure.HINT
    optional = [n for n, role in subject.call.signature.roles.items() if role in (Role.OTHER, Role.SOURCE)]
    given = subject.call.arguments(subject.stream(), subject.source(), None)
    return Sure.HINT if any(name not in given for name in optional) else Sure.LIKELY


def _replaced(subject: Subject, weight: str) -> bool:
    """Whether a weight may be what an argument stands for that may be left out, and was not: learnt queries."""
    given = subject.call.arguments(subject.stream(), subject.source(), None)
    return "." not in weight and any(name not in subject.call.signature.needed for name in given)
