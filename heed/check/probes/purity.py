"""A module is a function of its input: no chance, no memory, no writing into what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..foreign.build import Recipe
from ..foreign.calls import Face
from ..foreign.returned import tensors
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Sure
from ..reference import distance
from ..subject import Subject
from ..trouble import Fault, Trouble


def repeat(subject: Subject) -> Outcome:
    """f(x) = f(x), also when dropout is on in the constructor; training and back again changes nothing."""
    made = _built(subject)
    if made:
        words = f"{made} is made inside forward: its weights are new in every call and are never trained"
        return Outcome.broken("repeat", words, Clue("layer-made-in-forward", Sure.CERTAIN, words))
    if (outcome := _weights_kept(subject)) is not None or (outcome := _twice(subject, "")) is not None:
        return outcome
    for told, changed in () if subject.recipe is None else _dropping(subject.recipe):
        dropping = subject.rebuilt(**changed)
        if dropping is not None and (outcome := _twice(dropping, f" with {told}=0.5")) is not None:
            return outcome
    return Outcome.held("repeat", "the same input gives the same output")


def _dropping(recipe: Recipe) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments by which half of something is dropped, and what to call them."""
    for name in recipe.dropouts:
        yield name, {name: 0.5}
    if changed := recipe.dropping(0.5):
        yield f"dropout of {', '.join(changed)}", changed


def _weights_kept(subject: Subject) -> Outcome | None:
    """A call that is not training leaves every weight the object that it was, with the numbers that it had."""
    fresh = subject.copied()
    if fresh.module is None:
        return None
    before = {name: (weight, weight.detach().clone()) for name, weight in fresh.module.named_parameters()}
    fresh.run(fresh.stream(), fresh.source())
    after = dict(fresh.module.named_parameters())
    for name, (weight, value) in before.items():
        if after.get(name) is not weight:
            words = f"{name} is replaced by another parameter in every call: an optimizer goes on with the old one"
        elif not _equal(weight.detach(), value):
            words = f"a call that is not training changes the numbers of {name}"
        else:
            continue
        return Outcome.broken("repeat", words, Clue("state-between-calls", Sure.CERTAIN, words))
    return None


def _twice(subject: Subject, told: str) -> Outcome | None:
    x, source = subject.stream(), subject.source()
    first, second, third = subject.thrice
    if not subject.random:
        return _after_training(subject, x, source, first, told)
    gap = distance(second, first)
    if not _equal(first, third):
        words = f"the same input gives something else the next time ({gap:.1e}), whatever the seed{told}"
        return Outcome.broken("repeat", words, Clue("state-between-calls", Sure.LIKELY, words), error=gap)
    words = f"two calls with the same input differ by {gap:.1e} in eval mode{told}"
    if told or _drops(subject, x, source):
        return Outcome.broken("repeat", words, Clue("dropout-in-eval", Sure.LIKELY, words), error=gap)
    words += ": it draws random numbers, though not as dropout does"
    return Outcome.broken("repeat", words, Clue("dropout-in-eval", Sure.CONVENTION, words), error=gap)


def _drops(subject: Subject, x: Tensor, source: Tensor | None) -> bool:
    return subject.watched(x, source)[1].drops


def _after_training(subject: Subject, x: Tensor, source: Tensor | None, first: Tensor, told: str) -> Outcome | None:
    if subject.module is None:
        return None
    trained = subject.copied()
    assert trained.module is not None
    trained.module.train()
    trained.run(x, source)
    trained.module.eval()
    gap = distance(trained.run(x, source), first)
    counted = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in trained.module.modules())
    if gap > subject.bound and not counted:  # running means are meant to run
        words = f"train(), a call, and eval() again change the output by {gap:.1e}{told}"
        return Outcome.broken("repeat", words, Clue("state-between-calls", Sure.HINT, words), error=gap)
    return None


def _built(subject: Subject) -> str | None:
    """The kind of module with weights that a call makes anew, if it does."""
    if subject.module is None:
        return None
    made: list[nn.Module] = []
    with _noting(made):
        subject.run(subject.stream(), subject.source())
    weighty = [m for m in made if any(True for _ in m.parameters(recurse=False))]
    return type(weighty[0]).__name__ if weighty else None


@contextmanager
def _noting(made: list[nn.Module]) -> Iterator[None]:
    before = nn.Module.__init__

    def noted(self: nn.Module, *args: object, **kwargs: object) -> None:
        made.append(self)
        before(self, *args, **kwargs)

    nn.Module.__init__ = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__init__ = before  # type: ignore[method-assign]


