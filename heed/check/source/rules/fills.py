"""The numbers that hide: too near to real scores, on the wrong side of them, or such that a row of them is 0/0."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from torch import Tensor

from ...reports.report import Fix
from ..case import Case
from ..flow import attended, named_node, operand_nodes
from ..watch import Event, Place
from ..write import with_method

FILLS = {"masked_fill", "masked_fill_", "where", "__setitem__"}
MADE = {"tensor", "full", "full_like", "new_full", "new_tensor", "float", "as_tensor", "ones_like", "scalar_tensor"}
SMALLEST = "torch.finfo(torch.float32).min"


def fill_values(case: Case, finite: bool) -> Iterator[tuple[Place, ast.expr]]:
    """The expressions of numbers with which something is hidden: finite ones, or minus infinity."""
    for place, node, value, fills in hiding_numbers(case):
        if math.isfinite(value) is finite and value < (math.inf if fills and finite else -5):
            yield place, node


def hiding_numbers(case: Case) -> Iterator[tuple[Place, ast.expr, float, bool]]:
    """Numbers that scores are filled with, or that a mask is made of, and whether they fill; each once."""
    seen: set[ast.AST] = set()
    for event in case.everything:
        place = event.place
        if place is None or not event.fed:
            continue
        for node in value_nodes(event):
            for inner in _numbers_in(case, event, node):
                value = number(place, inner)
                if value is not None and inner not in seen:
                    seen.add(inner)
                    yield place, inner, value, event.name in FILLS


def _numbers_in(case: Case, event: Event, node: ast.expr) -> Iterator[ast.expr]:
    """A number, or those that a tensor of one number is made of: `torch.full_like(scores, -1e9)`."""
    place = event.place
    assert place is not None
    if number(place, node) is not None:
        yield node
        return
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in MADE:
            given = [*node.args, *(one.value for one in node.keywords if one.arg in ("fill_value", "data"))]
            yield from (one for one in given if number(place, one) is not None)
        case ast.BinOp(op=ast.Mult(), left=left, right=right):  # -1e9 * torch.ones_like(scores)
            yield from (one for one in (left, right) if number(place, one) is not None)
        case ast.Name():
            spot = case.names.defined(event, node)
            if spot is not None and spot.node is not node and spot.code is place.code:
                yield from _numbers_in(case, event, spot.node)


def value_nodes(event: Event) -> Iterator[ast.expr]:
    nodes, place = operand_nodes(event), event.place
    if event.name in ("masked_fill", "masked_fill_"):
        yield from nodes[2:3]
        yield from (n for n in [named_node(place.node, "value") if place else None] if n is not None)
    elif event.name == "where":
        yield from nodes[1:]
    elif event.name == "__setitem__" and place is not None:
        statement = place.code.statement(place.node)
        if isinstance(statement, ast.Assign):
            yield statement.value
    elif event.name in ("mul", "mul_", "add", "sub"):
        yield from nodes


def number(place: Place, node: ast.expr) -> float | None:
    match node:
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(said))]):
            return float(said)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = number(place, inner)
            return None if value is None else -value
    value = place.evaluated(node)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def finite_mask(case: Case) -> Iterator[Fix | None]:
    """The smallest number there is, in the place of one that real scores can pass."""
    for place, node in fill_values(case, finite=True):
        words = f"real scores can be smaller than {place.words(node)}: then what is hidden is seen"
        for text in (*leasts(place)[:2], 'float("-inf")', *leasts(place)[2:]):
            yield place.code.fix([place.code.replaced(node, text)], words)


def dead_row(case: Case) -> Iterator[Fix | None]:
    """A row in which everything is hidden stays a row of numbers if what hides is one."""
    found = list(fill_values(case, finite=False))
    words = "where everything is minus infinity the softmax is 0/0; the smallest number hides as well"
    for place, node in found:
        for text in leasts(place):
            yield place.code.fix([place.code.replaced(node, text)], words)
    places = {place.code for place, _ in found}
    if len(found) > 1 and len(places) == 1:
        edits = [place.code.replaced(node, text) for place, node in found for text in leasts(place)[:1]]
        yield found[0][0].code.fix(edits, words)
    for events in case.masked.values():
        for softmax in (one.softmax for one in attended(events) if one.softmax is not None):
            yield _bounded(softmax, words)


def _bounded(softmax: Event, words: str) -> Fix | None:
    """Scores to which the caller's minus infinity was added, not below the smallest number."""
    place, given = softmax.place, operand_nodes(softmax)[:1]
    if place is None or not given or not leasts(place):
        return None
    name = place.words(given[0]) if isinstance(given[0], ast.Name) else _stream_names(place)[0]
    return place.code.fix([with_method(place.code, given[0], f".clamp(min=torch.finfo({name}.dtype).min)")], words)


def leasts(place: Place) -> list[str]:
    """The smallest number of the dtype of something that is at hand, the nearest to scores first."""
    if "torch" not in place.known:
        return []
    return [f"torch.finfo({name}.dtype).min" for name in _stream_names(place)[:2]] + [SMALLEST]


def _stream_names(place: Place) -> list[str]:
    inside = [n.id for n in ast.walk(place.code.statement(place.node)) if isinstance(n, ast.Name)]
    held = [n for n, v in place.scope.items() if isinstance(v, Tensor) and v.is_floating_point()]
    return sorted(held, key=lambda name: (name not in inside, -place.scope[name].dim(), len(name)))
