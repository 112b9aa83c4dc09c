"""The bugs that are known here, each under a name that never changes. What is said about them is in `bugs.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Bug:
    """A way in which attention goes wrong."""

    slug: str
    says: str  # what is wrong, in one sentence
    hides: str  # why it goes unnoticed
    fix: str  # what to do, in words
    before: str  # a line of wrong code
    after: str  # the same line, mended
    case: str  # where it happened in public
    probes: tuple[str, ...]  # those that find it
    example: str  # wrong code that can be run: it leaves a report
    explains: tuple[str, ...] = ()  # other slugs that follow from it
    asked_by: tuple[str, ...] = ()  # words in the name of a switch or of the target that ask for just that
    tell: str = ""  # what would show that it is this one, where another looks the same


@cache
def _bugs() -> dict[str, Bug]:
    told = tomllib.loads(files(__package__).joinpath("bugs.toml").read_text(encoding="utf-8"))
    return {slug: Bug(slug, **{name: _fixed(value) for name, value in fields.items()}) for slug, fields in told.items()}


def _fixed(value: str | list[str]) -> Any:
    return tuple(value) if isinstance(value, list) else value.strip("\n")


BUGS: dict[str, Bug] = _bugs()


def meant_by(name: str) -> set[str]:
    """The bugs that are none where a switch or the target itself is called so: `sigmoid`, `linear_attention`."""
    return {slug for slug, bug in BUGS.items() if any(word in name.lower() for word in bug.asked_by)}
