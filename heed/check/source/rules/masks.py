"""Masks that are lost on their way: not assigned, not passed on, not used."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...foreign.words import Role, role_of
from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import FUSED, TORCHS, operand_nodes
from ..watch import Event, Place
from ..write import enclosed, fresh, given_keyword, movable

MASKS = (Role.MASK, Role.PADDING)
# What makes a new tensor of scores and leaves the old one as it was.
ANEW = {"masked_fill", "where", "add", "sub", "mul", "div", "clamp", "masked_scatter", "softmax", "index_fill"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def joins(case: Case, name: str) -> list[Event]:
    """Where a mask meets the stream: something of the one and something of the other go into one operation."""
    return [
        event
        for event in case.masked.get(name, [])
        if event.place is not None
        and any(name in operand.fed and len(operand.fed) == 1 for operand in event.operands)
        and any(operand.fed - {name} for operand in event.operands)
    ]


def not_assigned(case: Case) -> Iterator[Fix | None]:
    """`scores.masked_fill(...)` on a line of its own makes a tensor that nobody takes."""
    for code, statement in case.home.nodes(ast.Expr):
        match statement.value:
            case ast.Call(func=ast.Attribute(attr=name, value=value)) as call if name in ANEW:
                root = _root(value if not _is_torch(value) else next(iter(call.args), value))
                if root is not None and root != "torch":
                    text = f"{root} = {code.words(call)}"
                    yield code.fix([code.replaced(call, text)], f"the result of {name} is not used")
    for event in case.everything:
        place = event.place
        if place is None or event.users or not isinstance(place.node, ast.Call):
            continue
        statement = place.code.statement(place.node)
        if isinstance(statement, ast.Assign) and statement.value is place.node:
            yield from _not_taken(event, place, statement)


def _is_torch(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "F")


def _root(node: ast.expr) -> str | None:
    """The variable at the beginning of a chain of calls."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _not_taken(event: Event, place: Place, statement: ast.Assign) -> Iterator[Fix | None]:
    """A result under a name that is never read: what comes later reads what it was made from."""
    match statement.targets, operand_nodes(event)[:1]:
        case [ast.Name(id=new) as target], [ast.Name(id=old)] if new != old:
            function = place.code.function(statement) or place.code.tree
            read = [
                n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == new and isinstance(n.ctx, ast.Load)
            ]
            if not read:
                words = f"the masked scores are called {new}, but {old} is read afterwards"
                yield place.code.fix([place.code.replaced(target, old)], words)


def not_passed_on(case: Case) -> Iterator[Fix | None]:
    """A call of something that takes a mask, inside something that was given one, without it."""
    yield from passed_on(case, *MASKS)


def passed_on(case: Case, *roles: Role) -> Iterator[Fix | None]:
    """A call of something that takes one of these, inside something that was given one, with it."""
    for event in case.everything:
        for inner, outer in zip(event.stack, event.stack[1:], strict=False):
            called, caller = inner.code.function(inner.node), outer.code.function(outer.node)
            if called is None or caller is None or not isinstance(outer.node, ast.Call):
                continue
            for wanted in _taken(called, *roles):
                if not _is_passed(outer.node, called, wanted):
                    for had in _taken(caller, *roles):
                        edit = given_keyword(outer.code, outer.node, wanted, had)
                        yield outer.code.fix([edit], f"{had} is not passed on to {outer.words(outer.node.func)}")


def _taken(function: Function, *roles: Role) -> list[str]:
    """The arguments of a function that are for this."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    return [one.arg for one in arguments if role_of(one.arg) in roles]


def _is_passed(call: ast.Call, function: Function, name: str) -> bool:
    if any(keyword.arg in (name, None) for keyword in call.keywords):
        return True
    names = [one.arg for one in function.args.args]
    names = names[1:] if names[:1] == ["self"] else names
    return any(isinstance(one, ast.Starred) for one in call.args) or (
        name in names and names.index(name) < len(call.args)
    )


def not_used(case: Case) -> Iterator[Fix | None]:
    """A mask that is at hand where attention is computed, but not used there."""
    met = {
        join.place.code.function(join.place.node)
        for name in case.masked
        for join in joins(case, name)
        if join.place is not None and join.users
    }
    for event in case.everything:
        place = event.place
        function = None if place is None else place.code.function(place.node)
        if place is None or function is None or not isinstance(place.node, ast.Call):
            continue
        for name in () if function in met else _taken(function, *MASKS):
            words = f"{name} is taken, but nothing is done with it"
            if event.name in (FUSED, TORCHS) and len(place.node.args) <= 3:
                yield _to_torch(event, place, place.node, name, words)
            elif event.name == "softmax" and len(event.shape) >= 3:
                yield _hidden(event, place, name, words)


def _to_torch(event: Event, place: Place, call: ast.Call, name: str, words: str) -> Fix | None:
    padding = role_of(name) is Role.PADDING
    if event.name == TORCHS:
        return place.code.fix(
            [given_keyword(place.code, call, "key_padding_mask" if padding else "attn_mask", name)], words
        )
    text = f"None if {name} is None else ~{name}[:, None, None, :]" if padding else name
    return place.code.fix([given_keyword(place.code, call, "attn_mask", text)], words)


def _hidden(event: Event, place: Place, name: str, words: str) -> Fix | None:
    """Scores are filled before the softmax, where there is a mask."""
    given = operand_nodes(event)[:1]
    if not given or not movable(place.code, place.node):
        return None
    scores, edits = named_scores(place.code, given[0])
    condition = f"{name} == 0"
    if role_of(name) is Role.PADDING:
        condition = f"{name}[:, {'None, ' * (len(event.shape) - 2)}:]"
    lines = [f"if {name} is not None:", f"    {filled(place, scores, condition)}"]
    first = place.code.before(place.code.statement(place.node), *_named_first(place.code, given[0], scores), *lines)
    return place.code.fix([*edits, first], words)


def named_scores(code: Code, node: ast.expr) -> tuple[str, list[Edit]]:
    """A name for scores: their own, or a new one that takes their place."""
    if isinstance(node, ast.Name):
        return node.id, []
    name = fresh(code, node, "scores")
    return name, [Edit(*enclosed(code, node), name)]


def _named_first(code: Code, node: ast.expr, name: str) -> list[str]:
    return [] if isinstance(node, ast.Name) else [f"{name} = {code.words(node)}"]


def filled(place: Place, scores: str, condition: str) -> str:
    """A line that hides: with the smallest number, so that a row of hidden keys gives numbers, too."""
    return f"{scores} = {scores}.masked_fill({condition}, {least(place, scores)})"


def least(place: Place, scores: str) -> str:
    """What no score falls below."""
    return f"torch.finfo({scores}.dtype).min" if "torch" in place.known else 'float("-inf")'


def as_truth(case: Case) -> Iterator[Fix | None]:
    """`if mask:` asks a tensor for one truth; whether there is a mask is another question."""
    for code, node in case.home.nodes(ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Assert):
        tests = node.values if isinstance(node, ast.BoolOp) else [node.test]
        for test in tests:
            inner = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
            if isinstance(inner, ast.Name) and role_of(inner.id) in (*MASKS, Role.LENGTHS, Role.CACHE, Role.SOURCE):
                text = f"{inner.id} is {'not ' if inner is test else ''}None"
                words = f"{inner.id} is a tensor, which has no single truth: ask whether it is there"
                yield code.fix([code.replaced(test, text)], words)
