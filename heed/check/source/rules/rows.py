"""Rows of a batch: none takes from another, and each has its own mask."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...foreign.words import Role, role_of
from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import named_node
from .heads import interleaved
from .masks import MASKS

REDUCES = {"mean", "sum", "std", "var", "max", "min", "amax", "amin", "softmax", "log_softmax", "norm", "cumsum"}
OVER = "rows of the batch are mixed along axis 0; tokens stand along axis 1"
FIRST = "the mask of the first row is used for all of them"


def mask_rows(case: Case) -> Iterator[Fix | None]:
    """A mask repeated row by row, as rows and heads lie in one axis."""
    words = "rows come first in [rows·heads, ...]: the mask of a row is repeated in its place"
    for name, events in case.masked.items():
        for event in events:
            place = event.place
            if place is None or name not in event.fed or not isinstance(place.node, ast.Call):
                continue
            text = interleaved(place, event)
            if text is not None:
                yield place.code.fix([place.code.replaced(place.node, text)], words)


def first_row(case: Case) -> Iterator[Fix | None]:
    """`mask[0]` is the mask of one row; that of each goes along the rows, over heads and queries."""
    for code, node in case.home.nodes(ast.Subscript):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=0) | ast.Slice(upper=ast.Constant())):
                if role_of(name) not in (*MASKS, Role.LENGTHS):
                    continue
                outer, between = _broadcast(code, node)
                for axes in ("[:, None, None]", "[:, None]", ""):
                    yield code.fix([code.replaced(outer, f"{name}{between}{axes}")], FIRST)
                    yield code.fix([code.replaced(node, f"{name}{axes}")], FIRST)


def _broadcast(code: Code, node: ast.expr) -> tuple[ast.expr, str]:
    """The largest expression that only casts a mask and adds axes to it, and the casts in it."""
    between = ""
    while True:
        match code.parents.get(node):
            case ast.Subscript(value=value, slice=index) as outer if value is node and "None" in code.words(index):
                node = outer
            case (
                ast.Attribute(attr="bool" | "float" | "long" | "to" | "logical_not" as attr, value=value) as method
            ) if value is node and isinstance(code.parents.get(method), ast.Call):
                call = code.parents[method]
                assert isinstance(call, ast.Call)
                between += f".{attr}({', '.join(code.words(one) for one in call.args)})"
                node = call
            case _:
                return node, between


def over_rows(case: Case) -> Iterator[Fix | None]:
    """A statistic of the stream along the axis of rows goes along that of tokens."""
    found: dict[ast.AST, tuple[Code, Edit]] = {}
    for event in case.everything:
        place, axis = event.place, event.argument(1, "dim", "axis")
        if place is None or event.name not in REDUCES or axis not in (0, (0,), [0]) or not event.fed:
            continue
        if len(event.operands[0].shape) < 3 or not isinstance(place.node, ast.Call):
            continue
        node = named_node(place.node, "dim", "axis") or next(
            (one for one in place.node.args if place.words(one) in ("0", "(0,)", "[0]")), None
        )
        if node is not None:
            found[place.node] = (place.code, place.code.replaced(node, "1"))
    for code in dict.fromkeys(code for code, _ in found.values()):
        yield code.fix([edit for other, edit in found.values() if other is code], OVER)
    for code, edit in found.values():
        yield code.fix([edit], OVER)
