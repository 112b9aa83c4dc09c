"""Who sees whom by place: triangles and their diagonals, comparisons of places, and triangles that are missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import nn

from ...foreign.words import Role, role_of
from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import FUSED, TORCHS, named_node, operand_nodes
from ..watch import Event, Place
from ..write import appended, dropped, enclosed, given_keyword, movable
from .masks import filled, named_scores

TRIANGLES = {"tril", "triu"}
STRICTER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
COMPARED = {"gt", "ge", "lt", "le", "greater", "less", "greater_equal", "less_equal"}
AHEAD = "a token sees later ones: the diagonal of the triangle is off"
ITSELF = "a token does not see itself: the diagonal of the triangle is off"
MISSING = "nothing hides later tokens"


def sees_ahead(case: Case) -> Iterator[Fix | None]:
    """The diagonal of a triangle moved down, a comparison made strict, a triangle turned."""
    yield from _diagonals(case, (-1, 1), AHEAD)
    yield from compared(case)
    yield from turned(case)


def not_itself(case: Case) -> Iterator[Fix | None]:
    yield from _diagonals(case, (1, -1), ITSELF)
    yield from compared(case)


def extent(case: Case) -> Iterator[Fix | None]:
    """A window that is one too wide or too narrow."""
    yield from compared(case)
    yield from _diagonals(case, (1, -1), "the window holds one token more or less than it says")


def triangles(case: Case) -> Iterator[tuple[Code, ast.Call, str, list[ast.expr]]]:
    """Every call of tril and triu: which it is, and what may be its diagonal."""
    for code, call in case.home.nodes(ast.Call):
        match call.func:
            case ast.Attribute(attr=name, value=value) if name in TRIANGLES:
                of_torch = isinstance(value, ast.Name) and value.id in ("torch", "np", "numpy")
                yield code, call, name, call.args[1:2] if of_torch else call.args[:1]
            case ast.Name(id=name) if name in TRIANGLES:
                yield code, call, name, call.args[1:2]


def _diagonals(case: Case, steps: tuple[int, ...], words: str) -> Iterator[Fix | None]:
    for step in steps:
        for code, call, _, positional in triangles(case):
            node = named_node(call, "diagonal", "k") or next(iter(positional), None)
            if node is None:
                yield code.fix([appended(code, call, f"diagonal={step}")], words)
            else:
                stepped = _stepped(code, node, step)
                yield code.fix([dropped(code, call, node) if stepped == "0" else code.replaced(node, stepped)], words)


def _stepped(code: Code, node: ast.expr, step: int) -> str:
    """A number one more or one less."""
    match node:
        case ast.Constant(value=int(value)):
            return str(value + step)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return str(step - value)
        case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=1)) if step < 0:
            return code.words(left)
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=1)) if step > 0:
            return code.words(left)
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Add(), right=right) if step < 0:
            return code.words(right)
    return f"{code.words(node)} {'+' if step > 0 else '-'} 1"


def compared(case: Case) -> Iterator[Fix | None]:
    """Places compared with places: strictly or not."""
    seen: set[ast.AST] = set()
    for event in case.everything:
        place = event.place
        if (
            place is None
            or event.name not in COMPARED
            or event.fed & {"stream", "source", "value"}
            or place.node in seen
        ):
            continue
        seen.add(place.node)
        match place.node:
            case ast.Compare(left=left, ops=[_], comparators=[right]):
                yield from _compared(place.code, left, right)
    for code, node in case.home.nodes(ast.Compare):  # also where a plain call does not come by
        if len(node.ops) == 1 and node not in seen and "arange" in code.words(node):
            yield from _compared(code, node.left, node.comparators[0])


def _compared(code: Code, left: ast.expr, right: ast.expr) -> Iterator[Fix | None]:
    words = "places are compared strictly where they should not be, or the other way round"
    for side in (left, right):
        for part in ast.walk(side):
            match part:
                case ast.BinOp(left=kept, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
                    start, end = enclosed(code, part)
                    yield code.fix([Edit(start, end, code.words(kept))], "a place is counted one too far")
    start, end = enclosed(code, left)[1], enclosed(code, right)[0]
    sign = code.text[start:end].strip()
    if sign in STRICTER:
        yield code.fix([Edit(start, end, f" {STRICTER[sign]} ")], words)


def turned(case: Case) -> Iterator[Fix | None]:
    """The lower triangle for the upper one, or the other way round, with the diagonal where it belongs."""
    words = "the triangle is upside down: it shows what should be hidden"
    for code, call, name, positional in triangles(case):
        other = "tril" if name == "triu" else "triu"
        node = named_node(call, "diagonal", "k") or next(iter(positional), None)
        end = code.span(call.func)[1]
        func = Edit(end - len(name), end, other)
        yield code.fix([func], words)
        for diagonal in ("0", "1", "-1"):
            edit = appended(code, call, f"diagonal={diagonal}") if node is None else code.replaced(node, diagonal)
            yield code.fix([func, edit], words)


def missing(case: Case) -> Iterator[Fix | None]:
    """A triangle where none is: told to torch's attention, or filled into the scores."""
    for event in case.events:
        place = event.place
        if place is None or not isinstance(place.node, ast.Call):
            continue
        if event.name == FUSED:
            yield from _switch(place, place.node)
        elif event.name == TORCHS:
            yield _given_triangle(place, place.node, "attn_mask")
        elif event.name == "softmax" and len(event.shape) >= 3 and event.shape[-1] == event.shape[-2]:
            yield _into_scores(event, place)
        layer = place.value(place.node.func)
        if isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerEncoder):
            name = "mask" if isinstance(layer, nn.TransformerEncoder) else "src_mask"
            yield _given_triangle(place, place.node, name)


