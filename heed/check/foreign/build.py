"""Building a foreign class: its constructor's arguments are guessed from their names, and tried.

A `config` that the constructor takes is built in the same way if its class can be found (by its annotation, or beside
the target), and is otherwise an object that answers whatever it is asked by name.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .target import CannotCheck
from .words import TRIALS, Sizes, is_dropout, plain_value, size_word

MISSING = object()
WILD = 1e4  # weights beyond this, or no numbers, were never set
CONFIGS = {"config", "cfg", "args", "conf", "hparams", "params", "model_args", "options"}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How to build the target: again with another seed, or with an argument changed."""

    make: Callable[..., Any]
    arguments: Mapping[str, Any]
    sizes: Sizes
    declared: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def build(self, seed: int = 0, **changed: Any) -> Any:
        """A fresh one, in float64, not training."""
        torch.manual_seed(seed)
        made = self.make(**{**self.arguments, **changed})
        return lively(made, seed) if isinstance(made, nn.Module) else made

    @property
    def flags(self) -> dict[str, Any]:
        """Switches of the constructor, with what they were set to."""
        return {name: value for name, value in self.arguments.items() if isinstance(value, bool)}

    @property
    def dropouts(self) -> list[str]:
        """Arguments that are shares of what is dropped."""
        names = [name for name in self.arguments if is_dropout(name)]
        return [name for name in names if isinstance(self.arguments[name], float | int)]


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
    make: Callable[..., Any], given: Mapping[str, Any] | None = None, trials: Sequence[Sizes] = TRIALS
) -> Recipe:
    """Arguments with which the target can be built, the first that work."""
    given, problems = dict(given or {}), list[str]()
    for sizes, choice in ((sizes, choice) for sizes in trials for choice in range(3)):
        for arguments in candidates(make, sizes, given, choice):
            attempt = Recipe(make, arguments, _told(sizes, arguments), given)
            try:
                attempt.build()
            except CannotCheck:
                raise
            except Exception as error:  # foreign code may raise anything
                problems.append(f"{_words(arguments)}: {type(error).__name__}: {error}")
            else:
                return attempt
    shown = "\n  ".join(dict.fromkeys(problems[:4]))
    raise CannotCheck(
        f"{_name(make)} cannot be built. Tried:\n  {shown}\nGive its arguments: --init '{{\"d_model\": 32, ...}}'"
    )


def candidates(
    make: Callable[..., Any], sizes: Sizes, given: Mapping[str, Any], choice: int = 0
) -> Iterator[dict[str, Any]]:
    """Sets of arguments to try: all that is understood, then only what must be given."""
    parameters = _parameters(make)
    unknown = [name for name in given if name not in parameters]
    if unknown and not _takes_any(make):
        raise CannotCheck(f"{_name(make)} takes no {', '.join(unknown)}; it takes {', '.join(parameters) or 'nothing'}")
    ours = {name: _guess(parameter, sizes, make, choice) for name, parameter in parameters.items() if name not in given}
    needed = {name for name, p in parameters.items() if p.default is inspect.Parameter.empty}
    lacking = [name for name in needed if name not in given and ours[name] is MISSING]
    if lacking:
        raise CannotCheck(
            f"it is unknown what {_name(make)} wants as {', '.join(lacking)}; give it: "
            f"--init '{{\"{lacking[0]}\": ...}}'"
        )
    known = {name: value for name, value in ours.items() if value is not MISSING}
    yield {**known, **given}
    yield {**{name: value for name, value in known.items() if name in needed or size_word(name)}, **given}
    yield {**{name: value for name, value in known.items() if name in needed}, **given}
    yield {**{name: _whole(name, value, sizes) for name, value in known.items() if name in needed}, **given}


def _whole(name: str, value: Any, sizes: Sizes) -> Any:
    """A head's size may be meant for all heads together."""
    return sizes.width if size_word(name) == "head" else value


