"""By what scores are divided, and where."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import Attended, Factor, contracted, factor, factors, named_node, operand_nodes
from ..names import Spot, called, numbers, tensor_size
from ..watch import Event, Place
from ..write import dropped, inside


def wrong_scale(case: Case) -> Iterator[Fix | None]:
    """One factor, 1/√(size of a head), between the projections and the softmax."""
    for found in case.attended:
        product = found.scores or found.fused
        if product is None or product.place is None:
            continue
        size = contracted(product)
        right = _wanted(case, size)
        held = factors(found)
        given = math.prod(one.times for one in held) * _own(found, size)
        if math.isclose(given, right, rel_tol=1e-4):
            continue  # on another path it is wrong
        words = f"the scores are multiplied by {given:.4g}; with {size} channels per head it should be {right:.4g}"
        if found.fused is not None:
            yield _told(found.fused, words)
        for one in held:
            rest = given / one.times
            if math.isclose(rest, right, rel_tol=1e-4):
                yield one.place.code.fix(_removed(one), words)
            elif math.isclose(right, size**-0.5) and math.isclose(rest, 1.0):
                yield from _rewritten(case, one, size, words)
        if not held and found.scores is not None:
            yield _added(case, found.scores, size, words)


def _wanted(case: Case, size: int) -> float:
    declared = None if case.subject is None else case.subject.declared.scale
    if declared == "none":
        return 1.0
    return float(declared) if isinstance(declared, int | float) else size**-0.5


def _own(found: Attended, size: int) -> float:
    """By what torch's own function multiplies."""
    if found.fused is None:
        return 1.0
    scale = found.fused.named.get("scale")
    return size**-0.5 if scale is None else float(scale)


def _told(event: Event, words: str) -> Fix | None:
    """Torch's own function finds the right scale itself."""
    place = event.place
    scale = None if place is None else named_node(place.node, "scale")
    if place is None or scale is None or not isinstance(place.node, ast.Call):
        return None
    return place.code.fix([dropped(place.code, place.node, scale)], words)


def _removed(one: Factor) -> list[Edit]:
    """The factor taken away."""
    place = one.place
    match place.node:
        case ast.AugAssign():
            return [place.code.without(place.node)]
        case ast.expr():
            kept = next(node for node in operand_nodes(one.event) if node is not one.node)
            statement = place.code.statement(place.node)
            match statement:
                case ast.Assign(targets=[target], value=value) if value is place.node:
                    if place.words(target) == place.words(kept):
                        return [place.code.without(statement)]
            return [place.code.replaced(place.node, place.words(kept))]
    return []


def _rewritten(case: Case, one: Factor, size: int, words: str) -> Iterator[Fix | None]:
    """Another number in the place of this one, where it is computed."""
    place = one.place
    inverse = math.isclose(one.times, size**0.5, rel_tol=1e-4)
    spot = case.names.defined(one.event, one.node)
    if spot is not None and spot.node is not one.node:
        told = called(spot.names, size, case.sizes.heads)
        if inverse and (half := _half(spot.node)) is not None:
            yield spot.code.fix([spot.code.replaced(half, _flipped(spot.code, half))], words)
        if told is not None:
            yield spot.code.fix([_resized(spot, told, one.divides)], words)
    if inverse and (half := _half(one.node)) is not None:
        yield place.code.fix([place.code.replaced(half, _flipped(place.code, half))], words)
    elif inverse:
        yield place.code.fix(list(_swapped(one)), words)
    told = _size_here(case, one.event, place, size)
    if told is not None:
        yield place.code.fix([_resized(Spot(place.code, one.node, {}), told, one.divides)], words)


def _half(node: ast.expr) -> ast.expr | None:
    """The exponent of a square root."""
    match node:
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5) as power):
            return power
        case ast.BinOp(op=ast.Pow(), right=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=0.5)) as power):
            return power
    return None


def _flipped(code: Code, half: ast.expr) -> str:
    return code.words(half).lstrip("- ") if isinstance(half, ast.UnaryOp) else f"-{code.words(half)}"


