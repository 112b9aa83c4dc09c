"""What a cross-attention looks at: keys and values of the source, not of the stream."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...foreign.words import Role, role_of
from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import Attended
from ..watch import Event, Place
from .masks import passed_on

PROJECTS = {"linear", "conv1d", "conv2d", "matmul", "einsum", "addmm"}
WORDS = "keys and values are made of the stream itself; of {} is meant"


def looks_inside(case: Case) -> Iterator[Fix | None]:
    """Where keys and values are projected or handed over, the source in the place of the stream."""
    yield from _thrice(case)
    yield from _projected(case)
    yield from passed_on(case, Role.SOURCE)


def _sources(function: ast.AST | None) -> list[str]:
    """The arguments that a function is given to look at."""
    arguments = function.args.args if isinstance(function, ast.FunctionDef) else []
    return [one.arg for one in arguments if role_of(one.arg) is Role.SOURCE]


def _thrice(case: Case) -> Iterator[Fix | None]:
    """`attend(x, x, x)`: the last of several such calls is the one that should look elsewhere."""
    found: list[tuple[Code, ast.Call]] = []
    for code, call in case.home.nodes(ast.Call):
        if len(call.args) >= 3 and len({code.words(one) for one in call.args[:3]}) == 1:
            found.append((code, call))
    for code, call in reversed(found):
        for source in _sources(code.function(call)):
            edits = [code.replaced(one, source) for one in call.args[1:3]]
            yield code.fix(edits, WORDS.format(source))


def _projected(case: Case) -> Iterator[Fix | None]:
    """Every projection that keys or values come from; the one of queries is left as it is."""
    for found in case.attended:
        own = _projections(found, slice(0, 1))
        other = {node: place for node, place in _projections(found, slice(1, None)).items() if node not in own}
        codes = {place.code for place in other.values()}
        if len(codes) != 1:
            continue
        code = codes.pop()
        for source in dict.fromkeys(name for node in other for name in _sources(code.function(node))):
            yield code.fix([edit for node in other for edit in _given(code, node, source)], WORDS.format(source))


def _projections(found: Attended, which: slice) -> dict[ast.Call, Place]:
    """Where the first operand of attention, or the others, are projected."""
    product, mix = found.fused or found.scores, found.mix
    operands = [] if product is None else list(product.operands[which])
    if mix is not None and which.start:
        operands += [operand for operand in mix.operands if operand.maker not in (None, found.softmax)]
    events = [event for operand in operands for event in _back(operand.maker, found)]
    return {e.place.node: e.place for e in events if e.place is not None and isinstance(e.place.node, ast.Call)}


def _back(event: Event | None, found: Attended) -> Iterator[Event]:
    """The nearest projections behind a tensor."""
    waiting = [event]
    while waiting:
        one = waiting.pop()
        if one is None or one in (found.softmax, found.scores):
            continue
        if one.name in PROJECTS:
            yield one
        else:
            waiting += [operand.maker for operand in one.operands if operand.fed]


def _given(code: Code, call: ast.Call, source: str) -> Iterator[Edit]:
    """What a projection is made of, exchanged."""
    for node in call.args[:1]:
        if isinstance(node, ast.Name) and node.id != source:
            yield code.replaced(node, source)
