"""Building a foreign class: its constructor's arguments are guessed from their names, and tried.

What fails is read, and the next value tried: other sizes, a pair for a number, a module for a name. A `config` is built
in the same way if its class can be found, and otherwise answers by name what it is asked (`guess/`).
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .calls import default_type
from .contain.budget import Budget
from .guess.arguments import CONFIGS, MISSING, Guesser, options, parameters_of
from .guess.configs import UNKNOWN, GuessedConfig, Unknown
from .sizes import TRIALS, Sizes, is_dropout, size_word
from .target import CannotCheck
from .ways.hints import Tries

WILD = 1e4  # weights beyond this, or no numbers, were never set
FIRST = 4  # sets of arguments that are tried before other sizes are
TRIED = 40  # sets of arguments at one set of sizes
ANSWERS = 40  # questions of one constructor to a configuration that are answered by a guess
SETS = 200  # sets of arguments that are tried in all
SECONDS = 10.0  # of computing, after which no other arguments are tried
LEAST = 24  # sets of arguments that are tried however long that takes
DEEPEST = 1  # parts that are built to build a target have no such parts of their own


def sown(seed: int) -> None:
    """Whatever foreign code draws from now on is drawn by this seed: by torch, by Python, by numpy if it is there."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How to build the target: again with another seed, or with an argument changed."""

    make: Callable[..., Any]
    arguments: Mapping[str, Any]
    sizes: Sizes
    declared: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    warm: Callable[[nn.Module], object] | None = None  # a first call, for modules that take their sizes from it
    single: bool = False  # in float32, for code that cannot do otherwise
    double: bool = False  # whether what it makes for itself is to be made in float64: tensors that are no parameters

    def build(self, seed: int = 0, **changed: Any) -> Any:
        """A fresh one, in float64 unless it cannot be, not training."""
        sown(seed)
        with default_type(torch.float64 if self.double else torch.float32):
            made = applied(self.make, {**copied_parts(self.arguments), **changed})
        if not isinstance(made, nn.Module):
            return made
        if any(is_lazy(weight) for weight in made.parameters()):
            if self.warm is None:
                return made.eval()
            with torch.no_grad():
                self.warm(made.eval())
        made = lively(made, seed)
        return made.float() if self.single else made

    @property
    def flags(self) -> dict[str, Any]:
        """Switches of the constructor, with what they were set to."""
        return {name: value for name, value in self.arguments.items() if isinstance(value, bool)}

    @property
    def dropouts(self) -> list[str]:
        """Arguments that are shares of what is dropped."""
        names = [name for name in self.arguments if is_dropout(name)]
        return [name for name in names if isinstance(self.arguments[name], float | int)]

    def dropping(self, share: float) -> dict[str, Any]:
        """Its configurations with every share of what is dropped set to this one; nothing if they have none."""
        found = dict[str, Any]()
        for name, value in self.arguments.items():
            shares = shares_of(value) if name.lower() in CONFIGS else []
            if shares:
                found[name] = copy.deepcopy(value)
            for field in shares:
                if isinstance(value, dict):
                    found[name][field] = share
                else:
                    setattr(found[name], field, share)
        return found

    @property
    def guessed(self) -> list[str]:
        """What was guessed, in words."""
        return [f"{name}={shown(value)}" for name, value in self.arguments.items() if name not in self.declared]


def shares_of(config: Any) -> list[str]:
    """What a configuration says of dropout, by name."""
    if isinstance(config, dict):
        named = dict(config)
    else:
        names = config.asked if isinstance(config, GuessedConfig) else dir(config)
        named = {name: getattr(config, name, None) for name in names if is_dropout(name) and not name.startswith("_")}
    return [name for name, value in named.items() if is_dropout(name) and isinstance(value, float)]


def applied(make: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call it with these arguments, by their places where it takes them no other way."""
    placed = [p.name for p in parameters_of(make).values() if p.kind is p.POSITIONAL_ONLY and p.name in arguments]
    named = {name: value for name, value in arguments.items() if name not in placed}
    return make(*(arguments[name] for name in placed), **named)


def copied_parts(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with modules among them copied: what is built twice must not share weights."""
    return {n: copy.deepcopy(v) if isinstance(v, nn.Module) else v for n, v in arguments.items()}


def lively(module: nn.Module, seed: int) -> nn.Module:
    """In float64, not training, with no weight that is all zero: a fresh bias often is, and hides what it does."""
    module = module.double().eval()
    draw = torch.Generator().manual_seed(seed + 1)
    seen: list[torch.Tensor] = []
    tables = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}  # an output may copy one
    with torch.no_grad():
        for weight in module.parameters():
            if not weight.is_floating_point() or not weight.numel():
                continue
            noise = torch.randn(weight.shape, generator=draw, dtype=torch.float64)
            if not float(weight.abs().max()) < WILD:  # not set yet: whatever lay in memory
                weight.copy_(noise / weight.shape[-1] ** 0.5)
            elif weight.dim() < 2 or not bool(weight.abs().max() > 0):
                weight.add_(0.1 * noise)
            elif float(weight.std()) < 0.05:  # made for training: too faint to tell one token from another
                weight.add_(0.3 * noise / weight.shape[-1] ** 0.5)
            elif any(weight.shape == other.shape and torch.equal(weight, other) for other in seen):
                weight.copy_(weight.std() * noise)  # a layer and its clone would hide that one is taken for the other
            if id(weight) not in tables:
                seen.append(weight.clone())
    return module