def _swapped(one: Factor) -> Iterator[Edit]:
    """Division for multiplication, and the other way round; the number stands behind."""
    code, node = one.place.code, one.place.node
    match node:
        case ast.BinOp(left=left, right=right) if right is one.node:
            start, end = code.span(left)[1], code.span(right)[0]
            between = code.text[start:end]
            yield Edit(start, end, between.replace("*", "/") if "*" in between else between.replace("/", "*"))
        case ast.AugAssign(target=target, value=value):
            start, end = code.span(target)[1], code.span(value)[0]
            between = code.text[start:end]
            yield Edit(start, end, between.replace("*=", "/=") if "*=" in between else between.replace("/=", "*="))


def _resized(spot: Spot, told: str, divides: bool) -> Edit:
    """The same form with another size in it, or a root of that size."""
    code, node = spot.code, spot.node
    match node:
        case ast.Call(func=ast.Attribute(attr="sqrt") | ast.Name(id="sqrt"), args=[inner]) if divides:
            if not isinstance(inner, ast.Call) or code.words(inner.func) == "float":  # no root of a tensor
                return code.replaced(inner, told.strip("()") if told.startswith("(") else told)
        case ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Div(), right=ast.expr() as right) if not divides:
            return _resized(Spot(code, right, spot.names), told, True)
    power = "0.5" if divides else "-0.5"
    return code.replaced(node, f"{told} ** {power}")


def _size_here(case: Case, event: Event, place: Place, size: int) -> str | None:
    """The size of a head, as it can be written at this place."""
    named = called({n: v for n, v in numbers(place).items() if v == size}, size, case.sizes.heads)
    if named is not None:
        return named
    for node in [
        n for e in (event, *event.behind()) if e.place and e.place.scope is not None for n in operand_nodes(e)
    ]:
        if isinstance(node, ast.Name) and (told := tensor_size(place, node, size)) is not None:
            return told
    return None


def _added(case: Case, product: Event, size: int, words: str) -> Fix | None:
    """Scores that are not scaled at all, divided."""
    place = product.place
    if place is None or not isinstance(place.node, ast.expr):
        return None
    told = _size_here(case, product, place, size)
    if told is None:
        return None
    text = f"{place.words(place.node)} / {told} ** 0.5"
    return place.code.fix([inside(place.code, place.node, text, ast.MatMult)], words)


def scale_after_softmax(case: Case) -> Iterator[Fix | None]:
    """The number by which weights are divided goes to the scores."""
    for found in case.attended:
        if found.softmax is None or found.softmax.place is None:
            continue
        for event in found.softmax.ahead():
            one = factor(event)
            if one is None or one.place.code is not found.softmax.place.code:
                continue
            words = (
                f"the weights are multiplied by {one.times:.4g} after the softmax; it belongs to the scores before it"
            )
            moved = _scored(found.softmax, one)
            edits = [*moved, *_removed(one)]
            if moved:
                yield _both(one.place.code, found.softmax, one, words) or one.place.code.fix(edits, words)


def _scored(softmax: Event, one: Factor) -> list[Edit]:
    """The same factor on what the softmax is given."""
    place = softmax.place
    given = operand_nodes(softmax)[:1]
    if place is None or not given:
        return []
    sign = "/" if one.divides else "*"
    text = f"{place.words(given[0])} {sign} {one.place.words(one.node)}"
    return [inside(place.code, given[0], text, ast.Div)]


def _both(code: Code, softmax: Event, one: Factor, words: str) -> Fix | None:
    """If the factor stands around the softmax itself, the whole expression is written anew."""
    outer, inner = one.place.node, softmax.place.node if softmax.place else None
    if inner is None or not isinstance(outer, ast.expr) or inner not in ast.walk(outer):
        return None
    (edit,) = _scored(softmax, one)
    start, end = code.span(inner)
    text = code.text[start : edit.start] + edit.text + code.text[edit.end : end]
    return code.fix([code.replaced(outer, text)], words)
