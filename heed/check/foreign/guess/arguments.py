"""What one argument of a constructor may be, the most likely first: by its default, its annotation and its name."""

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import torch
from torch import nn

from ..sizes import SIZES, Sizes, cut, is_dropout, listed, size_word
from .configs import GuessedConfig, configurations, usual_value
from .parts import ACTS, ATTENDS, FEEDS, NORMS, PROJECTS, WRAPS, built_of, part_named

MISSING: Any = object()  # left to its default
CONFIGS = {"config", "cfg", "args", "conf", "hparams", "params", "model_args", "options", "opt", "opts", "c_args"}
MOST = 6  # guesses for one argument
_OF_TEXT = listed("lower upper startswith endswith split strip casefold")
_MODULES = ATTENDS | FEEDS | NORMS | ACTS | WRAPS | PROJECTS


class Guesser:
    """Guesses for the arguments of one constructor, at one set of sizes."""

    def __init__(
        self,
        make: Callable[..., Any],
        sizes: Sizes,
        build: Callable[[Any], Any],
        answers: Mapping[str, Any] | None = None,
    ) -> None:
        self.make, self.sizes, self.build, self.answers = make, sizes, build, answers or {}
        self.hints = _hints(make)
        self.parameters = parameters_of(make)

    def guesses(self, parameter: inspect.Parameter) -> list[Any]:
        """Values to try, best first; `MISSING` leaves it to its default."""
        found = list[Any]()
        for value in self._all(parameter):
            if not any(_alike(value, other) for other in found):
                found.append(value)
            if len(found) >= MOST:
                break
        return found

    def _all(self, parameter: inspect.Parameter) -> Iterator[Any]:
        name, default = parameter.name, parameter.default
        if name.lower() in CONFIGS and default in (inspect.Parameter.empty, None):
            yield from self._configured(parameter)
            return
        if default is not inspect.Parameter.empty:
            yield from self._optional(name, default)
            return
        noted = self.hints.get(name, parameter.annotation)
        yield from self._by_annotation(name, noted)
        yield from self._by_name(name)

    def _configured(self, parameter: inspect.Parameter) -> Iterator[Any]:
        noted = self.hints.get(parameter.name, parameter.annotation)
        yield from configurations(noted, self.sizes, self.make)
        yield GuessedConfig(self.sizes, self.answers)

    def _optional(self, name: str, default: Any) -> Iterator[Any]:
        """What has a default is changed only where it is a size, or a share of what is dropped."""
        word = size_word(name)
        whole = isinstance(default, int) and not isinstance(default, bool)
        if word is not None and (whole or (word == "kv_heads" and default is None)) and not _small(name, default):
            yield getattr(self.sizes, word)
        elif word in ("side", "window") and isinstance(default, tuple | list) and len(default) == 2:
            pair = (getattr(self.sizes, word),) * 2
            yield list(pair) if isinstance(default, list) else pair
        elif is_dropout(name) and type(default) in (float, int):
            yield 0.0
        elif name == "batch_first":
            yield True
        yield MISSING
        if default is None and "processor" in cut(name):
            yield from _made_beside(self.make, "processor")  # what it calls to attend
        if word is not None and default is None:
            yield getattr(self.sizes, word)  # some can be left out only together with others

    def _by_annotation(self, name: str, noted: Any) -> Iterator[Any]:
        origin, inner = get_origin(noted), get_args(noted)
        if origin is Literal:
            yield from inner
        elif origin in (Union, types.UnionType):
            for part in (part for part in inner if part is not type(None)):
                yield from self._by_annotation(name, part)
            if size_word(name) is None:
                yield None
        elif inspect.isclass(noted) and issubclass(noted, enum.Enum):
            yield from noted
        elif inspect.isclass(noted) and issubclass(noted, nn.Module):
            yield from part_named(name, self.sizes, self.make, self.build) if noted is nn.Module else ()
            yield from built_of(noted, self.sizes, self.build)
        elif origin is type or noted is type:
            yield from (nn.LayerNorm, nn.GELU) if not set(cut(name)) & ACTS else (nn.GELU, nn.ReLU)
        elif origin is tuple or noted is tuple:
            yield from self._pairs(name, inner)
        elif list in (origin, noted) or origin in (Sequence, Iterable) or noted in (Sequence, Iterable):
            yield self._several(name)
        elif noted is torch.Tensor:
            yield torch.zeros(self.sizes.width)
        else:
            yield from self._plain(name, noted)

    def _plain(self, name: str, noted: Any) -> Iterator[Any]:
        """Of numbers, switches and strings; and of classes of configurations."""
        usual, word = usual_value(name), size_word(name)
        if noted is bool:
            yield from (bool(usual), not usual)
        elif noted is int:
            number = usual if type(usual) is int else self._number(name, word)
            yield from (number, *((self.sizes.heads,) if word == "kv_heads" else ()), 1, 2, self.sizes.width)
        elif noted is float:
            yield from (0.0 if is_dropout(name) else usual if type(usual) is float else self._scale(name), 1.0)
        elif noted is str:
            yield from options(self.make, name)
            yield usual if isinstance(usual, str) else "none"
        elif noted is dict or get_origin(noted) is dict:
            yield from ({}, GuessedConfig(self.sizes, self.answers))
        elif noted is typing.Callable or get_origin(noted) is Callable:
            yield from filter(callable, part_named(name, self.sizes, self.make, self.build))
            yield from (nn.GELU(), nn.LayerNorm)
        elif inspect.isclass(noted) and noted.__module__ not in ("builtins", "inspect", "typing"):
            yield from configurations(noted, self.sizes, self.make)

    def _by_name(self, name: str) -> Iterator[Any]:
        word, words = size_word(name), frozenset(cut(name))
        asked = attributes_of(self.make, name)
        if word is None and any(size_word(one) is not None for one in asked):  # an object that keeps the sizes
            yield GuessedConfig(self.sizes, self.answers)
        elif many := _taken_apart(self.make, name):
            usual = usual_value(name)
            yield (usual if type(usual) is int else self._number(name, word),) * many
        elif _is_several(self.make, name):
            yield self._several(name)
        elif asked & _OF_TEXT:
            yield from (*options(self.make, name), "none")
        if word is not None:
            size = getattr(self.sizes, word)
            pair = (size, size)
            yield from (
                (pair, size) if "resolution" in words else (size, pair) if word in ("side", "window") else (size,)
            )
        usual = usual_value(name)
        if usual is not None and not words & ACTS:
            yield usual
        if words & {"device", "dtype"}:
            yield None
        if words & {"temperature", "scale", "scaling"}:
            yield self._scale(name)
        if words & _MODULES and word is None:
            yield from part_named(name, self.sizes, self.make, self.build)
        yield from options(self.make, name)
        if words & {"config", "cfg", "conf"}:
            yield GuessedConfig(self.sizes, self.answers)
        if word is None:
            yield from self._unknown(name)

    def _unknown(self, name: str) -> Iterator[Any]:
        """By its place: the first that says nothing is the width, the second the number of heads."""
        if _is_called(self.make, name):
            yield from part_named("fn", self.sizes, self.make, self.build)
            return
        needed = [n for n, p in self.parameters.items() if p.default is inspect.Parameter.empty]
        known = {size_word(other) for other in needed}
        mute = [n for n in needed if size_word(n) is None and usual_value(n) is None and not set(cut(n)) & _MODULES]
        mute = [n for n in mute if not _is_called(self.make, n)]
        place = mute.index(name) if name in mute else 9
        if "width" not in known and place == 0:
            yield self.sizes.width
        if "heads" not in known and place == (1 if "width" not in known else 0):
            yield self.sizes.heads
        yield from (1, None, self.sizes.width, False)

    def _pairs(self, name: str, inner: tuple[Any, ...]) -> Iterator[Any]:
        many = len(inner) if inner and Ellipsis not in inner else 2
        yield (self._number(name, size_word(name)),) * many

    def _several(self, name: str) -> list[int]:
        word = size_word(name)
        return [self.sizes.window + 1 if word == "longest" else self._number(name, word)] * 2

    def _number(self, name: str, word: str | None) -> int:
        return getattr(self.sizes, word) if word is not None else 1

    def _scale(self, name: str) -> float:
        return float(self.sizes.head**0.5) if "temperature" in cut(name) else float(self.sizes.head**-0.5)


