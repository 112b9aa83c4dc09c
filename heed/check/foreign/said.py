"""What a source says in passing: which arguments are masks, by what is done with them, and which axis is that of rows.

Names come in every language; `masked_fill` does not.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

HIDES = {"masked_fill", "masked_fill_", "where"}  # their first argument tells what is hidden, or what is not
HIDING = {"attn_mask", "key_padding_mask", "attention_mask", "src_key_padding_mask"}
ROWS = r"(?:b|bs|bsz|nb|batch|batches|batch_?size|n_?batch|num_?batch|lot)"
TOKENS = r"(?:t|l|s|time|seq|len|length|tokens?|steps?|frames?|words?|seq_?len\w*|sequence\w*|time_?steps?|max_?len\w*)"
ONES_HIDE = re.compile(
    r"\b(?:1s?|ones?|true)\b[^\n.;,]{0,30}?\b(?:pad|hid|mask(?:ed|s)|ignor|block|invisible|not\b|exclude)",
    re.IGNORECASE,
)
ROWS_FIRST = re.compile(rf"[(\[]\s*{ROWS}\s*[,x*]\s*{TOKENS}\b", re.IGNORECASE)
TOKENS_FIRST = re.compile(rf"[(\[]\s*{TOKENS}\s*[,x*]\s*{ROWS}\b", re.IGNORECASE)


def masks_in(function: Any) -> frozenset[str]:
    """Arguments that a function hands, as they are or changed, to what hides."""
    plain = inspect.unwrap(getattr(function, "__func__", function))
    return _masks(plain) if inspect.isfunction(plain) else frozenset()


def unread(function: Any, name: str) -> bool:
    """Whether a function never reads this argument of its own."""
    plain = inspect.unwrap(getattr(function, "__func__", function))
    tree = _parsed(plain) if inspect.isfunction(plain) else None
    return tree is not None and not any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def is_switch(function: Any, name: str) -> bool:
    """Whether an argument is only asked for its truth, and then something else is made under its name."""
    plain = inspect.unwrap(getattr(function, "__func__", function))
    tree = _parsed(plain) if inspect.isfunction(plain) else None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == name:
            first = next((part for part in node.body if name in _named_in(part)), None)
            if isinstance(first, ast.Assign) and name in _named_in(first.targets[0]):
                return name not in _named_in(first.value)
    return False


def _named_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


@lru_cache(maxsize=64)
def _masks(function: Any) -> frozenset[str]:
    tree = _parsed(function)
    if tree is None:
        return frozenset()
    names = frozenset(inspect.signature(function).parameters)
    told = [name for place in _hiding(tree) for name in _named(place)]
    return names & frozenset(source for name in told for source in (name, *_made_of(tree, name)))


def _hiding(tree: ast.AST) -> Iterator[ast.expr]:
    """What is passed as a mask."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in HIDES:
            yield from call.args[1:2] if _of_torch(call) and name != "where" else call.args[:1]
        yield from (word.value for word in call.keywords if word.arg in HIDING)


def _of_torch(call: ast.Call) -> bool:
    """Whether it is torch.masked_fill(scores, mask, ...), whose scores stand first."""
    return isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and len(call.args) == 3


def _made_of(tree: ast.AST, name: str) -> Iterator[str]:
    """Names of which this one is made, in one step."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            yield from _named(node.value)


def _named(node: ast.expr) -> Iterator[str]:
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def rows_first(found: Any) -> str | None:
    """Where a source says that rows stand before tokens; None if it does not, or says the contrary, too."""
    kind = found if inspect.isclass(found) or inspect.isroutine(found) else type(found)
    tree = _parsed(kind)
    if tree is None:
        return None
    text = _text(kind)
    told = [*_shapes(tree), *(match[0] for match in ROWS_FIRST.finditer(text))]
    contrary = [*TOKENS_FIRST.finditer(text), *(s for s in _shapes(tree) if TOKENS_FIRST.match(s))]
    rows = [words for words in told if ROWS_FIRST.match(words)]
    return rows[0] if rows and not contrary else None


def says_hidden(found: Any) -> bool:
    """Whether a source says that ones, or True, mark what is hidden."""
    kind = found if inspect.isclass(found) or inspect.isroutine(found) else type(found)
    return _parsed(kind) is not None and ONES_HIDE.search(_text(kind)) is not None


def _shapes(tree: ast.AST) -> Iterator[str]:
    """Sizes that are given names together, as they are written: (b, t, d)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and _is_shape(node.value):
            names = [ast.unparse(part) for part in node.targets[0].elts]
            yield f"({', '.join(names)})"


def _is_shape(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Attribute) and node.attr in ("shape", "size")


def _parsed(found: Any) -> ast.Module | None:
    try:
        return ast.parse(_text(found))
    except (OSError, TypeError, SyntaxError, ValueError):  # there is no source
        return None


def _text(found: Any) -> str:
    return textwrap.dedent(inspect.getsource(found))
