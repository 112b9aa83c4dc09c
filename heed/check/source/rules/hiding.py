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
from ..watch import Event, Operand, Place
from ..write import enclosed, mentions, movable, negated, renamed
from .fills import hiding_numbers, leasts, number, value_nodes
from .masks import filled, joins, least, named_scores

BENDS = {"tanh", "sigmoid", "clamp", "clip", "clamp_", "tanh_", "hardtanh", "softsign"}
# Masks of torch's layers, by name.
OF_LAYERS = {"src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask", "src_mask", "tgt_mask"}
STREAMS = {"stream", "source", "value"}


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
    yield from _largest(case)
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
    for code, call in case.home.nodes(ast.Call):
        for keyword in call.keywords:
            if keyword.arg in OF_LAYERS and isinstance(keyword.value, ast.Name):
                name = keyword.value.id
                text = f"None if {name} is None else {name} == 0"
                yield code.fix([code.replaced(keyword.value, text)], "True is hidden in the masks of torch's layers")


def _largest(case: Case) -> Iterator[Fix | None]:
    """A number that hides has a minus before it."""
    for place, node, value, fills in hiding_numbers(case):
        if fills and value > 5:
            words = f"{place.words(node)} makes what is hidden the largest score; it must be the smallest"
            yield place.code.fix([place.code.replaced(node, f"-{place.words(node).lstrip('+')}")], words)


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
    for one in value_nodes(event):  # what hid nothing before may now hide everything
        if number(place, one) == -math.inf:
            yield from (place.code.fix([turned, place.code.replaced(one, least)], words) for least in leasts(place))


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
    for events in (*case.masked.values(), case.events):
        for found in attended(events):
            softmax = found.softmax
            if softmax is None or softmax.place is None:
                continue
            for event in filter(hides, events):
                assert event.place is not None
                if event in softmax.behind():
                    yield _on_scores(event, event.place)
                elif softmax in event.behind() and event.place.code is softmax.place.code:
                    yield _earlier(event, event.place, softmax, words)


def hides(event: Event) -> bool:
    """Whether a mask, of the caller's or of the module's own, meets the stream here."""
    apart = [operand for operand in event.operands if _apart(operand)]
    return event.place is not None and event.name not in (FUSED, TORCHS) and 0 < len(apart) < len(event.operands)


def _apart(operand: Operand) -> bool:
    """Whether it is more than a number, and not made of what is attended to."""
    return not operand.fed & STREAMS and math.prod(operand.shape) > 1


def hidden_where(event: Event, place: Place) -> str | None:
    """When a key is hidden, by what multiplies weights or fills them with zeros."""
    node = condition_of(event)
    if node is not None:
        hides = event.name != "where" or event.operands[-1].fed == frozenset()
        return place.words(node) if event.name != "where" else (negated(place.code, node, True) if hides else None)
    if event.name not in ("mul", "mul_"):
        return None
    for operand, one in zip(event.operands, operand_nodes(event), strict=False):
        if _apart(operand):
            atom = isinstance(one, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
            return f"{place.words(one)} == 0" if atom else f"({place.words(one)}) == 0"
    return None


def _on_scores(event: Event, place: Place) -> Fix | None:
    """Scores that are multiplied with a mask, or filled with too large a number, are filled with the smallest."""
    condition = hidden_where(event, place)
    if condition is None or event.name not in ("mul", "mul_"):
        return None
    words = "a hidden score is made zero, which is a score like any other; it must be smaller than all others"
    streams = [
        node
        for operand, node in zip(event.operands, operand_nodes(event), strict=False)
        if operand.fed & STREAMS and isinstance(node, ast.Name)
    ]
    if not streams:
        return None
    name = place.words(streams[0])
    text = f"{name}.masked_fill({condition}, {least(place, name)})"
    text = f"{name} = {text}" if isinstance(place.node, ast.AugAssign) else text
    return place.code.fix([place.code.replaced(place.node, text)], words)


def _earlier(event: Event, place: Place, softmax: Event, words: str) -> Fix | None:
    """The mask moves in front of the softmax."""
    code, condition, first = place.code, hidden_where(event, place), softmax.place
    given = operand_nodes(softmax)[:1]
    added = _said_again(event, place, "") is not None
    if (condition is None and not added) or first is None or not given or not movable(code, first.node):
        return None
    scores, edits = named_scores(code, given[0])
    begin = code.statement(first.node)
    lines = [] if isinstance(given[0], ast.Name) else [f"{scores} = {code.words(given[0])}"]
    statement = code.statement(place.node)
    fill = _said_again(event, place, scores) or filled(place, scores, condition or "")
    if statement is begin:  # both in one expression
        return _one_line(event, place, begin, [*lines, fill], edits, words)
    asks, gone = asked_for(code, statement)
    lines += [fill] if asks is None else [f"if {asks}:", f"    {fill}"]
    return code.fix([*edits, code.before(begin, *lines), code.without(gone)], words)


def asked_for(code: Code, statement: ast.stmt) -> tuple[str | None, ast.stmt]:
    """The condition under which a statement is run, and what goes if it goes: with the condition, if that is all."""
    around = code.parents[statement]
    if not isinstance(around, ast.If) or statement not in around.body:
        return None, statement
    return code.words(around.test), around if around.body == [statement] and not around.orelse else statement


def bent_after(case: Case) -> Iterator[Fix | None]:
    """A cap that is put on hidden scores brings them back among the others: it comes before the mask."""
    words = "hidden scores are bent back by {} after the mask; the mask comes last before the softmax"
    for events in (*case.masked.values(), case.events):
        for found in attended(events):
            softmax = found.softmax
            if softmax is None or softmax.place is None:
                continue
            behind = softmax.behind()
            for bent in (event for event in behind if event.name in BENDS):
                for event in filter(hides, bent.behind()):
                    assert event.place is not None
                    yield _later(event.place, softmax.place, words.format(bent.name))


def _later(place: Place, last: Place, words: str) -> Fix | None:
    """The statement that hides, with the condition around it, in front of the one with the softmax."""
    code, end = place.code, last.code.statement(last.node)
    moved = code.statement(place.node)
    around = code.parents[moved]
    moved = around if isinstance(around, ast.If) and around.body == [moved] and not around.orelse else moved
    if code is not last.code or code.function(moved) is not last.code.function(end) or moved.lineno >= end.lineno:
        return None
    indent = code.indent(moved)
    lines = [line.removeprefix(indent) for line in f"{indent}{code.words(moved)}".split("\n")]
    return code.fix([code.without(moved), code.before(end, *lines)], words)


def _said_again(event: Event, place: Place, scores: str) -> str | None:
    """What is added to weights, added to scores."""
    if event.name not in ("add", "sub", "add_", "sub_"):
        return None
    match place.code.statement(place.node):
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is place.node and mentions(value, name):
            return f"{scores} = {renamed(place.words(value), name, scores)}"
    return None


def _one_line(
    event: Event, place: Place, begin: ast.stmt, lines: list[str], edits: list[Edit], words: str
) -> Fix | None:
    """`scores.softmax(-1) * mask`: the factor goes, and a line comes before."""
    code = place.code
    kept = [node for operand, node in zip(event.operands, operand_nodes(event), strict=False) if operand.fed & STREAMS]
    if len(kept) != 1 or not isinstance(place.node, ast.expr):
        return None
    start, end = code.span(kept[0])
    text = code.text[start:end]
    for edit in edits:
        text = text[: edit.start - start] + edit.text + text[edit.end - start :]
    return code.fix([code.replaced(place.node, text), code.before(begin, *lines)], words)


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
