"""What a plot is made of, before it is drawn; and how a configuration is chosen by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from ..core.config import Config, override, read_data
from ..core.errors import InputError

C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Asked:
    """What was asked for."""

    config: Config | str | None = None
    changes: tuple[str, ...] = ()
    tokens: int | None = None
    text: str | None = None
    token: str | None = None


@dataclass(frozen=True)
class Square:
    """A map of numbers with a sign."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Curves:
    """Lines by name, over the same axes."""

    across: str
    up: str
    lines: dict[str, tuple[tuple[float, float], ...]]
    logarithmic: bool = False


@dataclass(frozen=True)
class Picture:
    """Maps, curves and facts of one mechanism."""

    title: str
    squares: tuple[Square, ...] = ()
    curves: tuple[Curves, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()


def square(
    name: str, values: Tensor, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> Square:
    """Of a matrix; what has no name has a number."""
    high, wide = values.shape
    return Square(
        name,
        tuple(map(str, range(high))) if rows is None else tuple(rows),
        tuple(map(str, range(wide))) if columns is None else tuple(columns),
        tuple(tuple(map(float, row)) for row in values.tolist()),
    )


def chosen(asked: Asked, chooser: type[C], usual: str) -> Config:
    """The configuration that is meant; `chooser` is a class with one field `it`, of the table to choose from."""
    if isinstance(asked.config, Config):
        if asked.changes:
            raise InputError("a configuration in Python is changed in Python; changes are for names and files")
        return asked.config
    named = asked.config or usual
    path = Path(named)
    data = read_data(path) if path.suffix in (".toml", ".json") else {"kind": named}
    whole = chooser.load(override({"it": data}, [f"it.{change}" for change in asked.changes]))
    (found,) = (value for _, value in whole)
    if not isinstance(found, Config):
        raise InputError(f"{named} describes no configuration")
    return found
