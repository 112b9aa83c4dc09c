"""Which code is the user's own: the target, what it is derived from, what it calls and what it is made of."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import nn

from ..foreign.load.text import CELL
from .code import Code

FOREIGN = {"site-packages", "dist-packages"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(eq=False)
class Home:
    """The folder, or the package, that the target was written in."""

    origin: Any
    file: str
    _codes: dict[str, Code | None] = field(default_factory=dict)

    @classmethod
    def of(cls, origin: Any) -> Home | None:
        """None where there is no source: of what is built in, or typed into an interpreter."""
        file = _file(origin)
        home = None if file is None else cls(origin, file)
        return home if home is not None and home.code(home.file) is not None else None

    @cached_property
    def root(self) -> str:
        """The folder that holds the whole package."""
        folder = Path(self.file).parent
        while (folder / "__init__.py").is_file() and folder.parent != folder:
            folder = folder.parent
            if folder.name in FOREIGN:  # an installed package is at home in its own folder only
                package = Path(self.file).relative_to(folder).parts[0]
                return str(folder / package)
        return str(folder)

    def mine(self, file: str) -> bool:
        """Whether a file was written by the same people."""
        if file == self.file:
            return True
        inside = file.startswith(self.root + os.sep)
        held = os.path.isfile(file.partition(CELL)[0])  # a cell is a part of its notebook
        return inside and not FOREIGN & set(Path(file[len(self.root) :]).parts) and held

    def code(self, file: str) -> Code | None:
        if file not in self._codes:
            self._codes[file] = Code.of(file) if self.mine(file) else None
        return self._codes[file]

    @cached_property
    def module(self) -> ModuleType | None:
        """The module that the target was defined in."""
        return sys.modules.get(str(getattr(self.kind, "__module__", "")))

    @property
    def kind(self) -> Any:
        """The class or the function, if an instance was given."""
        return type(self.origin) if isinstance(self.origin, nn.Module) else self.origin

    @cached_property
    def reach(self) -> list[tuple[Code, Definition]]:
        """Definitions at the top of their files that the target is made of, itself first, found by their names."""
        found: dict[Definition, Code] = {}
        waiting = [*inspect.getmro(self.kind)] if inspect.isclass(self.kind) else [self.kind]
        if isinstance(self.origin, nn.Module):
            waiting += [type(part) for part in self.origin.modules()]
        seen: set[int] = set()
        while waiting and len(seen) < 300:
            thing = waiting.pop(0)
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            where = self._defined(thing)
            if where is not None and where[1] not in found:
                found[where[1]] = where[0]
                waiting += list(_named(where[1], _globals(thing)))
        return [(code, definition) for definition, code in found.items()]

    def _defined(self, thing: Any) -> tuple[Code, Definition] | None:
        file = _file(thing)
        code = None if file is None else self.code(file)
        if code is None:
            return None
        name = str(getattr(thing, "__qualname__", "")).split(".")[0]
        for node in ast.walk(code.tree):
            if isinstance(node, Definition) and node.name == name:
                return code, node
        return None

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[tuple[Code, Any]]:
        """All that is of these kinds in what the target is made of, in the order in which it stands there."""
        for code, definition in self.reach:
            inside = [node for node in ast.walk(definition) if isinstance(node, kinds)]
            yield from ((code, node) for node in sorted(inside, key=code.span))

    def assigned(self, kind: type, name: str) -> list[tuple[Code, ast.Assign | ast.AnnAssign]]:
        """Where the methods of a class set `self.name`."""
        found = []
        for base in inspect.getmro(kind):
            where = self._defined(base)
            if where is None:
                continue
            for node in ast.walk(where[1]):
                if isinstance(node, ast.Assign | ast.AnnAssign) and name in own_targets(node):
                    found.append((where[0], node))
        return found


def own_targets(node: ast.Assign | ast.AnnAssign) -> dict[str, ast.expr]:
    """The attributes of self that a statement sets, each with what it is set to where that can be told apart."""
    found: dict[str, ast.expr] = {}
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        value = node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple):
            apart = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
            values = value.elts if apart and isinstance(value, ast.Tuple) else [value] * len(target.elts)
            pairs = list(zip(target.elts, values, strict=True))
        for one, to in pairs:
            match one:
                case ast.Attribute(value=ast.Name(id="self"), attr=attr) if to is not None:
                    found[attr] = to
    return found


def _file(thing: Any) -> str | None:
    """The file that it was compiled from: of a class, that of its methods."""
    code = _compiled(thing)
    if code is None and inspect.isclass(thing):
        code = next((c for c in map(_compiled, vars(thing).values()) if c is not None), None)
    if code is None and isinstance(thing, nn.Module):
        return _file(type(thing))
    return None if code is None else code.co_filename


def _compiled(thing: Any) -> CodeType | None:
    thing = inspect.unwrap(thing) if callable(thing) and not inspect.isclass(thing) else thing
    thing = getattr(thing, "__func__", getattr(thing, "fget", thing))
    return thing.__code__ if isinstance(thing, FunctionType) else None


def _globals(thing: Any) -> dict[str, Any]:
    module = sys.modules.get(str(getattr(thing, "__module__", "")))
    return {} if module is None else vars(module)


def _named(definition: Definition, known: dict[str, Any]) -> Iterator[Any]:
    """The classes and functions that a definition speaks of."""
    for node in ast.walk(definition):
        thing = None
        match node:
            case ast.Name(id=name):
                thing = known.get(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if isinstance(known.get(name), ModuleType):
                thing = vars(known[name]).get(attr)
        if inspect.isclass(thing) or isinstance(thing, FunctionType):
            yield thing
