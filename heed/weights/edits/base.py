"""What an edit is: a typed configuration that changes some layers of a model, named by patterns."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, TypeAlias, TypeVar

from pydantic import BeforeValidator
from torch import nn

from ...core.config import Config, Text
from ...core.errors import ConfigError
from ...parts.layers.linear import LinearLike
from ..formats.native import current

M = TypeVar("M", bound=nn.Module)
Layer: TypeAlias = "nn.Linear | LinearLike"

SHOWN = 12  # names that a message lists


def _patterns(value: object) -> object:
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, tuple | list):
        return value
    return tuple(current(one) if isinstance(one, str) else one for one in several)  # a config of the last release


Patterns: TypeAlias = Annotated[Text | tuple[Text, ...], BeforeValidator(_patterns)]  # one or several, held as a tuple


class Edit(Config):
    """A change to a model that is there already. `*` in a pattern stands for any text."""

    on: Patterns = ("*",)  # what is changed, by name
    but: Patterns = ()  # except what is named here

    @abstractmethod
    def apply(self, model: nn.Module) -> None:
        """Change the model in place."""

    def chosen(self, names: Iterable[str], what: str) -> list[str]:
        """The names that are meant. A pattern that fits none is an error: it is misspelt, or for another model."""
        known = list(names)
        for field, patterns in (("on", self.on), ("but", self.but)):
            lost = next(
                (pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in known)), None
            )
            if lost is not None:
                raise ConfigError(f"{field} = {lost!r} names no {what} of this model{near_names(lost, known)}")
        return [name for name in known if _fits(name, self.on) and not _fits(name, self.but)]


class Swap(Edit):
    """An edit that puts other layers in the place of linear ones."""

    @abstractmethod
    def swapped(self, name: str, layer: Layer) -> nn.Module:
        """What stands in the place of this layer from now on."""

    def apply(self, model: nn.Module) -> None:
        layers = linears(model)
        fresh: dict[int, nn.Module] = {}  # a layer that stands in several places stays one layer
        for name in self.chosen(layers, "linear layer"):
            layer = layers[name]
            made = fresh.get(id(layer)) or fresh.setdefault(id(layer), self.swapped(name, layer))
            model.set_submodule(name, made.train(layer.training))


def edit(model: M, *edits: Edit) -> M:
    """The same model, changed: by one edit after the other."""
    for change in edits:
        change.apply(model)
    return model


def linears(model: nn.Module) -> dict[str, Layer]:
    """The linear layers of a model by name, edited ones among them, but not what those are made of."""
    found: dict[str, Layer] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        outer = name.rpartition(".")[0]  # an edited layer is the parent of what it is made of
        if isinstance(module, nn.Linear | LinearLike) and outer not in found:
            found[name] = module
    return found


def plain(name: str, layer: Layer, edit: str) -> nn.Linear:
    """The layer, if it is nothing but a matrix and a bias."""
    if type(layer) is nn.Linear:
        return layer
    raise ConfigError(
        f"{name} is a {type(layer).__name__}, more than a matrix and a bias: {edit} cannot stand in its place; "
        f'leave it out with but = "{name}", or edit in another order'
    )


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def near_names(pattern: str, names: list[str]) -> str:
    """What was probably meant: the same pattern with another ending, or else all names, layers taken together."""
    alike = sorted({re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name) for name in names})
    stem, dot, last = pattern.rpartition(".")
    close = get_close_matches(last, {name.rpartition(".")[2] for name in names}, 1)
    if close and close[0] != last and any(fnmatchcase(name, f"{stem}{dot}{close[0]}") for name in names):
        return f"; did you mean {stem}{dot}{close[0]}?"
    near = get_close_matches(pattern, alike, 1)
    more = f" and {len(alike) - SHOWN} more" if len(alike) > SHOWN else ""
    return f"; did you mean {near[0]}?" if near else f"; there is {', '.join(alike[:SHOWN]) or 'none'}{more}"
