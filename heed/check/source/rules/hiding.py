"""How a mask hides: which way round, before the softmax, with which number, along which axis."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import FUSED, TORCHS, attended, named_node, operand_nodes
from ..watch import Event, Place
from ..write import enclosed, movable, negated
from .masks import filled, joins, least, named_scores

SMALLEST = "torch.finfo(torch.float32).min"


def condition_of(event: Event, name: str | None = None) -> ast.expr | None:
    """The expression that says where something is hidden."""
    nodes, place = operand_nodes(event), event.place
    if event.name in ("masked_fill", "masked_fill_", "__setitem__") and len(nodes) > 1:
        return nodes[1]
    if event.name == "where" and nodes:
        method = place is not None and isinstance(place.node, ast.Call) and nodes[0] not in place.node.args
        return nodes[1] if method else nodes[0]  # scores.where(condition, value)
    if event.name in (FUSED, TORCHS) and place is not None:
        positional = nodes[3] if event.name == FUSED and len(nodes) > 3 else None
        return named_node(place.node, "attn_mask", "key_padding_mask") or positional
    return None


def inverted(case: Case) -> Iterator[Fix | None]:
    """The opposite of the condition under which something is hidden."""
    words = "what the mask shows is hidden, and what it hides is shown"
    for name in case.masked:
        yield from _turned_before(case, name, words)
        for event in joins(case, name):
            place, node = event.place, condition_of(event)
            if place is None:
                continue
            if node is not None:
                yield from _negated(place, node, event, words)
            elif event.name in ("add", "sub", "add_", "sub_", "__rsub__"):
                yield from _other_sign(event, place, name, words)
    for event in case.events:
        place, node = event.place, condition_of(event)
        if place is not None and node is not None and event.name not in (FUSED, TORCHS):
            yield from _negated(place, node, event, words)


def _turned_before(case: Case, name: str, words: str) -> Iterator[Fix | None]:
    """A mask that is turned round on a line of its own before it is used."""
    for event in case.masked[name]:
        place = event.place
        if place is None or event.fed != {name} or event.name not in ("__invert__", "logical_not", "bitwise_not"):
            continue
        code, statement = place.code, place.code.statement(place.node)
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if value is place.node:
                text = negated(code, place.node, True)
                if text != target:
                    yield code.fix([code.replaced(place.node, text)], words)
                    continue
                around = code.parents[statement]
                alone = isinstance(around, ast.If) and around.body == [statement] and not around.orelse
                gone = around if alone and isinstance(around, ast.If) else statement
                yield code.fix([code.without(gone)], words)


def _negated(place: Place, node: ast.expr, event: Event, words: str) -> Iterator[Fix | None]:
    value = place.value(node)
    boolean = isinstance(value, Tensor) and value.dtype == torch.bool
    text = negated(place.code, node, boolean or not isinstance(node, ast.Name))
    if event.name in (FUSED, TORCHS) and isinstance(node, ast.Name):
        text = f"None if {node.id} is None else {text}"
    turned = place.code.replaced(node, text)
    yield place.code.fix([turned], words)
    for number in _value_nodes(event):  # what hid nothing before may now hide everything
        if _number(place, number) == -math.inf:
            yield from (place.code.fix([turned, place.code.replaced(number, least)], words) for least in _leasts(place))


def _other_sign(event: Event, place: Place, name: str, words: str) -> Iterator[Fix | None]:
    """A mask that is added: subtracted instead, or one minus it."""
    code = place.code
    match place.node:
        case ast.BinOp(left=left, right=right):
            start, end = enclosed(code, left)[1], enclosed(code, right)[0]
            between = code.text[start:end]
            if event.name == "sub":
                yield code.fix([Edit(start, end, between.replace("-", "+"))], words)
            for side in (left, right):
                yield from _one_minus(code, side, name, words)
        case ast.AugAssign(value=value):
            yield from _one_minus(code, value, name, words)


def _one_minus(code: Code, node: ast.expr, name: str, words: str) -> Iterator[Fix | None]:
    for part in ast.walk(node):
        match part:
            case ast.BinOp(left=ast.Constant(value=1), op=ast.Sub(), right=right):
                start, end = enclosed(code, part)
                yield code.fix([Edit(start, end, code.words(right))], words)
                return
    for part in ast.walk(node):
        if isinstance(part, ast.Compare):
            yield code.fix([code.replaced(part, negated(code, part, True))], words)
            return
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id == name:
            yield code.fix([code.replaced(part, f"(1 - {name})")], words)


def after_softmax(case: Case) -> Iterator[Fix | None]:
    """What hides weights hides scores instead, before the softmax."""
    words = "keys are hidden after the softmax, where they still count in its sum"
    for name, events in case.masked.items():
        for event in joins(case, name):
            place = event.place
            if place is None or event.name in (FUSED, TORCHS):
                continue
            for found in attended(events):
                if found.softmax is None or found.softmax.place is None:
                    continue
                if event in found.softmax.behind():
                    yield _on_scores(event, place)
                elif found.softmax in event.behind() and place.code is found.softmax.place.code:
                    yield _earlier(event, place, found.softmax, words)


def _where(event: Event, place: Place) -> str | None:
    """When a key is hidden, by what multiplies weights or fills them with zeros."""
    node = condition_of(event)
    if node is not None:
        hides = event.name != "where" or event.operands[-1].fed == frozenset()
        return place.words(node) if event.name != "where" else (negated(place.code, node, True) if hides else None)
    if event.name not in ("mul", "mul_"):
        return None
    for operand, one in zip(event.operands, operand_nodes(event), strict=False):
        if len(operand.fed) == 1 and not operand.fed & {"stream", "source", "value"}:
            atom = isinstance(one, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
            return f"{place.words(one)} == 0" if atom else f"({place.words(one)}) == 0"
    return None


def _on_scores(event: Event, place: Place) -> Fix | None:
    """Scores that are multiplied with a mask, or filled with too large a number, are filled with the smallest."""
    condition = _where(event, place)
    if condition is None or event.name not in ("mul", "mul_"):
        return None
    words = "a hidden score is made zero, which is a score like any other; it must be smaller than all others"
    streams = [
        node
        for operand, node in zip(event.operands, operand_nodes(event), strict=False)
        if operand.fed & {"stream", "source", "value"} and isinstance(node, ast.Name)
    ]
    if not streams:
        return None
    name = place.words(streams[0])
    text = f"{name}.masked_fill({condition}, {least(place, name)})"
    text = f"{name} = {text}" if isinstance(place.node, ast.AugAssign) else text
    return place.code.fix([place.code.replaced(place.node, text)], words)


def _earlier(event: Event, place: Place, softmax: Event, words: str) -> Fix | None:
    """The mask moves in front of the softmax."""
    code, condition, first = place.code, _where(event, place), softmax.place
    given = operand_nodes(softmax)[:1]
    if condition is None or first is None or not given or not movable(code, first.node):
        return None
    scores, edits = named_scores(code, given[0])
    begin = code.statement(first.node)
    lines = [] if isinstance(given[0], ast.Name) else [f"{scores} = {code.words(given[0])}"]
    fill = filled(place, scores, condition)
    statement = code.statement(place.node)
    if statement is begin:  # both in one expression
        return _one_line(event, place, begin, [*lines, fill], edits, words)
    around = code.parents[statement]
    alone = isinstance(around, ast.If) and around.body == [statement] and not around.orelse
    if alone and isinstance(around, ast.If):
        lines += [f"if {code.words(around.test)}:", f"    {fill}"]
    else:
        lines += [fill]
    gone = code.without(around if alone and isinstance(around, ast.stmt) else statement)
    return code.fix([*edits, code.before(begin, *lines), gone], words)


def _one_line(
    event: Event, place: Place, begin: ast.stmt, lines: list[str], edits: list[Edit], words: str
) -> Fix | None:
    """`scores.softmax(-1) * mask`: the factor goes, and a line comes before."""
    code = place.code
    kept = [
        node
        for operand, node in zip(event.operands, operand_nodes(event), strict=False)
        if operand.fed & {"stream", "source", "value"}
    ]
    if len(kept) != 1 or not isinstance(place.node, ast.expr):
        return None
    start, end = code.span(kept[0])
    text = code.text[start:end]
    for edit in edits:
        text = text[: edit.start - start] + edit.text + text[edit.end - start :]
    return code.fix([code.replaced(place.node, text), code.before(begin, *lines)], words)


def fill_values(case: Case, finite: bool) -> Iterator[tuple[Place, ast.expr]]:
    """The expressions of numbers with which something is hidden: finite ones, or minus infinity."""
    seen: set[ast.AST] = set()
    for event in case.everything:
        place = event.place
        if place is None or not event.fed:
            continue
        for node in _value_nodes(event):
            value = _number(place, node)
            if value is not None and value < -5 and math.isfinite(value) is finite and node not in seen:
                seen.add(node)
                yield place, node


def _value_nodes(event: Event) -> Iterator[ast.expr]:
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


def _number(place: Place, node: ast.expr) -> float | None:
    match node:
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(said))]):
            return float(said)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value = _number(place, inner)
            return None if value is None else -value
    value = place.evaluated(node)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def finite_mask(case: Case) -> Iterator[Fix | None]:
    """The smallest number there is, in the place of one that real scores can pass."""
    for place, node in fill_values(case, finite=True):
        words = f"real scores can be smaller than {place.words(node)}: then what is hidden is seen"
        for text in (*_leasts(place)[:2], 'float("-inf")', *_leasts(place)[2:]):
            yield place.code.fix([place.code.replaced(node, text)], words)


def dead_row(case: Case) -> Iterator[Fix | None]:
    """A row in which everything is hidden stays a row of numbers if what hides is one."""
    found = list(fill_values(case, finite=False))
    words = "where everything is minus infinity the softmax is 0/0; the smallest number hides as well"
    for place, node in found:
        for text in _leasts(place):
            yield place.code.fix([place.code.replaced(node, text)], words)
    places = {place.code for place, _ in found}
    if len(found) > 1 and len(places) == 1:
        edits = [place.code.replaced(node, text) for place, node in found for text in _leasts(place)[:1]]
        yield found[0][0].code.fix(edits, words)


def _leasts(place: Place) -> list[str]:
    """The smallest number of the dtype of something that is at hand, the nearest to scores first."""
    if "torch" not in place.known:
        return []
    return [f"torch.finfo({name}.dtype).min" for name in _stream_names(place)[:2]] + [SMALLEST]


def _stream_names(place: Place) -> list[str]:
    inside = [n.id for n in ast.walk(place.code.statement(place.node)) if isinstance(n, ast.Name)]
    held = [n for n, v in place.scope.items() if isinstance(v, Tensor) and v.is_floating_point()]
    return sorted(held, key=lambda name: (name not in inside, -place.scope[name].dim(), len(name)))


def on_queries(case: Case) -> Iterator[Fix | None]:
    """The axis of one goes before that of the keys, not behind it."""
    words = "the mask lies along the queries; keys stand along the last axis of the scores"
    for name, events in case.masked.items():
        for event in events:
            place = event.place
            if place is None or event.fed != {name} or event.shape[-1:] != (1,):
                continue
            yield from _turned(place, event, words)


def _turned(place: Place, event: Event, words: str) -> Iterator[Fix | None]:
    code, node = place.code, place.node
    match node:
        case ast.Subscript(slice=ast.Tuple(elts=parts)):
            order = [code.words(part) for part in parts]
            if len(order) >= 2 and order[-1] in ("None", "np.newaxis"):
                swapped = [*order[:-2], order[-1], order[-2]]
                yield code.fix([code.replaced(node.slice, ", ".join(swapped))], words)
        case ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[*_, axis]):
            for text in ("-2", str(len(event.shape) - 2), "1", "2"):
                yield code.fix([code.replaced(axis, text)], words)
        case ast.Call(func=ast.Attribute(attr="view" | "reshape"), args=[*_, one, last]):
            edits = [code.replaced(one, code.words(last)), code.replaced(last, code.words(one))]
            yield code.fix(edits, words)


def penalty(case: Case) -> Iterator[Fix | None]:
    """A mask that makes scores a little smaller, where they should be hidden."""
    words = "hidden keys are made less likely, not impossible"
    for name in case.masked:
        for event in joins(case, name):
            place = event.place
            if place is None or event.name not in ("add", "sub", "mul") or not isinstance(place.node, ast.BinOp):
                continue
            sides = operand_nodes(event)
            for operand, node, other in zip(event.operands, sides, sides[::-1], strict=False):
                if operand.fed == {name} and isinstance(other, ast.Name):
                    inner = _mask_part(node, name)
                    if inner is not None:
                        text = f"{other.id}.masked_fill({place.words(inner)}.bool(), {least(place, other.id)})"
                        yield place.code.fix([place.code.replaced(place.node, text)], words)


def _mask_part(node: ast.expr, name: str) -> ast.expr | None:
    """The largest part of an expression that only moves the axes of a mask."""
    if isinstance(node, ast.Name):
        return node if node.id == name else None
    match node:
        case ast.Subscript(value=ast.Name(id=said)) if said == name:
            return node
        case ast.Call(func=ast.Attribute(attr="unsqueeze" | "view" | "expand", value=value)):
            return node if _mask_part(value, name) is not None else None
        case ast.Call(func=ast.Attribute(value=value)):
            return _mask_part(value, name)
        case ast.BinOp(left=left, right=right):
            return _mask_part(left, name) or _mask_part(right, name)
    return None
