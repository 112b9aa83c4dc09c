"""Lazy registries: tables of names and of the modules that hold them. What is not asked for is not imported.

heed knows hundreds of classes and a program needs few of them. A table is one visible list of names; a file, a
configuration or a checkpoint names an entry, and only that entry's module is imported. Iterating over a table imports
all of it.

A table may be open to other packages (`Outside`), which register classes or declare them in their pyproject.toml:

    [project.entry-points."heed.mixers"]
    average = "averaging.mixers:Average"

Installed packages are asked only when a name is not one of heed's own or the whole table is gone through, and what they
declare is imported when it is asked for: `import heed` costs no more for it.

Import-time magic that lives here: `later` makes the `__getattr__` and `__dir__` of a package (PEP 562), for names that
are imported on first use and for old names that warn; nothing else in heed defines a module `__getattr__`, except
`heed` itself.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, overload
from warnings import warn

from .errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint  # takes as long to import as heed does, and is seldom needed

T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")
SCRIPT = "__main__"


class Origin(NamedTuple):
    """The package that an entry comes from."""

    package: str
    version: str = ""

    @classmethod
    def of_class(cls, thing: type) -> Origin:
        """Of a class that was registered: the package it was imported from."""
        from importlib.metadata import PackageNotFoundError, packages_distributions, version

        module = thing.__module__.partition(".")[0]
        package = next(iter(packages_distributions().get(module, ())), module)
        try:
            return cls(package, version(package))
        except PackageNotFoundError:  # a script, or a folder that is merely on the path
            return cls(package)

    @classmethod
    def of_entry(cls, entry: EntryPoint) -> Origin:
        """Of an entry point: the distribution that declares it."""
        if entry.dist is None:
            return cls(entry.module.partition(".")[0])
        return cls(entry.dist.name, entry.dist.version)

    def __str__(self) -> str:
        return f"{self.package} {self.version}".strip()

    @property
    def missing(self) -> str:
        """What to do where it is not there."""
        if self.package == SCRIPT:
            return "it was registered by a script: import or define the class before, under @heed.register"
        return (
            f"it is from the package {self}, which is not installed here or does not declare it: "
            f"pip install {self.package}, or import it first if it uses @heed.register"
        )


class Outside(Generic[T]):
    """What other packages bring into one table.

    `take` makes an entry of what a package offers, with its name, or says why it cannot be one. A name has one meaning:
    that of heed's own entry, or of one package's.
    """

    def __init__(self, group: str, take: Callable[[Any], tuple[str, T]]) -> None:
        self.group, self._take = group, take
        self.own: Collection[str] = ()  # heed's names: told by the table
        self._taken: dict[str, tuple[T, type | EntryPoint]] = {}  # by name: the entry, and what it was made of
        self._loaded: set[str] = set()  # names of entry points that were imported

    @property
    def names(self) -> list[str]:
        """All that there are, in no package's favour: registered or declared, by name."""
        return sorted({*self._taken, *self._declared})

    def find(self, name: str) -> T | None:
        """The entry of this name, imported if need be; None if no package brings one."""
        if name in self._declared and name not in self._loaded:  # a registered one, too: it must be the same
            self._load(self._declared[name])
        return self._taken[name][0] if name in self._taken else None

    def found(self) -> list[T]:
        """All of them that can be imported; a package that is broken is told about, and left out."""
        kept = []
        for name in self.names:
            try:
                thing = self.find(name)
            except ConfigError as error:
                warn(f"left out: {error}", stacklevel=3)
            else:
                kept += [] if thing is None else [thing]
        return kept

    def origin(self, name: str) -> Origin | None:
        """The package that brings this name; None if it is heed's own, or unknown."""
        source = self._taken[name][1] if name in self._taken else None
        if source is None:
            return None
        return Origin.of_class(source) if isinstance(source, type) else Origin.of_entry(source)

    def register(self, thing: type) -> None:
        """Take what a program offers. The same class anew, as a notebook defines it, takes the place of the old one."""
        name, entry = self._take(thing)
        self._add(name, entry, thing)

    @cached_property
    def _declared(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        declared: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if entry.name in self.own:
                raise self._conflict(entry.name, "heed", entry)
            other = declared.get(entry.name)
            if other is not None and other.value != entry.value:
                raise self._conflict(entry.name, other, entry)
            declared[entry.name] = entry
        return declared

    def _load(self, entry: EntryPoint) -> None:
        said = f"{entry.name} = {entry.value!r} of the package {Origin.of_entry(entry)}"
        try:
            name, taken = self._take(entry.load())
        except ConfigError as error:
            raise ConfigError(f"{said} cannot be used: {error}") from None
        except Exception as error:  # it is other people's code
            raise ConfigError(f"{said} cannot be imported: {type(error).__name__}: {error}") from error
        if name != entry.name:
            raise ConfigError(f"{said} has the kind {name!r}; the entry point and the kind must have one name")
        self._add(name, taken, entry)
        self._loaded.add(name)

    def _add(self, name: str, entry: T, source: type | EntryPoint) -> None:
        if name in self.own:
            raise self._conflict(name, "heed", source)
        if name in self._taken and not _same(self._taken[name][0], entry):
            raise self._conflict(name, self._taken[name][1], source)
        self._taken[name] = (entry, source)

    def _conflict(self, name: str, one: str | type | EntryPoint, other: type | EntryPoint) -> ConfigError:
        return ConfigError(
            f"{name!r} of {self.group} is brought by {_said(one)} and by {_said(other)}; a name has one meaning: let "
            "one of the two have another kind, or uninstall it"
        )


class Named(Mapping[str, T_co]):
    """Things of a package by name: `{"gru": "lstm:Gru.Config"}` is `Gru.Config` of its module `lstm`."""

    def __init__(
        self,
        package: str,
        places: Mapping[str, str],
        renamed: Mapping[str, str] | None = None,
        outside: Outside[T_co] | None = None,
    ) -> None:
        self.package, self.places = package, places
        self.renamed = renamed or {}  # names that things had before, and those that they have now
        self.outside = outside  # what other packages bring, if this table is open to them
        if outside is not None:
            outside.own = places

    def __getitem__(self, name: str) -> T_co:
        if name not in self.places:
            other = None if self.outside is None else self.outside.find(name)
            if other is None:
                raise KeyError(name)
            return other
        module, _, path = self.places[name].partition(":")
        thing: T_co = attrgetter(path)(_imported(self.package, module))
        return thing

    def __iter__(self) -> Iterator[str]:
        yield from self.places
        yield from () if self.outside is None else self.outside.names

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:  # a mapping would import it to find out
        return name in self.places or (self.outside is not None and name in self.outside.names)

    @property
    def holders(self) -> Iterator[tuple[str, str]]:
        """The classes, and which module holds each."""
        for place in self.places.values():
            module, _, path = place.partition(":")
            yield path.partition(".")[0], module


class Table(Sequence[T_co]):
    """The same as a tuple, in the order of the names; a thing of several names stands in it once.

    What other packages bring stands behind heed's own.
    """

    def __init__(
        self,
        package: str,
        places: Mapping[str, str],
        renamed: Mapping[str, str] | None = None,
        outside: Outside[T_co] | None = None,
    ) -> None:
        self.named: Named[T_co] = Named(package, places, renamed, outside)
        firsts = dict[str, str]()
        for name, place in places.items():
            firsts.setdefault(place, name)
        self._firsts = list(firsts.values())

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        own = isinstance(index, int) and 0 <= index < len(self._firsts)
        if not own and self.named.outside is not None:
            return tuple(self)[index]
        found = self._firsts[index]
        return self.named[found] if isinstance(found, str) else tuple(self.named[name] for name in found)

    def __iter__(self) -> Iterator[T_co]:
        for name in self._firsts:
            yield self.named[name]
        yield from () if self.named.outside is None else self.named.outside.found()

    def __len__(self) -> int:
        outside = self.named.outside
        return len(self._firsts) + (0 if outside is None else len(outside.names))

    def __add__(self, other: Table[T_co]) -> Table[T_co]:
        """Both tables of a package as one, which is open to no other package."""
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


def _said(source: str | type | EntryPoint) -> str:
    """A package, and what of it is meant."""
    if isinstance(source, str):
        return source
    if isinstance(source, type):
        return f"{Origin.of_class(source)} ({source.__module__}:{source.__qualname__})"
    return f"{Origin.of_entry(source)} ({source.value})"


def _same(one: object, other: object) -> bool:
    """The same class, or the same one defined again."""
    return one is other or (
        isinstance(one, type)
        and isinstance(other, type)
        and (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
    )


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
