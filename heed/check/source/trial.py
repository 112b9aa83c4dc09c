"""Trying a fix: the user's definitions are compiled again, mended, in a module of their own; no file is written."""

from __future__ import annotations

import ast
import copy
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch import nn

from ..reports.report import Fix
from .code import Code, apply
from .home import Home


class CannotTry(Exception):
    """Nothing can be said about a fix: what it mends cannot be made anew."""


@contextmanager
def mended(home: Home, fix: Fix) -> Iterator[Any]:
    """The target as it is with a fix; it exists while the context is open."""
    code = home.code(fix.file)
    if code is None or home.module is None or "<" in home.kind.__qualname__:
        raise CannotTry
    made: dict[str, ModuleType] = {}
    try:
        modules = _modules(home, fix.file)
        changed: dict[int, Any] = {}
        for module, file in modules:
            own = home.code(file)
            assert own is not None
            text = apply(fix, own.text) if file == fix.file else own.text
            twin = _twin(module, own, text, fix if file == fix.file else None, changed)
            made[twin.__name__] = sys.modules[twin.__name__] = twin
            changed |= {id(module): twin, **_renewed(module, twin)}  # it may be used by its own name
        yield _found(home, changed, fix)
    finally:
        for name in made:
            sys.modules.pop(name, None)


def _modules(home: Home, file: str) -> list[tuple[ModuleType, str]]:
    """The module of the mended file, and that of the target if it is another one."""
    assert home.module is not None
    if file == home.file:
        return [(home.module, file)]
    other = next((m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == file), None)
    if other is None:
        raise CannotTry
    return [(other, file), (home.module, home.file)]


def _twin(module: ModuleType, code: Code, text: str, fix: Fix | None, changed: dict[int, Any]) -> ModuleType:
    """A module with the same names, of which classes and functions are defined again from another text."""
    twin = ModuleType(f"{module.__name__}_mended")
    known = {name: changed.get(id(value), value) for name, value in vars(module).items()}
    twin.__dict__.update({**known, "__name__": twin.__name__, "__builtins__": __builtins__})
    tree = ast.parse(text)
    mended_lines = range(0) if fix is None else range(fix.line, fix.line + fix.after.count("\n") + 1)
    tree.body = [node for node in tree.body if _wanted(node, mended_lines)]
    sys.modules[twin.__name__] = twin
    exec(compile(tree, f"<{code.file} mended>", "exec"), twin.__dict__)
    return twin


def _wanted(node: ast.stmt, lines: range) -> bool:
    """Definitions, what the future changes, and what the fix touches; nothing else of the file is run again."""
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return True
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)


def _renewed(module: ModuleType, twin: ModuleType) -> dict[int, Any]:
    """What stands in the place of what, by address."""
    return {
        id(value): vars(twin)[name]
        for name, value in vars(module).items()
        if name in vars(twin) and vars(twin)[name] is not value and (inspect.isclass(value) or inspect.isroutine(value))
    }


def _found(home: Home, changed: dict[int, Any], fix: Fix) -> Any:
    """The target itself: a class or a function by its address, an instance with the classes of its parts exchanged."""
    if not isinstance(home.origin, nn.Module):
        top, *rest = home.kind.__qualname__.split(".")
        found = changed.get(id(vars(home.module).get(top)))
        for part in rest:
            found = getattr(found, part, None)
        if found is None:
            raise CannotTry
        return found
    code = home.code(fix.file)
    if code is None or _in_constructor(code, fix):  # an instance is built already
        raise CannotTry
    twin = copy.deepcopy(home.origin)
    for part in twin.modules():
        part.__class__ = changed.get(id(type(part)), type(part))
    return twin


def _in_constructor(code: Code, fix: Fix) -> bool:
    lines = range(fix.line, fix.line + fix.before.count("\n") + 1)
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)
        for node in ast.walk(code.tree)
    )