def _small(name: str, default: Any) -> bool:
    """Whether something optional, called a size in words of its own, is none or one if nothing is said: it stays so."""
    return isinstance(default, int) and default < 2 and name.lower().strip("_") not in SIZES


def parameters_of(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The arguments that a constructor names; and, where it hands others on to that of its base, those of that."""
    try:
        found = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return {}
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = {name: parameter for name, parameter in found.items() if parameter.kind not in fixed}
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in found.values()):
        return named
    return {**named, **{name: parameter for name, parameter in _handed_on(make).items() if name not in named}}


def _handed_on(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What another constructor, that of the base or of a part, takes of `**kwargs` and is not given by name."""
    own = [kind for kind in inspect.getmro(make) if "__init__" in vars(kind)] if inspect.isclass(make) else []
    if not own:
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(vars(own[0])["__init__"])))
    except (TypeError, OSError, SyntaxError):
        return {}
    home = vars(sys.modules.get(own[0].__module__, sys))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or all(part.arg is not None for part in node.keywords):
            continue
        told = ast.unparse(node.func)
        by_name = told.removesuffix(".__init__").rpartition(".")[2] if told.endswith(".__init__") else None
        above = told.startswith("super(") and len(own) > 1
        other = own[1] if above else home.get(told)
        other = next((kind for kind in own[1:] if kind.__name__ == by_name), other)
        if inspect.isclass(other) and other is not make and (issubclass(other, nn.Module) or other in own):
            settled = {part.arg for part in node.keywords}
            placed = [arg for arg in node.args if not isinstance(arg, ast.Starred)]
            given = list(parameters_of(other).values())[len(placed) - (other.__name__ == by_name) :]
            return {p.name: p.replace(kind=p.KEYWORD_ONLY) for p in given if p.name not in settled}
    return {}


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    """Annotations as objects, where they can be resolved."""
    function = make.__init__ if inspect.isclass(make) else make
    try:
        return typing.get_type_hints(function)
    except Exception:  # names that are imported for type checkers only
        pass
    home = vars(sys.modules.get(getattr(make, "__module__", ""), sys))
    noted = getattr(function, "__annotations__", {})
    found: dict[str, Any] = {}
    for name, annotation in noted.items():
        try:
            found[name] = eval(annotation, dict(home)) if isinstance(annotation, str) else annotation
        except Exception:  # this one stays unknown
            continue
    return found