def _switch(place: Place, call: ast.Call) -> Iterator[Fix | None]:
    function = place.code.function(call)
    told = [] if function is None else [a.arg for a in function.args.args if role_of(a.arg) is Role.CAUSAL]
    own = [] if place.owner is None else [f"self.{n}" for n in vars(place.owner) if role_of(n) is Role.CAUSAL]
    for text in (*told, *own, "True"):
        yield place.code.fix([given_keyword(place.code, call, "is_causal", text)], MISSING)


def _given_triangle(place: Place, call: ast.Call, name: str) -> Fix | None:
    first = call.args[0] if call.args else None
    if not isinstance(first, ast.Name) or "torch" not in place.known:
        return None
    x = first.id
    text = f"torch.ones({x}.shape[1], {x}.shape[1], dtype=torch.bool, device={x}.device).triu(1)"
    return place.code.fix([given_keyword(place.code, call, name, text)], MISSING)


def _into_scores(event: Event, place: Place) -> Fix | None:
    given = operand_nodes(event)[:1]
    if not given or not movable(place.code, place.node) or "torch" not in place.known:
        return None
    scores, edits = named_scores(place.code, given[0])
    lines = [] if isinstance(given[0], ast.Name) else [f"{scores} = {place.words(given[0])}"]
    lines.append(filled(place, scores, f"torch.ones_like({scores}, dtype=torch.bool).triu(1)"))
    return place.code.fix([*edits, place.code.before(place.code.statement(place.node), *lines)], MISSING)


def lined_up(case: Case) -> Iterator[Fix | None]:
    """With a cache there are more keys than queries: the triangle belongs to the last keys, not to the first."""
    words = "with a cache the last query sees the last key; the triangle is lined up with the first one"
    for code, call, _, positional in triangles(case):
        node = named_node(call, "diagonal") or next(iter(positional), None)
        text = _lag(code, call)
        if text is not None:
            step = f"{code.words(node)} + " if node is not None and code.words(node) != "0" else ""
            edit = appended(code, call, f"diagonal={text}") if node is None else code.replaced(node, f"{step}{text}")
            yield code.fix([edit], words)
    for event in case.events:
        if event.name == FUSED and event.place is not None and isinstance(event.place.node, ast.Call):
            yield _bottom_right(event, event.place, event.place.node, words)
    yield from _rows_of_table(case, words)
    yield from _appended_wrongly(case)


def _lag(code: Code, call: ast.Call) -> str | None:
    """How many more keys than queries a triangle has."""
    func = call.func
    square = func.value if isinstance(func, ast.Attribute) else None
    if isinstance(square, ast.Name) and square.id in ("torch", "np") and call.args:
        square = call.args[0]
    match square:
        case ast.Call(func=ast.Attribute(attr="ones" | "full" | "zeros"), args=[ast.Tuple(elts=[*_, one, other]), *_]):
            return f"{code.words(other)} - {code.words(one)}"
        case ast.Call(func=ast.Attribute(attr="ones" | "zeros"), args=[*_, one, other]):
            return f"{code.words(other)} - {code.words(one)}"
        case ast.Call(func=ast.Attribute(attr="ones_like" | "full_like" | "zeros_like"), args=[ast.Name(id=name), *_]):
            return f"{name}.shape[-1] - {name}.shape[-2]"
        case ast.Name(id=name):
            return f"{name}.shape[-1] - {name}.shape[-2]"
    return None


def _bottom_right(event: Event, place: Place, call: ast.Call, words: str) -> Fix | None:
    causal, names = named_node(call, "is_causal"), operand_nodes(event)[:2]
    plain = all(isinstance(node, ast.Name) for node in names) and "torch" in place.known
    if causal is None or len(names) < 2 or not plain or named_node(call, "attn_mask") is not None:
        return None
    q, k = (place.words(node) for node in names)
    seen = f"torch.ones({q}.shape[-2], {k}.shape[-2], dtype=torch.bool, device={q}.device)"
    keyword = next(one for one in call.keywords if one.value is causal)
    text = f"attn_mask={seen}.tril({k}.shape[-2] - {q}.shape[-2])"
    return place.code.fix([place.code.replaced(keyword, text)], words)


def _rows_of_table(case: Case, words: str) -> Iterator[Fix | None]:
    """`self.mask[:, :, :T, :S]` takes the first rows of a table; the last ones of S are meant."""
    for code, node in case.home.nodes(ast.Subscript):
        match node.slice:
            case ast.Tuple(
                elts=[
                    *_,
                    ast.Slice(lower=None, upper=ast.expr() as one) as rows,
                    ast.Slice(lower=None, upper=ast.expr() as other),
                ]
            ):
                t, s = code.words(one), code.words(other)
                if t != s:
                    yield code.fix([code.replaced(rows, f"{s} - {t} : {s}")], words)


def _appended_wrongly(case: Case) -> Iterator[Fix | None]:
    """What was kept goes before what is new."""
    edits: dict[Code, list[Edit]] = {}
    for code, call in case.home.nodes(ast.Call):
        match call:
            case ast.Call(
                func=ast.Attribute(attr="cat" | "concat") | ast.Name(id="cat"),
                args=[ast.Tuple(elts=[one, other]) | ast.List(elts=[one, other]), *_],
            ):
                swapped = [code.replaced(one, code.words(other)), code.replaced(other, code.words(one))]
                edits.setdefault(code, []).extend(swapped)
    for code, all_of_them in edits.items():
        words = "new keys are put before those of the cache; they belong behind them"
        yield code.fix(all_of_them, words)
