"""The softmax: its axis, its being there, its range; and what its weights mix."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import Tensor, nn

from ...foreign.words import Role, role_of
from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import Attended, named_node, operand_nodes
from ..home import own_targets
from ..watch import Event, Place
from ..write import appended, fresh, method_of, movable, with_method
from .hiding import asked_for, hidden_where, hides
from .masks import filled


def softmax_axis(case: Case) -> Iterator[Fix | None]:
    """Over the keys: the last axis, or the one before it where scores lie on their side."""
    for found in case.attended:
        for axis in ("-1", "-2"):
            if found.softmax is not None:
                yield _along(case, found.softmax, axis)
            else:
                yield from (_along(case, event, axis) for event in _sums(found))


def _sums(found: Attended) -> list[Event]:
    """Sums between the scores and what is mixed: a softmax that is written out."""
    if found.scores is None or found.mix is None:
        return []
    return [
        event for event in found.scores.ahead() if event.name in ("sum", "logsumexp") and found.mix in event.ahead()
    ]


def _along(case: Case, event: Event, axis: str) -> Fix | None:
    """The same along another axis."""
    place = event.place
    if place is None or not isinstance(place.node, ast.Call):
        return None
    given = event.argument(1, "dim", "axis")
    words = (
        f"the softmax runs along axis {given} of scores {list(event.operands[0].shape)}; keys stand along axis {axis}"
    )
    call: ast.Call = place.node
    code = place.code
    layer = place.value(call.func)
    if isinstance(call.func, ast.Call):  # nn.Softmax(dim=1)(scores)
        call = call.func
        return code.fix([_set_axis(code, call, call.args[:1], axis)], words)
    if isinstance(layer, nn.Softmax | nn.LogSoftmax):
        return _in_constructor(case, place, call, axis, words)
    behind = [node for node in operand_nodes(event) if node in call.args]
    behind = behind if isinstance(call.func, ast.Attribute) and call.func.value in operand_nodes(event) else behind[1:]
    return code.fix([_set_axis(code, call, behind[:1], axis)], words)


def _set_axis(code: Code, call: ast.Call, positional: list[ast.expr], axis: str) -> Edit:
    node = named_node(call, "dim", "axis") or next(iter(positional), None)
    return appended(code, call, f"dim={axis}") if node is None else code.replaced(node, axis)


def _in_constructor(case: Case, place: Place, call: ast.Call, axis: str, words: str) -> Fix | None:
    """A layer nn.Softmax(dim=...) that the constructor makes."""
    if not isinstance(call.func, ast.Attribute) or place.owner is None:
        return None
    for code, statement in case.home.assigned(type(place.owner), call.func.attr):
        made = own_targets(statement).get(call.func.attr)
        if isinstance(made, ast.Call):
            return code.fix([_set_axis(code, made, made.args[:1], axis)], words)
    return None


def no_softmax(case: Case) -> Iterator[Fix | None]:
    """A softmax in the place of what is there instead, or of nothing."""
    words = "the scores are used as weights without a softmax over the keys"
    for found in case.attended:
        if found.softmax is not None or found.mix is None or found.scores is None:
            continue
        for event in found.scores.ahead():
            instead = event.name in {"sigmoid", "relu", "tanh", "normalize", "abs", "exp", "gelu", "relu_", "sigmoid_"}
            divided = event.name == "div" and any(o.maker and o.maker.name in ("sum", "norm") for o in event.operands)
            if (instead or divided) and found.mix in event.ahead() and event.place is not None:
                given, place = operand_nodes(event)[:1], event.place
                if given and isinstance(place.node, ast.expr):
                    yield place.code.fix(
                        [place.code.replaced(place.node, method_of(place.code, given[0], ".softmax(-1)"))], words
                    )
        nodes, mixed = operand_nodes(found.mix), found.mix.place
        if mixed is None:
            continue
        for operand, node in zip(found.mix.operands, _tensor_nodes(found.mix, nodes), strict=False):
            if operand.maker is found.scores or (operand.maker and found.scores in operand.maker.behind()):
                yield mixed.code.fix([with_method(mixed.code, node, ".softmax(-1)")], words)


def _tensor_nodes(event: Event, nodes: list[ast.expr]) -> list[ast.expr]:
    """The expressions of the tensors among what an operation was given: einsum takes a pattern first."""
    return nodes[1:] if event.name == "einsum" and isinstance(event.given[0], str) else nodes


def overflow(case: Case) -> Iterator[Fix | None]:
    """The exponential of what was made small before, or torch's softmax."""
    words = "exp of large scores is infinite; torch's softmax subtracts the largest score first"
    for event in case.everything:
        place = event.place
        if place is None or not event.fed or not isinstance(place.node, ast.expr):
            continue
        if event.name == "div":
            given = _exponent(place, operand_nodes(event)[:1])
            if given is not None:
                yield place.code.fix(
                    [place.code.replaced(place.node, method_of(place.code, given, ".softmax(-1)"))], words
                )
        if event.name == "exp" and operand_nodes(event):
            inner = operand_nodes(event)[0]
            yield from _hidden_first(event, place, inner, words)
            yield _hoisted(place, inner, words)
            told = method_of(place.code, inner, ".amax(-1, keepdim=True)")
            less = f"{place.words(inner)} - {told}"
            if isinstance(place.node, ast.Call) and inner in place.node.args:
                yield place.code.fix([place.code.replaced(inner, less)], words)
            else:
                yield place.code.fix([place.code.replaced(place.node, f"({less}).exp()")], words)