def _is_called(make: Callable[..., Any], name: str) -> bool:
    """Whether the source calls what is given by this name, or what it is kept as."""
    try:
        source = inspect.getsource(make)
    except (TypeError, OSError):
        return False
    kept = re.findall(rf"self\.(\w+)\s*=\s*{re.escape(name)}\b", source)
    return any(re.search(rf"\b{word}\(", source) for word in (re.escape(name), *(rf"self\.{one}" for one in kept)))


def attributes_of(make: Callable[..., Any], name: str) -> frozenset[str]:
    """What the source asks an argument for, by the names of its attributes."""
    try:
        return frozenset(re.findall(rf"(?<![\w.]){re.escape(name)}\.(\w+)", inspect.getsource(make)))
    except (TypeError, OSError):
        return frozenset()


def _made_beside(make: Callable[..., Any], word: str) -> Iterator[Any]:
    """Objects of the classes of the same file that take nothing and are called so, the likest names first."""
    home = getattr(make, "__module__", "")
    kinds = [kind for kind in vars(sys.modules.get(home, sys)).values() if inspect.isclass(kind)]
    named = [kind for kind in kinds if kind.__module__ == home and word in cut(kind.__name__)]
    for kind in sorted(named, key=lambda kind: -len(set(cut(kind.__name__)) & set(cut(make.__name__)))):
        try:
            yield kind()
        except Exception:  # it wants something
            continue


def _taken_apart(make: Callable[..., Any], name: str) -> int:
    """Into how many names the source takes apart what is given by this name: `high, wide = size`; 0 if it does not."""
    try:
        source = inspect.getsource(make)
    except (TypeError, OSError):
        return 0
    found = re.search(rf"^\s*\(?((?:[\w.]+\s*,\s*)+[\w.]+)\)?\s*=\s*{re.escape(name)}\s*$", source, re.MULTILINE)
    return found[1].count(",") + 1 if found else 0


def _is_several(make: Callable[..., Any], name: str) -> bool:
    """Whether the source counts what is given by this name, or goes through it."""
    try:
        source = inspect.getsource(make)
    except (TypeError, OSError):
        return False
    word = re.escape(name)
    return re.search(rf"\b(?:len|enumerate|zip|tuple|list)\({word}\b|\bin {word}\b", source) is not None


def options(make: Callable[..., Any], name: str) -> list[str]:
    """Strings that the source compares an argument with: one of them is meant."""
    try:
        source = inspect.getsource(make)
    except (TypeError, OSError):
        return []
    word = re.escape(name)
    text = r"[\"'](\w[\w\- ]*)[\"']"
    found = re.findall(rf"\b{word}\s*(?:==|!=)\s*{text}", source)
    for group in re.findall(rf"\b{word}\s+(?:not\s+)?in\s+[\[\(\{{]([^\]\)\}}]*)", source):
        found += re.findall(text, group)
    for group in re.findall(rf"\{{([^{{}}]*)\}}\[\s*{word}\s*\]", source):
        found += re.findall(text + r"\s*:", group)
    return list(dict.fromkeys(found))[:4]


def _alike(one: Any, other: Any) -> bool:
    plain = (int, float, str, bool, tuple, type(None))
    if one is other:
        return True
    return isinstance(one, plain) and isinstance(other, plain) and type(one) is type(other) and one == other