def pure(subject: Subject) -> Outcome:
    """What was given is as it was; another text in between changes nothing."""
    x, source = subject.stream(), subject.source()
    first = subject.run(x, source)
    asks = x if subject.call.query is None else x[:, :1]
    passed = subject.call.arguments(asks, source, None, subject.needed(x))
    given = {n: v.clone() for n, v in passed.items() if isinstance(v, Tensor)}
    kept_as = {name: value.clone() for name, value in given.items()}
    with torch.no_grad():
        subject.call.hand({**passed, **given})
    changed = [name for name, value in given.items() if not _equal(value, kept_as[name])]
    if changed:
        words = f"{changed[0]} is changed by the call"
        return Outcome.broken("pure", words, Clue("input-mutated", Sure.CERTAIN, words))
    if (form := subject.pairs or subject.padding) is not None:
        sees = torch.ones(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
        sees[:, :, [0, -1]] = False
        mask = form.write(sees, subject.sizes.heads)
        kept, mine = mask.clone(), x.clone()
        with torch.no_grad():
            subject.call(mine, source, extra={**subject.needed(x), form.argument: mask})
        changed = [] if torch.equal(mask, kept) else [f"the mask {form.argument}"]
        changed += [] if torch.equal(mine, x) else [f"where {form.argument} hides it, the stream"]
        if changed:
            words = f"{changed[0]} is changed by the call"
            return Outcome.broken("pure", words, Clue("input-mutated", Sure.CERTAIN, words))
    if subject.random:
        return Outcome.held("pure", "inputs are left alone")
    shorter = subject.sizes.tokens - 2
    fits = subject.call.face is not Face.POOLED and subject.takes(shorter)
    subject.run(subject.stream(seed=8, tokens=shorter if fits else None), subject.source(seed=9))
    gap = distance(subject.run(x, source), first)
    if gap > subject.bound:
        words = f"after another text the same text gives something else ({gap:.1e})"
        return Outcome.broken(
            "pure", words, Clue("state-between-calls", Sure.LIKELY, words), error=gap, bound=subject.bound
        )
    if (told := _kept_of_the_first(subject, x, source)) is not None:
        return Outcome.broken("pure", told, Clue("state-between-calls", Sure.LIKELY, told))
    return Outcome.held("pure", "inputs are left alone, nothing is kept")


def _kept_of_the_first(subject: Subject, x: Tensor, source: Tensor | None) -> str | None:
    """What goes wrong with a text if the first one, of a module just built, was shorter: something was kept of that."""
    shorter, fresh = x.shape[1] - 2, subject.rebuilt()
    if fresh is None or not (fresh.weights_kept and subject.call.plain and subject.takes(shorter)):
        return None
    fresh.run(x[:, :shorter], source)
    try:
        gap = distance(fresh.run(x, source), subject.run(x, source))
    except Exception as error:  # foreign code may raise anything
        trouble = Trouble.of(error)
        told = f"if the first text has {shorter} tokens, one of {x.shape[1]} raises {trouble.words}"
        return told if trouble.fault is Fault.TARGET else None
    told = (
        f"if the first text has {shorter} tokens, one of {x.shape[1]} gives something else than otherwise ({gap:.1e})"
    )
    return told if gap > subject.bound else None


def precision(subject: Subject) -> Outcome:
    """In float32 the result is that of float64, up to what rounding explains: some 2^-24 per product of a sum."""
    x, source = subject.stream(), subject.source()
    truth = subject.run(x, source)
    single = subject.single()
    try:
        rough = single.run(x.float(), None if source is None else source.float())
    except Exception as error:  # foreign code may raise anything
        return Outcome.moot("precision", f"in float32 it raises {type(error).__name__}: {str(error)[:120]}")
    bound = 2.0**-24 * 64 * (subject.sizes.width * x.shape[1]) ** 0.5
    gap = distance(rough.double(), truth)
    if gap > bound:
        words = f"float32 differs from float64 by {gap:.1e}, more than rounding explains ({bound:.1e})"
        slug = "overflow" if not bool(torch.isfinite(rough).all()) else "rope-precision"
        return Outcome.broken("precision", words, Clue(slug, Sure.HINT, words), error=gap, bound=bound)
    return Outcome.held("precision", f"float32 differs by {gap:.1e}; rounding explains {bound:.1e}", gap, bound)


def looking(subject: Subject) -> Outcome:
    """With and without the attention weights: the same output; and the weights sum to one, head by head."""
    names = subject.call.signature.all(Role.WEIGHTS)
    switches = [
        n for n in names if isinstance(subject.call.signature.defaults.get(n), bool | None) and "average" not in n
    ]
    if not switches or not subject.call.plain:
        return Outcome.moot("looking", "it cannot be asked for its weights")
    x, source = subject.stream(), subject.source()
    outputs = {}
    for value in (False, True):
        try:
            with torch.no_grad():
                outputs[value] = subject.call.raw(x, source, None, {**subject.needed(x), switches[0]: value})
        except Exception:  # cannot be asked
            return Outcome.moot("looking", f"{switches[0]}={value} is refused")
    plain, looked = (subject.call.back(subject.call.picked(outputs[v], x), x) for v in (False, True))
    gap = distance(looked, plain)
    if gap > 100 * subject.bound:
        words = f"{switches[0]}=True changes the output by {gap:.1e}"
        return Outcome.broken("looking", words, Clue("looking-changes-output", Sure.CERTAIN, words), error=gap)
    return _weights(subject, outputs[True], x)


def _weights(subject: Subject, returned: object, x: Tensor) -> Outcome:
    keys, heads = subject.keys(x), subject.sizes.heads
    found = [t for t in tensors(returned) if t.dim() >= 3 and t.shape[-2:] == (x.shape[1], keys)]
    if not found:
        return Outcome.held("looking", "the same output either way")
    weights = found[0]
    if not bool(torch.allclose(weights.sum(-1), torch.ones((), dtype=weights.dtype), atol=1e-6)):
        words = "the weights that it returns do not sum to one"
        return Outcome.broken("looking", words, Clue("weights-averaged", Sure.LIKELY, words))
    if heads > 1 and (weights.dim() < 4 or weights.shape[-3] != heads):
        words = f"the weights that it returns are {list(weights.shape)}: one map for {heads} heads, their mean"
        return Outcome.held("looking", words, 0.0, 0.0, Clue("weights-averaged", Sure.CONVENTION, words))
    return Outcome.held("looking", "the same output either way; the weights sum to one, head by head")


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool(torch.equal(one.nan_to_num(9.0), other.nan_to_num(9.0)))