def _hidden_first(event: Event, place: Place, inner: ast.expr, words: str) -> Iterator[Fix | None]:
    """Where exponentials are multiplied with a mask, scores are filled before the largest is taken from them."""
    code, less = place.code, f"{place.words(inner)} - {method_of(place.code, inner, '.amax(-1, keepdim=True)')}"
    for other in filter(hides, event.ahead()):
        assert other.place is not None
        condition = hidden_where(other, other.place)
        if condition is None or not isinstance(inner, ast.Name) or other.place.code is not code:
            continue
        asks, gone = asked_for(code, code.statement(other.place.node))
        fill = filled(place, inner.id, condition)
        lines = [fill] if asks is None else [f"if {asks}:", f"    {fill}"]
        first = code.before(code.statement(place.node), *lines)
        yield code.fix([first, code.replaced(inner, less), code.without(gone)], words)


def _hoisted(place: Place, inner: ast.expr, words: str) -> Fix | None:
    """Scores that have no name get one, so that the largest can be taken from them."""
    if isinstance(inner, ast.Name) or not movable(place.code, inner):
        return None
    name = fresh(place.code, inner, "scores")
    less = f"{name} - {name}.amax(-1, keepdim=True)"
    first = place.code.before(place.code.statement(inner), f"{name} = {place.words(inner)}")
    if isinstance(place.node, ast.Call) and inner in place.node.args:
        return place.code.fix([first, place.code.replaced(inner, less)], words)
    return place.code.fix([first, place.code.replaced(place.node, f"({less}).exp()")], words)


def _exponent(place: Place, nodes: list[ast.expr]) -> ast.expr | None:
    """What `exp` is taken of, in an expression that is nothing else."""
    match nodes:
        case [ast.Call(func=ast.Attribute(attr="exp", value=value), args=[])]:
            return value
        case [ast.Call(func=ast.Attribute(attr="exp"), args=[value])]:
            return value
    return None


def value_is_key(case: Case) -> Iterator[Fix | None]:
    """The values in the place of what is mixed, where it is mixed or where it is passed on."""
    words = "the weights mix something else than the values"
    yield from _unread(case)
    for found in case.attended:
        mixed = found.fused or found.mix
        if mixed is None:
            continue
        nodes = _tensor_nodes(mixed, operand_nodes(mixed))
        weights = found.softmax or found.scores
        for operand, node in zip(mixed.operands, nodes, strict=False):
            derived = operand.maker is weights or (operand.maker is not None and weights in operand.maker.behind())
            if found.fused is not None:
                derived = node is not nodes[2]
            if not derived:
                for place, spot in case.names.passed_on(mixed, node):
                    yield from _values(place, spot, operand.shape, words)


def _unread(case: Case) -> Iterator[Fix | None]:
    """Values that are made and never read, where keys are: `cache_v[:, :t] = k`."""
    for code, function in case.home.nodes(ast.FunctionDef):
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        made = {node.id: node for node in names if isinstance(node.ctx, ast.Store)}
        for value, first in made.items():
            if value in read or role_of(value) is not Role.VALUE:
                continue
            for node in sorted(names, key=lambda node: (not _to_values(code, node), -node.lineno, -node.col_offset)):
                later = isinstance(node.ctx, ast.Load) and node.lineno > first.lineno
                if later and role_of(node.id) is Role.KEY:
                    yield code.fix(
                        [code.replaced(node, value)], f"{value} is made, but {node.id} is taken in its place"
                    )


def _to_values(code: Code, node: ast.AST) -> bool:
    """Whether a statement sets something that is called after values."""
    statement = code.statement(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    inner = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name | ast.Attribute)]
    return any(role_of(part.id if isinstance(part, ast.Name) else part.attr) is Role.VALUE for part in inner)


def _values(place: Place, node: ast.expr, shape: tuple[int, ...], words: str) -> Iterator[Fix | None]:
    names = {n.id: n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(place.scope.get(n.id), Tensor)}
    for name, said in names.items():
        for other, value in place.scope.items():
            told = role_of(other) is Role.VALUE or other.lower().startswith("v")
            if other != name and told and isinstance(value, Tensor) and value.shape == place.scope[name].shape:
                yield place.code.fix([place.code.replaced(said, other)], words)


def weights_averaged(case: Case) -> Iterator[Fix | None]:
    """One map per head is returned, not their sum or mean."""
    words = "the weights of all heads are added up before they are returned"
    for code, call in case.home.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr="mean" | "sum", value=value)) if _returned(code, call):
                yield code.fix([code.replaced(call, code.words(value))], words)
    for event in case.everything:
        if event.name == "multi_head_attention_forward" and event.place and isinstance(event.place.node, ast.Call):
            yield event.place.code.fix(
                [appended(event.place.code, event.place.node, "average_attn_weights=False")], words
            )


def _returned(code: Code, node: ast.AST) -> bool:
    return any(isinstance(above, ast.Return) for above in code.above(node)) or any(
        isinstance(above, ast.Assign) for above in code.above(node)
    )