def copied(module: nn.Module) -> nn.Module:
    """A deep copy; what has a history cannot be copied."""
    forget(module)
    return copy.deepcopy(module)


def forget(module: nn.Module) -> None:
    """Cut the history of what a call left behind in a module: no gradient leads from one call into another."""
    for part in module.modules():
        for name, value in (*vars(part).items(), *part._buffers.items()):
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                setattr(part, name, value.detach())


def recipe(
    make: Callable[..., Any], given: Mapping[str, Any] | None = None, trials: Sequence[Sizes] = TRIALS, depth: int = 0
) -> Recipe:
    """Arguments with which the target can be built, the first that work."""
    tries = Tries()
    for plan in plans(make, given, trials, tries, depth):
        return plan
    raise unbuilt(make, given or {}, tries)


def unbuilt(make: Callable[..., Any], given: Mapping[str, Any], tries: Tries) -> CannotCheck:
    """What to say of a target that cannot be built."""
    if inspect.isabstract(make):
        return CannotCheck(f"{called(make)} is abstract: check a class that is derived from it")
    if (words := tries.undefined()) is not None:
        return CannotCheck(f"{called(make)} cannot be built: {words}")
    return CannotCheck(
        f"{called(make)} cannot be built. Tried:\n  {tries.words()}\nGive its arguments: --init '{_json(make, given)}'"
    )


def plans(
    make: Callable[..., Any],
    given: Mapping[str, Any] | None,
    trials: Sequence[Sizes],
    tries: Tries,
    depth: int = 0,
) -> Iterator[Recipe]:
    """Every way to build the target that works, the most likely first; what fails goes to `tries`."""
    given, seen = dict(given or {}), list[Mapping[str, Any]]()
    budget = Budget(SETS // 4**depth, SECONDS / 4**depth, LEAST // 4**depth)
    _must_take(make, given)
    ordered = [candidates(make, sizes, given, depth) for sizes in trials]
    rounds = [(sizes, islice(found, FIRST)) for sizes, found in zip(trials, ordered, strict=True)]
    rounds += [(sizes, islice(found, TRIED)) for sizes, found in zip(trials, ordered, strict=True)]
    for sizes, found in rounds:  # the most likely at all sizes, before what is less likely at any
        for arguments in found:
            if budget.spent():
                return
            if any(same_arguments(arguments, other) for other in seen):
                continue
            seen.append(arguments)
            plan = Recipe(make, arguments, _told(sizes, arguments), given)
            if plan.sizes.width > 1 and _built(plan, tries):  # one channel tells nothing
                yield plan


def _must_take(make: Callable[..., Any], given: Mapping[str, Any]) -> None:
    parameters = parameters_of(make)
    unknown = [name for name in given if name not in parameters]
    anything = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(make).parameters.values()) if unknown else True
    if unknown and not anything:
        takes = ", ".join(parameters) or "nothing"
        raise CannotCheck(f"{called(make)} takes no {', '.join(unknown)}; it takes {takes}")


def _built(plan: Recipe, tries: Tries) -> bool:
    """Whether it can be built; a configuration that is asked what it does not know answers by a guess, and again."""
    config = next((v for v in plan.arguments.values() if isinstance(v, GuessedConfig)), None)
    open_: list[tuple[str, list[Any]]] = []  # names that were guessed, each with what is left to be tried
    for _ in range(ANSWERS):
        try:
            plan.build()
        except CannotCheck:
            raise
        except Unknown as error:
            if config is None or error.name is None:
                tries.add(_words(plan.arguments), error)
                return False
            left = [*UNKNOWN[:1], *options(plan.make, error.name), *UNKNOWN[1:], plan.sizes.width]
            open_.append((error.name, left))
            setattr(config, error.name, left.pop(0))
        except Exception as error:  # foreign code may raise anything
            tries.add(_words(plan.arguments), error)
            while open_ and not open_[-1][1]:
                open_.pop()
            if config is None or not open_:
                return False
            name, left = open_[-1]
            setattr(config, name, left.pop(0))
        else:
            return True
    return False


