"""What in a module looks like attention: for targets that name a file and no class, and for whole trees.

`candidates(module)` reads names, signatures and source; it builds and calls nothing.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from .words import Role, role_of

NAMED = re.compile(r"attention|attn|multi_?head|(?<![a-z])mha(?![a-z])", re.IGNORECASE)
ABOUT = re.compile(
    r"config|mask|cache|output|loss|dataset|map$|visuali|plot|rollout", re.IGNORECASE
)  # beside attention
WHOLE = re.compile(r"scaled_dot_product_attention|MultiheadAttention\(|flash_attn|flex_attention|memory_efficient_att")
SOFTMAX = re.compile(r"softmax", re.IGNORECASE)
PRODUCT = re.compile(r"matmul|bmm|einsum|\w\)?\s*@\s*\(?\w|\.mm\(|\.dot\(")


@dataclass(frozen=True)
class Candidate:
    """A class or function that looks like attention."""

    name: str
    found: Any
    line: int  # of the file in which it is defined; 0 if its source cannot be read


def candidates(module: ModuleType) -> list[Candidate]:
    """Classes and functions defined in this module, not imported into it, that look like attention; in its order."""
    found = [Candidate(name, value, _line(value)) for name, value in defined(module) if attends(name, value)]
    return sorted(found, key=lambda one: one.line)


def likely(trees: Sequence[ast.Module]) -> frozenset[str]:
    """The same by reading alone, before anything is run; all that is defined, if nothing looks like it."""
    nodes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    found = [node.name for node in nodes if NAMED.search(node.name) or computes(ast.unparse(node))]
    return frozenset(found or [node.name for node in nodes])


def computes(source: str) -> bool:
    """Whether a text computes attention: in one call, or as a softmax and a product."""
    return WHOLE.search(source) is not None or bool(SOFTMAX.search(source) and PRODUCT.search(source))


def defined(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The classes of modules and the functions that a module defines itself; of a notebook, those of all cells."""
    homes = {module.__name__, *vars(module).get("__heed_parts__", ())}
    for name, value in list(vars(module).items()):
        own = getattr(value, "__module__", None) in homes and getattr(value, "__name__", None) == name
        if own and (isinstance(value, FunctionType) or _is_layer(value)):
            yield name, value


def attends(name: str, value: Any) -> bool:
    """Whether a class or function looks like attention: by its name, what it takes and what it does."""
    does = computes(_source(value))
    if inspect.isclass(value):
        return not ABOUT.search(name) and (does or NAMED.search(name) is not None)
    roles = {role_of(parameter) for parameter in inspect.signature(value).parameters}
    if {Role.QUERY, Role.KEY, Role.VALUE} <= roles:
        return True
    return bool(roles) and does and not ABOUT.search(name) and NAMED.search(name) is not None


def _is_layer(value: Any) -> bool:
    if not inspect.isclass(value) or not issubclass(value, nn.Module) or inspect.isabstract(value):
        return False
    return value.forward is not nn.Module.forward


def _source(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""


def _line(value: Any) -> int:
    try:
        return inspect.getsourcelines(value)[1]
    except (OSError, TypeError):
        return 0
