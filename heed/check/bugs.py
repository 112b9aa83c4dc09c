"""The bugs that are known here, each under a name that never changes. What is said about them is in `bugs.toml`."""

from __future__ import annotations

import re
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
    asked_by: tuple[str, ...] = ()  # how words begin that ask for just that in the name of a switch
    named_by: tuple[str, ...] = ()  # the same in the name of the target: another kind of attention, where it is none
    tell: str = ""  # what would show that it is this one, where another looks the same


@cache
def _bugs() -> dict[str, Bug]:
    told = tomllib.loads(files(__package__).joinpath("bugs.toml").read_text(encoding="utf-8"))
    return {slug: Bug(slug, **{name: _fixed(value) for name, value in fields.items()}) for slug, fields in told.items()}


def _fixed(value: str | list[str]) -> Any:
    return tuple(value) if isinstance(value, list) else value.strip("\n")


BUGS: dict[str, Bug] = _bugs()


def asked_by(switch: str) -> set[str]:
    """The bugs that are none where a switch of the constructor is called so: `use_sigmoid`, `scale_by_width`."""
    return {slug for slug, bug in BUGS.items() if _begin(switch, bug.asked_by)}


def named_by(target: str) -> set[str]:
    """The bugs that are none where the target itself is called so: `LinearAttention` needs no softmax."""
    return {slug for slug, bug in BUGS.items() if _begin(target, bug.named_by)}


def _begin(name: str, words: tuple[str, ...]) -> bool:
    """Whether a word of the name begins so; a word inside another one, as `relu` in `prelude`, says nothing."""
    return any(part.lower().startswith(words) for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*", name))
