"""A target within reach: built and called in one way, with all that had to be guessed for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ...core.contract import Mixer
from .adapt import Adapted, Ours, measured, sized
from .build import Recipe, applied, copied, lively, plans, rotations_of, unbuilt
from .calls import Call, Face
from .contain.budget import Budget
from .guess.weights import held
from .layouts import Layout
from .returned import Gives
from .sizes import TRIALS, Sizes, size_word
from .target import CannotCheck
from .ways.discover import discover, uncalled
from .ways.hints import Tries
from .ways.settle import sample
from .words import Role, role_of

PLANS, LONG = 24, 8  # ways to build of which a call is tried, and tried at length
SECONDS = 20.0  # of computing, after which no other one is
FEW = 4  # of them are tried however long that takes


@dataclass(frozen=True)
class Reached:
    """How a target is built, if it had to be, and how it is called."""

    call: Call
    recipe: Recipe | None = None
    notes: tuple[str, ...] = ()


def reached(found: Any, init: Mapping[str, Any] | None, adapter: Callable[..., Any] | None, seed: int) -> Reached:
    """The first way to build and to call a target."""
    if inspect.isclass(found) or makes_modules(found):
        return _of_class(found, init, adapter, seed)
    found = held(found) or found
    built, trials = found, [Sizes()]
    if isinstance(found, nn.Module):  # theirs stays as it is
        lazy = any(is_lazy(weight) for weight in found.parameters())
        built = copied(found).eval() if lazy else lively(copied(found), seed)
        trials = measured(built)
    return _noted(Reached(discover(_faced(built, adapter), trials)))


def _of_class(
    make: Callable[..., Any], init: Mapping[str, Any] | None, adapter: Callable[..., Any] | None, seed: int
) -> Reached:
    built, first, long = Tries(), Budget(PLANS, SECONDS, FEW), Budget(LONG, 2 * SECONDS, FEW)
    kept: list[tuple[Recipe, Any, Tries]] = []
    for plan in plans(make, init, TRIALS, built):  # a brief look at each, then a long one
        if first.spent():
            break
        kept.append((plan, _faced(plan.build(seed), adapter), Tries()))
        if (found := _called(*kept[-1], brief=True)) is not None:
            return _noted(_doubled(_warmed(found, adapter, seed), adapter, seed))
    if not kept:
        raise unbuilt(make, init or {}, built)
    for plan, target, tries in kept:
        if long.spent():
            break
        if (found := _called(plan, target, tries, brief=False)) is not None:
            return _noted(_doubled(_warmed(found, adapter, seed), adapter, seed))
    plan, target, tries = kept[0]
    for _, _, more in kept[1:4]:
        tries.found += more.found
    raise uncalled(target, plan.sizes, tries)


def _called(plan: Recipe, target: Any, tries: Tries, *, brief: bool) -> Reached | None:
    sizes = sized(target, plan.sizes)
    try:
        call = discover(target, [sizes], rotations_of(plan), tries, brief)
    except CannotCheck:
        return None
    return Reached(call, replace(plan, sizes=sizes, single=call.single))


def _doubled(found: Reached, adapter: Callable[..., Any] | None, seed: int) -> Reached:
    """What took float32 only, built so that it makes its own tensors in float64, if that lets it compute in float64."""
    plan, call = found.recipe, found.call
    if plan is None or not call.single:
        return found
    double = replace(plan, single=False, double=True)
    whole = call.with_(target=_faced(double.build(seed), adapter), single=False)
    try:
        with torch.no_grad():
            whole(*sample(whole))
    except Exception:  # float32 only, whatever it is built in
        return found
    return Reached(whole, double)


def _faced(target: Any, adapter: Callable[..., Any] | None) -> Any:
    target = Ours(target) if isinstance(target, Mixer) else target
    return target if adapter is None else Adapted(target, adapter)


def _warmed(found: Reached, adapter: Callable[..., Any] | None, seed: int) -> Reached:
    """A module that took its sizes from the first call: built anew, called once, and then as any other."""
    plan, call = found.recipe, found.call
    target = call.target
    assert plan is not None
    if not isinstance(target, nn.Module):
        return found
    fresh = applied(plan.make, plan.arguments)
    if not isinstance(fresh, nn.Module) or not any(is_lazy(weight) for weight in fresh.parameters()):
        return found

    def warm(module: nn.Module) -> object:
        return call.with_(target=_faced(module, adapter))(*sample(call))

    warmed = replace(plan, warm=warm, single=False)
    whole = call.with_(target=_faced(warmed.build(seed), adapter), single=False)
    try:
        with torch.no_grad():
            whole(*sample(whole))
    except Exception:  # float32 only, besides
        return Reached(call.with_(target=replace(warmed, single=True).build(seed)), replace(warmed, single=True))
    return Reached(whole, warmed)


def makes_modules(found: Any) -> bool:
    """Whether a function makes modules: it takes sizes and no tensor, and what it gives is a module."""
    if isinstance(found, nn.Module) or not inspect.isfunction(found):
        return False
    names = list(inspect.signature(found).parameters)
    tensors = {Role.INPUT, Role.QUERY, Role.KEY, Role.VALUE, Role.SOURCE, Role.IDS}
    if not names or size_word(names[0]) is None or any(role_of(name) in tensors for name in names if len(name) > 1):
        return False
    made = next((plan.build() for plan in islice(plans(found, None, TRIALS[:1], Tries()), 1)), None)
    return isinstance(made, nn.Module) or (callable(made) and not inspect.isclass(made))


def _noted(found: Reached) -> Reached:
    return replace(found, notes=tuple(_notes(found)))


def _notes(found: Reached) -> Iterator[str]:
    """What was guessed, in words."""
    call = found.call
    if found.recipe is not None and found.recipe.guessed:
        yield f"built with guessed arguments: {', '.join(found.recipe.guessed)}"
    if call.layout is not Layout.ROWS:
        yield f"called with a stream laid out as {call.layout}"
    beside = dict.fromkeys((*call.fixed, *call.made))
    if beside:
        yield f"passed beside it, by guess: {', '.join(beside)}"
    if call.query is not None:
        yield f"called with one query of each row at a time, laid out as {call.query}"
    if call.face is Face.POOLED:
        yield f"it gives {call.sizes.tokens} vector(s) for each row: taken for what its own queries see in the input"
    if call.gives is not Gives.VECTORS:
        yield f"it gives {call.gives} and no output: what is looked at was summed with them"
    if call.bagged:
        yield "called with one dict that holds everything"
    if call.single:
        yield "it takes float32 only: compared with coarser bounds"
    if call.only is not None:
        yield f"it takes {call.only} tokens only: nothing is asked about other lengths"
