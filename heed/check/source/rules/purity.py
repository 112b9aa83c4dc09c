"""A call that depends on its input alone: no chance, no memory, nothing made anew, nothing written into."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import named_node
from ..home import own_targets
from ..watch import Event, Place
from ..write import fresh

Function = ast.FunctionDef | ast.AsyncFunctionDef
INPLACE = re.compile(r"^(?!__)\w+[^_]_$")
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}


def made_in_forward(case: Case) -> Iterator[Fix | None]:
    """A layer that a call makes goes to the constructor."""
    for code, call in case.home.nodes(ast.Call):
        function, owner = code.function(call), code.owner(call)
        if function is None or owner is None or function.name == "__init__" or not _layer(case, call):
            continue
        init = next((n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        if init is not None:
            yield _moved(case, code, call, init, function)


def _layer(case: Case, call: ast.Call) -> bool:
    """Whether a call makes a layer with weights."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    kind: Any = vars(nn).get(name)
    known = {} if case.home.module is None else vars(case.home.module)
    kind = kind if isinstance(kind, type) else known.get(name)
    return isinstance(kind, type) and issubclass(kind, nn.Module) and not issubclass(kind, nn.Dropout | nn.Softmax)


def _moved(case: Case, code: Code, call: ast.Call, init: ast.FunctionDef, function: Function) -> Fix | None:
    words = "a layer that is made in every call is never trained; the constructor makes it once"
    text = _sized(case, code, call, init)
    if text is None:
        return None
    whole = _cast(code, call)
    statement = code.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is whole else None
    if isinstance(target, ast.Attribute):  # self.layer = nn.Linear(...)
        line = f"{code.words(target)} = {text}"
        return code.fix([code.after(init.body[-1], line), code.without(statement)], words)
    wanted = target.id if isinstance(target, ast.Name) else "projection"
    taken = {n.attr for n in ast.walk(code.owner(call) or init) if isinstance(n, ast.Attribute)}
    name = next(n for n in (wanted, f"{wanted}_layer", f"{wanted}_made") if n not in taken)
    made = code.after(init.body[-1], f"self.{name} = {text}")
    return code.fix([made, code.replaced(whole, f"self.{name}")], words)


def _cast(code: Code, call: ast.Call) -> ast.expr:
    """A layer with what casts it or moves it to a device, which its module will do."""
    match code.parents.get(call):
        case ast.Attribute(attr="to" | "cuda" | "double" | "half" | "type") as method:
            outer = code.parents.get(method)
            return outer if isinstance(outer, ast.Call) and outer.func is method else call
    return call


def _sized(case: Case, code: Code, call: ast.Call, init: ast.FunctionDef) -> str | None:
    """The call as it can be written in the constructor: sizes by the names that they have there."""
    names = [one.arg for one in (*init.args.args, *init.args.kwonlyargs)]
    told: list[str] = []
    for keyword, node in [(None, one) for one in call.args] + [(one.arg, one.value) for one in call.keywords]:
        if keyword in ("dtype", "device"):
            continue
        text = _in_names(case, code, node, names)
        if text is None:
            return None
        told.append(text if keyword is None else f"{keyword}={text}")
    return f"{code.words(call.func)}({', '.join(told)})"


def _in_names(case: Case, code: Code, node: ast.expr, names: list[str]) -> str | None:
    inner = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if inner <= {*names, "self", "torch", "nn"} and not _reads_local(node):
        return code.words(node)
    known = {} if case.subject is None or case.subject.recipe is None else case.subject.recipe.arguments
    value = _seen_value(case, node)
    return next((name for name in names if known.get(name) == value and isinstance(value, int)), None)


def _reads_local(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Name) and n.id in ("x", "input", "inputs", "hidden_states") for n in ast.walk(node))


def _seen_value(case: Case, node: ast.expr) -> Any:
    """What an expression was, where it was run."""
    for event in case.events:
        for place in event.stack:
            if node in ast.walk(place.code.function(place.node) or ast.Pass()):
                value = place.evaluated(node)
                if isinstance(value, int):
                    return value
    return None


def kept(case: Case) -> Iterator[Fix | None]:
    """What a call sets on its module becomes a local variable."""
    yield from _default_lists(case)
    yield from _made_once(case)
    for code, definition in case.home.reach:
        for function in [n for n in ast.walk(definition) if isinstance(n, Function) and n.name != "__init__"]:
            names: dict[str, list[ast.stmt]] = {}
            for node in ast.walk(function):
                match node:
                    case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)]):
                        names.setdefault(attr, []).append(node)
                    case ast.Assign(targets=[ast.Tuple()]) if own := own_targets(node):
                        words = f"what is kept as self.{next(iter(own))} changes the next call"
                        yield code.fix([code.without(node)], words)
                    case ast.AugAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=attr)):
                        names.setdefault(attr, []).append(node)
            for attr, statements in names.items():
                if _read_later(function, attr, min(s.lineno for s in statements)):
                    yield _local(code, function, attr, statements)
                if len(statements) == 1:
                    words = f"self.{attr} is set in every call and changes the next one"
                    yield code.fix([code.without(statements[0])], words)


