"""Lazy registries: tables of names and of the modules that hold them. What is not asked for is not imported.

heed knows hundreds of classes and a program needs few of them. A table is one visible list of names; a file, a
configuration or a checkpoint names an entry, and only that entry's module is imported. Iterating over a table imports
all of it.

Import-time magic that lives here: `later` makes the `__getattr__` and `__dir__` of a package (PEP 562), for names that
are imported on first use and for old names that warn; nothing else in heed defines a module `__getattr__`, except
`heed` itself.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, overload
from warnings import warn

T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class Named(Mapping[str, T_co]):
    """Things of a package by name: `{"gru": "lstm:Gru.Config"}` is `Gru.Config` of its module `lstm`."""

    def __init__(self, package: str, places: Mapping[str, str], renamed: Mapping[str, str] | None = None) -> None:
        self.package, self.places = package, places
        self.renamed = renamed or {}  # names that things had before, and those that they have now

    def __getitem__(self, name: str) -> T_co:
        module, _, path = self.places[name].partition(":")
        thing: T_co = attrgetter(path)(_imported(self.package, module))
        return thing

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.places  # a mapping would import it to find out

    @property
    def holders(self) -> Iterator[tuple[str, str]]:
        """The classes, and which module holds each."""
        for place in self.places.values():
            module, _, path = place.partition(":")
            yield path.partition(".")[0], module


class Table(Sequence[T_co]):
    """The same as a tuple, in the order of the names; a thing of several names stands in it once."""

    def __init__(self, package: str, places: Mapping[str, str], renamed: Mapping[str, str] | None = None) -> None:
        self.named: Named[T_co] = Named(package, places, renamed)
        firsts = dict[str, str]()
        for name, place in places.items():
            firsts.setdefault(place, name)
        self._firsts = list(firsts.values())

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        found = self._firsts[index]
        return self.named[found] if isinstance(found, str) else tuple(self.named[name] for name in found)

    def __len__(self) -> int:
        return len(self._firsts)

    def __add__(self, other: Table[T_co]) -> Table[T_co]:
        """Both tables of a package as one."""
        one, two = self.named, other.named
        return Table(one.package, {**one.places, **two.places}, {**one.renamed, **two.renamed})


def later(
    package: str, holders: Mapping[str, str], *tables: Table[object], renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`: public names and the modules that hold them, and what is in its tables.

    A name is imported when it is first asked for. It must not be that of a module of the package: once that is
    imported, Python gives the module instead. `renamed` maps names of the last release to those of this one, in this
    package or, as `heed.pipelines:Pipeline`, in another; using one warns.
    """
    old = renamed or {}
    holders = {**holders, **{name: module for table in tables for name, module in table.named.holders}}

    def get(name: str) -> Any:
        if name in old:
            return _renamed(package, name, old[name])
        if name not in holders:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        thing = getattr(_imported(package, holders[name]), name)
        setattr(sys.modules[package], name, thing)  # asked for once
        return thing

    return get, lambda: sorted({*vars(sys.modules[package]), *holders})


@contextmanager
def gc_paused() -> Iterator[None]:
    """No garbage collection meanwhile, for what makes objects that stay: importing classes, loading a model.

    With torch imported a full collection would walk 200,000 objects and find nothing to free.
    """
    worked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if worked:
            gc.enable()


def _renamed(package: str, name: str, now: str) -> Any:
    module, _, new = now.rpartition(":")
    home = module or package
    warn(f"{package}.{name} is called {home}.{new} now; the old name will go", DeprecationWarning, stacklevel=3)
    return getattr(import_module(home), new)


def _imported(package: str, module: str) -> ModuleType:
    with gc_paused():
        return import_module(f".{module}", package)


def renamed_arguments(**now: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`@renamed_arguments(limit="max_new_tokens")`: the old keyword is taken for the new one.

    Type checkers know the new names alone.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*given: P.args, **named: P.kwargs) -> T:
            old = now.keys() & named.keys()
            for name in sorted(old):
                message = f"{function.__name__}: {name} is called {now[name]} now; the old name will go"
                warn(message, DeprecationWarning, stacklevel=2)
            current: Any = {now.get(name, name): value for name, value in named.items()} if old else named
            return function(*given, **current)

        return call

    return decorate