def _guess(parameter: inspect.Parameter, sizes: Sizes, make: Callable[..., Any], choice: int) -> Any:
    name, default = parameter.name, parameter.default
    if name.lower() in CONFIGS and default in (inspect.Parameter.empty, None):
        return configured(parameter, sizes, make, choice)
    word, absent = size_word(name), default is inspect.Parameter.empty
    grouped = word == "kv_heads" and default is None  # as many as heads, unless it is told
    if word is not None and (absent or grouped or (isinstance(default, int) and not isinstance(default, bool))):
        return getattr(sizes, word)
    usual = plain_value(name)
    if usual is not None and (absent or (type(default) in (float, int) and is_dropout(name)) or name == "batch_first"):
        return usual
    if not absent:
        return MISSING  # its own default
    return {bool: False, "bool": False, float: 1.0, "float": 1.0, int: 8, "int": 8, str: "gelu"}.get(
        parameter.annotation, None if name in {"device", "dtype"} else MISSING
    )


def configured(parameter: inspect.Parameter, sizes: Sizes, make: Callable[..., Any], choice: int) -> Any:
    """A configuration object: of its own class if that can be found, or one that answers by name."""
    for kind in _config_classes(parameter, make)[choice:]:
        try:
            return _configuration(kind, sizes)
        except Exception:  # the next one may do
            continue
    return GuessedConfig(sizes)


class GuessedConfig:
    """A configuration that knows every size by its usual names."""

    def __init__(self, sizes: Sizes) -> None:
        self.__dict__["_sizes"] = sizes

    def __getattr__(self, name: str) -> Any:
        word = size_word(name)
        if word is not None:
            return getattr(self._sizes, word)
        if name.startswith("__") or (plain_value(name) is None and name not in {"device", "dtype"}):
            raise AttributeError(f"the configuration was asked for {name!r}, which is unknown; give --init")
        return plain_value(name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            return default


def _configuration(kind: type, sizes: Sizes) -> Any:
    """An instance with the sizes that it knows: of a dataclass, of a class with arguments, of transformers."""
    names = [n for n in _parameters(kind) if n not in {"self", "kwargs"}]
    if not names:
        made = kind()
        names = [name for name in vars(made) if not name.startswith("_")]
    known = {name: getattr(sizes, word) for name in names if (word := size_word(name)) is not None}
    dropped = {name: 0.0 for name in names if is_dropout(name)}
    lists = {name: value for name, value in (("rope_scaling", None), ("layer_types", None)) if name in names}
    made = kind(**{**known, **dropped, **lists})
    _settle(made, known)
    return made


def _settle(made: Any, known: Mapping[str, Any]) -> None:
    """What configurations of transformers lack until a model is made of them."""
    for name in ("_attn_implementation", "attn_implementation"):
        if name == "_attn_implementation" and name in dir(made):
            made._attn_implementation = "eager"


def _config_classes(parameter: inspect.Parameter, make: Callable[..., Any]) -> list[type]:
    """Classes that may be meant: by the annotation, then those beside the target whose name says so."""
    module = sys.modules.get(getattr(make, "__module__", ""), None)
    names = vars(module) if module is not None else {}
    noted = parameter.annotation
    noted = names.get(noted.strip("'\"").split("|")[0].strip()) if isinstance(noted, str) else noted
    beside = [value for name, value in names.items() if inspect.isclass(value) and name.lower().endswith("config")]
    own = [value for value in beside if value.__name__ != "PreTrainedConfig"]
    prefix = _name(make)
    own.sort(key=lambda kind: -_shared(kind.__name__, prefix))
    return [kind for kind in (noted, *own) if inspect.isclass(kind) and kind not in (dict, inspect.Parameter.empty)]


def _shared(one: str, other: str) -> int:
    """How many letters two names begin with in common."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _parameters(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return {}
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: parameter for name, parameter in found.items() if parameter.kind not in fixed}


def _takes_any(make: Callable[..., Any]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(make).parameters.values())


def _told(sizes: Sizes, arguments: Mapping[str, Any]) -> Sizes:
    """The sizes, corrected by what was really passed."""
    real: dict[str, int] = {}
    for name, value in arguments.items():
        word = size_word(name)
        if word in {"width", "heads", "kv_heads", "window", "longest"} and isinstance(value, int):
            real.setdefault(word, value)
    return dataclasses.replace(sizes, **real)


def _name(make: Callable[..., Any]) -> str:
    return getattr(make, "__name__", type(make).__name__)


def _words(arguments: Mapping[str, Any]) -> str:
    return "(" + ", ".join(f"{name}={_short(value)}" for name, value in arguments.items()) + ")"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 30 else type(value).__name__ + "(...)"


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
