"""Heads: split and merged without mixing tokens, and shared in the usual order."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import RESHAPES, Attended, operand_nodes
from ..names import called, numbers
from ..watch import Event, Place
from ..write import method_of

WORDS = "a reshape moves channels of one token into another: the axis of tokens must stay where it is"
SHARED = "neighbouring query heads share a key head: each is repeated in its place, not the whole row of heads"


def head_mixing(case: Case) -> Iterator[Fix | None]:
    """Every reshape that tears the axis of tokens apart, mended at once; else axes that were never exchanged."""
    torn: dict[ast.AST, Event] = {}
    for event in case.events:
        if event.place is not None and scrambles(case, event):
            torn.setdefault(event.place.node, event)
    edits = [list(_mended(case, event)) for event in torn.values()]
    codes = {event.place.code for event in torn.values() if event.place is not None}
    if edits and all(edits) and len(codes) == 1:
        for choice in range(max(map(len, edits))):
            yield next(iter(codes)).fix([one[min(choice, len(one) - 1)] for one in edits], WORDS)
    yield from _over_heads(case)


def scrambles(case: Case, event: Event) -> bool:
    """Whether a reshape leaves no axis, or group of axes, that holds the tokens as one did before."""
    if event.name not in RESHAPES or not event.operands or ("stream" not in event.fed and "source" not in event.fed):
        return False
    old, new = event.operands[0].shape, event.shape
    return any(_torn(old, new, many) or _torn(new, old, many) for many in {case.sizes.tokens, case.sizes.source})


def _torn(old: Sequence[int], new: Sequence[int], many: int) -> bool:
    """Whether a border of the new axes falls into an axis of so many without dividing it evenly."""
    borders = [math.prod(new[:i]) for i in range(len(new) + 1)]
    for place, size in enumerate(old):
        first = math.prod(old[:place])
        last = first * many
        if size == many and any(first < b < last and (b % first or last % b) for b in borders):
            return True
    return False


def _mended(case: Case, event: Event) -> Iterator[Edit]:
    """The same reshape with tokens left where they are, and axes exchanged before or after it."""
    place = event.place
    if place is None or not isinstance(place.node, ast.Call):
        return
    nodes = operand_nodes(event)
    if not nodes:
        return
    old, new, many = event.operands[0].shape, event.shape, case.sizes.tokens
    many = many if many in old else case.sizes.source
    if many not in old or many not in new:
        return
    start, end = old.index(many), new.index(many)
    if len(new) > len(old):
        yield from _split(place, place.node, nodes[0], (start, end), new)
    elif len(new) == len(old) == 3 and new[0] > old[0]:
        yield from _split_among_rows(place, place.node, nodes[0])
    else:
        yield from _merged(case, place, place.node, nodes[0], event)


def _split(
    place: Place, call: ast.Call, receiver: ast.expr, axes: tuple[int, int], new: tuple[int, ...]
) -> Iterator[Edit]:
    code, (start, end) = place.code, axes
    sizes = [code.words(node) for node in _sizes(call, receiver)]
    if len(sizes) == len(new) and not any(text.startswith("*") for text in sizes):
        order = list(range(len(new)))
        order.insert(start, order.pop(end))
        told = ", ".join(sizes[axis] for axis in order)
        name = call.func.attr if isinstance(call.func, ast.Attribute) else "reshape"
        yield code.replaced(call, f"{code.words(receiver)}.{name}({told}){_back(order)}")


def _split_among_rows(place: Place, call: ast.Call, receiver: ast.expr) -> Iterator[Edit]:
    """[rows, tokens, width] to [rows·heads, tokens, size]."""
    code, sizes = place.code, _sizes(call, receiver)
    if len(sizes) == 3:
        told = ", ".join(code.words(node) for node in sizes)
        apart = method_of(code, receiver, f".unflatten(-1, (-1, {code.words(sizes[-1])})).transpose(1, 2)")
        yield code.replaced(call, f"{apart}.reshape({told})")


def _sizes(call: ast.Call, receiver: ast.expr) -> list[ast.expr]:
    """What the axes of a reshape are given as."""
    given = [node for node in call.args if node is not receiver]
    if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List):
        return given[0].elts
    return given


def _back(order: Sequence[int]) -> str:
    """The call that puts axes in another order back: an exchange of two where that is all."""
    back = [order.index(axis) for axis in range(len(order))]
    moved = [axis for axis, to in enumerate(back) if axis != to]
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(map(str, back))})" if moved else ""


def _merged(case: Case, place: Place, call: ast.Call, receiver: ast.expr, event: Event) -> Iterator[Edit]:
    """Heads go behind the tokens before they are joined."""
    code, old, new = place.code, event.operands[0].shape, event.shape
    many = case.sizes.tokens if case.sizes.tokens in old else case.sizes.source
    start, end = old.index(many), new.index(many)
    told = ", ".join(code.words(node) for node in call.args if node is not receiver)
    inner = receiver
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "contiguous":
        inner = inner.func.value
    if event.name == "flatten":
        told = ", ".join(str(size) if size != many else "-1" for size in new)
    if len(old) == 4:
        order = list(range(len(old)))
        order.insert(end, order.pop(start))
        moved = _forth(order)
        yield code.replaced(call, f"{method_of(code, inner, moved)}.reshape({told})")
    elif len(old) == 3 and old[0] % new[0] == 0:
        heads = old[0] // new[0]
        name = called({n: v for n, v in numbers(place).items() if v == heads}, heads, 1)
        if name is not None:
            rows_first = method_of(code, inner, f".unflatten(0, (-1, {name})).transpose(1, 2)")
            heads_first = method_of(code, inner, f".unflatten(0, ({name}, -1)).permute(1, 2, 0, 3)")
            yield code.replaced(call, f"{rows_first}.reshape({told})")
            yield code.replaced(call, f"{heads_first}.reshape({told})")


def _forth(order: Sequence[int]) -> str:
    moved = [axis for axis, to in enumerate(order) if axis != to]
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(map(str, order))})"


def _over_heads(case: Case) -> Iterator[Fix | None]:
    """Heads that meet heads instead of tokens that meet tokens: the two axes were never exchanged."""
    words = "heads attend to heads, token by token: the axes of heads and tokens must be exchanged before the product"
    for found in case.attended:
        product = found.scores or found.fused
        if product is None or (found.fused is None and not _met_wrongly(case, product)):
            continue
        edits: dict[ast.AST, tuple[Code, Edit]] = {}
        for event in [e for operand in product.operands for e in _chain(operand.maker)]:
            _exchange(case, event, edits, before=False)
        for event in _values_of(found):
            _exchange(case, event, edits, before=False)
        last = found.mix or found.fused
        for event in [] if last is None else last.ahead():
            _exchange(case, event, edits, before=True)
        codes = {code for code, _ in edits.values()}
        if len(codes) == 1:
            yield codes.pop().fix([edit for _, edit in edits.values()], words)


def _met_wrongly(case: Case, product: Event) -> bool:
    return case.sizes.tokens not in product.shape[-2:] and case.sizes.heads in product.shape[-2:]


def _values_of(found: Attended) -> list[Event]:
    if found.mix is None:
        return []
    return [event for operand in found.mix.operands for event in _chain(operand.maker) if event is not found.softmax]


def _chain(event: Event | None) -> Iterator[Event]:
    while event is not None and event.name not in ("linear", "softmax", "matmul"):
        yield event
        event = event.operands[0].maker if event.operands else None


def _exchange(case: Case, event: Event, edits: dict[ast.AST, tuple[Code, Edit]], before: bool) -> None:
    """Axes 1 and 2 exchanged behind a split, or before a merge."""
    place, heads = event.place, case.sizes.heads
    if not before and event.name == "permute" and place is not None and place.node not in edits:
        _permuted(case, event, place, edits)
    if place is None or event.name not in RESHAPES or not isinstance(place.node, ast.Call) or place.node in edits:
        return
    nodes, old, new = operand_nodes(event), event.operands[0].shape, event.shape
    if not nodes:
        return
    if not before and len(new) == 4 and new[2] == heads and len(old) < 4:
        text = f"{place.words(place.node)}.transpose(1, 2)"
        edits[place.node] = (place.code, place.code.replaced(place.node, text))
    elif before and len(old) == 4 and old[2] == heads and len(new) == 3:
        told = ", ".join(place.words(node) for node in place.node.args if node is not nodes[0])
        name = "reshape" if event.name == "view" else event.name
        text = f"{method_of(place.code, nodes[0], '.transpose(1, 2)')}.{name}({told})"
        edits[place.node] = (place.code, place.code.replaced(place.node, text))


def _permuted(case: Case, event: Event, place: Place, edits: dict[ast.AST, tuple[Code, Edit]]) -> None:
    """A permutation that leaves heads behind tokens puts them before."""
    nodes, new = operand_nodes(event), event.shape
    order = _sizes(place.node, nodes[0]) if isinstance(place.node, ast.Call) and nodes else []
    for axis in range(len(new) - 1):
        if new[axis : axis + 2] == (case.sizes.tokens, case.sizes.heads) and len(order) == len(new):
            told = [place.words(node) for node in order]
            told[axis], told[axis + 1] = told[axis + 1], told[axis]
            start, end = place.code.span(order[0])[0], place.code.span(order[-1])[1]
            edits[place.node] = (place.code, Edit(start, end, ", ".join(told)))


def shared_heads(case: Case) -> Iterator[Fix | None]:
    """Key heads repeated one by one for the query heads that share them, or all in turn if that was declared."""
    declared = None if case.subject is None else case.subject.declared.gqa
    edits: dict[ast.AST, tuple[Code, Edit]] = {}
    for event in case.events:
        place = event.place
        if place is None or not isinstance(place.node, ast.Call) or not event.fed or place.node in edits:
            continue
        text = interleaved(place, event) if declared != "tile" else _tiled(place, event)
        if text is not None:
            edits[place.node] = (place.code, place.code.replaced(place.node, text))
    for code, edit in edits.values():
        yield code.fix([edit], SHARED)
    codes = {code for code, _ in edits.values()}
    if len(edits) > 1 and len(codes) == 1:
        yield codes.pop().fix([edit for _, edit in edits.values()], SHARED)


def interleaved(place: Place, event: Event) -> str | None:
    nodes, old, new = operand_nodes(event), event.operands[0].shape if event.operands else (), event.shape
    if event.name in ("repeat", "tile") and len(old) == len(new):
        grown = [axis for axis, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        times = _sizes(place.node, nodes[0]) if isinstance(place.node, ast.Call) else []
        if len(grown) == 1 and len(times) == len(new):
            receiver, often = place.words(nodes[0]), place.words(times[grown[0]])
            return f"{receiver}.repeat_interleave({often}, dim={grown[0]})"
    match event.name, place.node:
        case "cat", ast.Call(args=[ast.BinOp(left=ast.List(elts=[one]), op=ast.Mult(), right=many), *_]) as call:
            dim = named_node_words(place, call)
            return f"{place.words(one)}.repeat_interleave({place.words(many)}, dim={dim})"
    return None


def named_node_words(place: Place, call: ast.Call) -> str:
    """The axis that a call of `cat` names."""
    for keyword in call.keywords:
        if keyword.arg in ("dim", "axis"):
            return place.words(keyword.value)
    return place.words(call.args[1]) if len(call.args) > 1 else "0"


def _tiled(place: Place, event: Event) -> str | None:
    nodes = operand_nodes(event)
    if event.name != "repeat_interleave" or len(nodes) < 2 or not event.operands:
        return None
    grown = [a for a, (b, c) in enumerate(zip(event.operands[0].shape, event.shape, strict=True)) if b != c]
    if len(grown) != 1:
        return None
    ones = ["1"] * len(event.shape)
    ones[grown[0]] = place.words(nodes[1])
    return f"{place.words(nodes[0])}.repeat({', '.join(ones)})"