def same_arguments(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two sets of arguments are one."""
    plain = (int, float, str, bool, tuple, type(None))
    return one.keys() == other.keys() and all(
        value is other[name] or (isinstance(value, plain) and type(value) is type(other[name]) and value == other[name])
        for name, value in one.items()
    )


def candidates(
    make: Callable[..., Any], sizes: Sizes, given: Mapping[str, Any], depth: int = 0
) -> Iterator[dict[str, Any]]:
    """Sets of arguments to try: all that is understood; then less of it; then one argument otherwise."""

    def part(kind: Any) -> Any:
        if depth >= DEEPEST:
            raise CannotCheck(f"{called(kind)} is a part of a part")
        return recipe(kind, None, [sizes], depth + 1).build()

    guesser = Guesser(make, sizes, part)
    parameters = guesser.parameters
    needed = {name for name, p in parameters.items() if p.default is inspect.Parameter.empty}
    guesses = {name: guesser.guesses(p) for name, p in parameters.items() if name not in given}
    best = {name: values[0] for name, values in guesses.items() if values}
    bare = {name: value for name, value in best.items() if name in needed}
    sized = {name: value for name, value in best.items() if name in needed or size_word(name)}
    whole = {name: _whole(name, value, sizes) for name, value in bare.items()}
    mute = {name: sizes.width for name, value in bare.items() if type(value) is int and size_word(name) is None}
    for chosen in (best, sized, bare, whole, {**best, **mute}):
        yield _passed(chosen, given)
    left = {name: values[1] for name, values in guesses.items() if len(values) > 1 and values[0] is MISSING}
    for more in (left, *({name: value} for name, value in left.items())):
        yield _passed({**best, **more}, given)
    for base in (best, bare):
        for name, values in guesses.items():
            if name in needed:
                yield from (_passed({**base, name: value}, given) for value in values[1:])
    several = [name for name in guesses if name in needed and len(guesses[name]) > 1]
    for place, one in enumerate(several):
        for other in several[place + 1 :]:
            for first in guesses[one][1:3]:
                yield from (_passed({**best, one: first, other: second}, given) for second in guesses[other][1:3])
    switches = [name for name, p in parameters.items() if isinstance(p.default, bool) and name not in given]
    for name in switches:  # one of two must be on, and both are off if nothing is said
        yield _passed({**best, name: not parameters[name].default}, given)


def _passed(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in chosen.items() if value is not MISSING}, **given}


def _whole(name: str, value: Any, sizes: Sizes) -> Any:
    """A head's size may be meant for all heads together."""
    return sizes.width if size_word(name) == "head" else value


def _told(sizes: Sizes, arguments: Mapping[str, Any]) -> Sizes:
    """The sizes, corrected by what was really passed."""
    real: dict[str, int] = {}
    for name, value in arguments.items():
        word = size_word(name)
        if word in {"width", "heads", "kv_heads", "window", "longest"} and type(value) is int:
            real.setdefault(word, value)
    return dataclasses.replace(sizes, **real)


def called(make: Any) -> str:
    """What to call a target."""
    return str(getattr(make, "__name__", type(make).__name__))


def _words(arguments: Mapping[str, Any]) -> str:
    return "(" + ", ".join(f"{name}={shown(value)}" for name, value in arguments.items()) + ")"


def shown(value: Any) -> str:
    """A value in a few letters."""
    text = repr(value)
    if inspect.isclass(value):
        return value.__name__
    limit = 120 if isinstance(value, GuessedConfig) else 30
    return text if len(text) < limit else type(value).__name__ + "(...)"


def _json(make: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Its arguments as --init takes them, with what is guessed filled in."""
    found = next(iter(candidates(make, TRIALS[0], given)), {})
    plain = {n: v for n, v in found.items() if isinstance(v, int | float | str | bool | list | tuple) or v is None}
    open_ = [n for n in found if n not in plain]
    text = json.dumps(plain)
    rest = ", ".join(f'"{name}": ...' for name in open_)
    return text if not rest else f"{{{rest}}}" if not plain else f"{text[:-1]}, {rest}}}"


def rotations_of(found: Recipe) -> Callable[[int], Any] | None:
    """The tables of rotations that the target's own library makes for its configuration: a class beside it."""
    module = sys.modules.get(getattr(found.make, "__module__", ""))
    config = next((v for name, v in found.arguments.items() if name.lower() in CONFIGS), None)
    names = [n for n in vars(module) if n.endswith("RotaryEmbedding")] if module is not None else []
    if config is None or not names:
        return None
    try:
        tables = getattr(module, names[0])(config=config).double()
    except Exception:  # another constructor: tables of our own will do
        return None
    return lambda tokens: tables(torch.zeros(1, tokens, 1, dtype=torch.float64), torch.arange(tokens)[None])