def _made_once(case: Case) -> Iterator[Fix | None]:
    """`if self.mask is None: self.mask = ...` keeps what fits the first call only; made in every call it fits all."""
    for code, branch in case.home.nodes(ast.If):
        function = code.function(branch)
        match branch:
            case ast.If(
                body=[ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)], value=value)], orelse=[]
            ) if function is not None and function.name != "__init__" and _asks_for(code, branch.test, attr):
                name = fresh(code, branch, attr.lstrip("_"))
                reads = [n for n in ast.walk(function) if _is_own(n, attr) and code.span(n) > code.span(branch)]
                made = code.replaced(branch, f"{name} = {code.words(value)}")
                words = f"self.{attr} is made for the first call and kept for all others, whatever their length"
                yield code.fix([made, *(code.replaced(node, name) for node in reads)], words)


def _asks_for(code: Code, test: ast.expr, attr: str) -> bool:
    """Whether a condition asks if an attribute is there already."""
    told = code.words(test)
    return re.search(rf"self\.{attr} is None|hasattr\(self, ['\"]{attr}['\"]\)", told) is not None


def _is_own(node: ast.AST, attr: str) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=said, ctx=ast.Load()):
            return said == attr
    return False


def _read_later(function: Function, attr: str, line: int) -> bool:
    return any(
        isinstance(n, ast.Attribute) and n.attr == attr and isinstance(n.ctx, ast.Load) and n.lineno > line
        for n in ast.walk(function)
    )


def _local(code: Code, function: Function, attr: str, statements: list[ast.stmt]) -> Fix | None:
    """`self.x = ...; ... self.x` as `x = ...; ... x`; before it is set, what the constructor left is read."""
    words = f"self.{attr} is set in every call and changes the next one; a local variable does not"
    taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {a.arg for a in function.args.args}
    name = attr if attr not in taken else f"{attr}_now"
    first = min(statement.lineno for statement in statements)
    edits: list[Edit] = []
    for statement in statements:
        if isinstance(statement, ast.AugAssign):
            sign = SIGNS.get(type(statement.op))
            if sign is None:
                return None
            held = f"self.{attr}" if statement.lineno == first else name
            text = f"{name} = {held} {sign} {code.words(statement.value)}"
            edits.append(code.replaced(statement, text))
        elif isinstance(statement, ast.Assign):
            edits.append(code.replaced(statement.targets[0], name))
            edits += _unwrapped(code, statement.value)
    inside = {id(n) for s in statements if isinstance(s, ast.AugAssign) for n in ast.walk(s)}
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=said, ctx=ast.Load()) if said == attr:
                own = next((s for s in statements if node in ast.walk(s)), None)
                later = node.lineno > first and (own is None or own.lineno > first)
                if later and id(node) not in inside:
                    edits.append(code.replaced(node, name))
    return code.fix(edits, words)


def _unwrapped(code: Code, value: ast.expr) -> list[Edit]:
    """A parameter that is made anew is cut off from what made it."""
    match value:
        case ast.Call(func=ast.Attribute(attr="Parameter") | ast.Name(id="Parameter"), args=[inner, *_]):
            return [code.replaced(value, code.words(inner))]
    return []


def _default_lists(case: Case) -> Iterator[Fix | None]:
    """A list as a default is one list for all calls."""
    for code, function in case.home.nodes(ast.FunctionDef):
        arguments = function.args.args[len(function.args.args) - len(function.args.defaults) :]
        for argument, default in zip(arguments, function.args.defaults, strict=True):
            if isinstance(default, ast.List | ast.Dict) and not ast.unparse(default).strip("[]{}"):
                name, empty = argument.arg, code.words(default)
                first = function.body[0]
                lines = code.before(first, f"{name} = {empty} if {name} is None else {name}")
                words = f"{name}={empty} is made once, and is the same in all calls"
                yield code.fix([code.replaced(default, "None"), lines], words)


def mutated(case: Case) -> Iterator[Fix | None]:
    """What writes into an argument makes a new tensor instead."""
    for events in (case.events, *case.masked.values()):
        inputs = {t.untyped_storage().data_ptr() for t in _inputs(events)}
        for event in events:
            place = event.place
            writes = INPLACE.match(event.name) or event.name in ("__setitem__", "relu", "dropout")
            if place is None or not writes or not event.operands:
                continue
            if event.operands[0].tensor.untyped_storage().data_ptr() in inputs:
                yield from _anew(place, event)


def _inputs(events: list[Event]) -> Iterator[Tensor]:
    """What the target itself was given: tensors of the outermost place that no operation of the user's made."""
    for event in events:
        for operand in event.operands:
            if operand.fed and (operand.maker is None or operand.maker.place is None):
                yield operand.tensor


def _anew(place: Place, event: Event) -> Iterator[Fix | None]:
    code, node = place.code, place.node
    words = f"{event.name} writes into what the call was given"
    match node:
        case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if type(op) in SIGNS:
            text = code.words(value)
            loose = isinstance(value, ast.BinOp | ast.IfExp | ast.Compare) and not isinstance(op, ast.Add)
            text = f"({text})" if loose else text
            yield code.fix([code.replaced(node, f"{name} = {name} {SIGNS[type(op)]} {text}")], words)
        case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr.endswith("_"):
            end = code.span(node.func)[1]
            shorter = Edit(end - 1, end, "")
            statement = code.statement(node)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Name):
                start = code.span(node)[0]
                yield code.fix([Edit(start, start, f"{value.id} = "), shorter], words)
            else:
                yield code.fix([shorter], words)
        case ast.Subscript(value=ast.Name(id=name)):
            yield code.fix([code.before(code.statement(node), f"{name} = {name}.clone()")], words)
        case ast.Call() if (flag := named_node(node, "inplace")) is not None:
            yield code.fix([code.replaced(flag, "False")], words)
