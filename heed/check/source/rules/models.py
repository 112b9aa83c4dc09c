"""Layers and models around attention: axes of norms, layouts of torch's layers, idle weights, losses, tying."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from torch import nn

from ...foreign.words import Role, role_of
from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import named_node
from ..watch import tensors
from ..write import dropped, given_keyword, method_of

LAYOUTS = {
    "MultiheadAttention",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
    "Transformer",
    "GRU",
    "LSTM",
    "RNN",
}
STATISTICS = {"mean", "var", "std", "norm", "sum", "var_mean", "std_mean"}


def batch_first(case: Case) -> Iterator[Fix | None]:
    """Torch's layers take tokens first unless they are told otherwise."""
    words = "torch takes [tokens, rows, width] unless it is told batch_first=True"
    found = [(c, n) for c, n in case.home.nodes(ast.Call) if _name(n) in LAYOUTS]
    edits: dict[Code, list[Edit]] = {}
    for code, call in found:
        edits.setdefault(code, []).append(given_keyword(code, call, "batch_first", "True"))
    for code, told in edits.items():
        yield code.fix(told, words)
        yield from (code.fix([edit], words) for edit in told)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else str(getattr(call.func, "id", ""))


def norm_axes(case: Case) -> Iterator[Fix | None]:
    """Statistics over the channels of each token: the last axis."""
    words = "a norm takes its statistics over the channels of each token, and divides by a root"
    for code, definition in case.home.reach:
        calls = [n for n in ast.walk(definition) if isinstance(n, ast.Call) and _name(n) in STATISTICS]
        edits = [edit for call in calls for edit in _last_axis(code, call)]
        yield code.fix(edits, words)
        roots = list(_rooted(code, definition))
        yield from (code.fix([root], words) for root in roots)
        for node in ast.walk(definition):
            match node:
                case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Slice() as part):
                    yield code.fix([code.replaced(part, "-1:")], words)
                case ast.Call(func=ast.Attribute(attr="size"), args=[]) if "norm" in code.words(code.statement(node)):
                    yield code.fix([code.replaced(node, f"{code.words(node)}[-1:]")], words)


def _last_axis(code: Code, call: ast.Call) -> Iterator[Edit]:
    of_torch = isinstance(call.func, ast.Attribute) and code.words(call.func.value) == "torch"
    positional = call.args[1:2] if of_torch else call.args[:1]
    node = named_node(call, "dim", "axis") or next(iter(positional), None)
    keep = "" if named_node(call, "keepdim", "keepdims") is not None else ", keepdim=True"
    if node is not None:
        yield code.replaced(node, f"-1{keep}")
    else:
        end = code.span(call)[1] - 1
        yield Edit(end, end, f"{', ' if call.args or call.keywords else ''}dim=-1{keep}")


def _rooted(code: Code, definition: ast.AST) -> Iterator[Edit]:
    """Division by a variance becomes division by its root; a product with it, too."""
    for node in ast.walk(definition):
        match node:
            case ast.BinOp(op=ast.Div() | ast.Mult() as op, right=right) if re.search(
                r"var|std|rms", code.words(right)
            ):
                start, end = code.span(right)
                if isinstance(op, ast.Div) and "sqrt" not in code.words(right):
                    text = code.words(right)
                    yield Edit(start, end, f"{text}.sqrt()" if text.endswith(")") else f"({text}) ** 0.5")
                elif isinstance(op, ast.Mult):
                    between = code.text[code.span(node.left)[1] : start]
                    yield Edit(code.span(node.left)[1], start, between.replace("*", "/"))


def unused(case: Case) -> Iterator[Fix | None]:
    """A layer that nothing is computed with, in the place of one that is used twice, or where one is missing."""
    idle = _idle(case)
    for name, layer in idle.items():
        words = f"self.{name} is never used"
        for code, definition in case.home.reach:
            if not isinstance(definition, ast.ClassDef):
                continue
            for function in [n for n in definition.body if isinstance(n, ast.FunctionDef) and n.name != "__init__"]:
                yield from _instead(case, code, function, name, layer, words)
                yield from _around(code, function, name, words)


def one_of_many(case: Case) -> Iterator[Fix | None]:
    """`self.heads[0](x) for _ in self.heads`: each of them in its turn."""
    for code, node in case.home.nodes(ast.ListComp, ast.GeneratorExp):
        (first, *_) = node.generators
        for part in ast.walk(node.elt):
            match part:
                case ast.Subscript(value=ast.Attribute() as held, slice=ast.Constant(value=int())):
                    words = f"{code.words(part)} is asked every time, and the others never"
                    if code.words(first.iter) == code.words(held):
                        edits = [code.replaced(part, "each"), code.replaced(first.target, "each")]
                        yield code.fix(edits, words)
                    elif isinstance(first.target, ast.Name):
                        told = first.target.id.strip("_") or "i"
                        edits = [code.replaced(part.slice, told), code.replaced(first.target, told)]
                        yield code.fix(edits, words)
    for code, loop in case.home.nodes(ast.For):
        for part in ast.walk(loop):
            match part, loop.target:
                case ast.Subscript(slice=ast.Constant(value=int()) as index), ast.Name(id=name):
                    yield code.fix([code.replaced(index, name)], f"{code.words(part)} is asked every time")


def _idle(case: Case) -> dict[str, nn.Module]:
    """Layers whose weights took part in no operation, by the attribute that holds them."""
    module = None if case.subject is None else case.subject.module
    if module is None:
        return {}
    met = {id(t) for e in case.everything for t in tensors((e.given, dict(e.named)))}
    return {
        name: layer
        for name, layer in module.named_children()
        if any(True for _ in layer.parameters()) and not any(id(p) in met for p in layer.parameters())
    }


def _instead(
    case: Case, code: Code, function: ast.FunctionDef, name: str, layer: nn.Module, words: str
) -> Iterator[Fix | None]:
    """The last call of a layer of the same kind that is called twice; beside a source, with that."""
    calls: dict[str, list[ast.Call]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=attr)):
                calls.setdefault(attr, []).append(node)
    sources = [one.arg for one in function.args.args if role_of(one.arg) is Role.SOURCE]
    held: Any = None if case.subject is None else case.subject.module
    for attr, nodes in calls.items():
        if len(nodes) < 2 or type(getattr(held, attr, None)) is not type(layer):
            continue
        last = max(nodes, key=lambda node: (node.lineno, node.col_offset))
        assert isinstance(last.func, ast.Attribute)
        other = code.replaced(last.func, f"self.{name}")
        for source in sources:
            yield code.fix([other, *(code.replaced(node, source) for node in last.args[1:3])], words)
        yield code.fix([other], words)


def _around(code: Code, function: ast.FunctionDef, name: str, words: str) -> Iterator[Fix | None]:
    """A stream that goes into a helper as it came, or an output that is returned as it is."""
    streams = {
        one.arg for one in function.args.args if role_of(one.arg) in (Role.INPUT, Role.VALUE, Role.KEY, Role.QUERY)
    }
    for node in ast.walk(function):
        match node:
            case ast.Call(args=[ast.Name(id=given) as only]) if given in streams and "self." not in code.words(
                node.func
            ):
                yield code.fix([code.replaced(only, f"self.{name}({given})")], words)
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="view" | "reshape", value=ast.Name(id=given) as root)) if (
                given in streams
            ):
                yield code.fix([code.replaced(root, f"self.{name}({given})")], words)
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Tuple):
                yield code.fix([code.replaced(value, f"self.{name}({code.words(value)})")], words)


def label_shift(case: Case) -> Iterator[Fix | None]:
    """The scores of a token are compared with the next one, once."""
    for code, call in case.home.nodes(ast.Call):
        if _name(call) not in ("cross_entropy", "nll_loss") and not _is_loss(call):
            continue
        given = [*call.args, *(k.value for k in call.keywords if k.arg in ("input", "target"))][:2]
        if len(given) == 2:
            for shown, wanted in ((":, :-1", ":, 1:"), (None, None)):
                words = "the scores of token t belong to token t + 1, and the shift is made once"
                function = code.function(call)
                scores = _sliced(code, given[0], shown, function)
                labels = _sliced(code, given[1], wanted, function)
                yield code.fix([*scores, *labels], words)


def _is_loss(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr=attr):
            return "loss" in attr or "criterion" in attr
        case ast.Name(id=name):
            return "loss" in name.lower() or "criterion" in name
        case ast.Call():
            return _name(call.func) in ("CrossEntropyLoss", "NLLLoss")
    return False


def _sliced(code: Code, node: ast.expr, part: str | None, function: ast.AST | None) -> list[Edit]:
    """The variable at the beginning of a chain, with one slice of its tokens; reshaped: it is no longer contiguous."""
    edits: list[Edit] = []
    chain = node
    while isinstance(chain, ast.Call) and isinstance(chain.func, ast.Attribute):
        if chain.func.attr == "view":
            end = code.span(chain.func)[1]
            edits.append(Edit(end - 4, end, "reshape"))
        chain = chain.func.value
    root = chain.value if isinstance(chain, ast.Subscript) else chain
    if not isinstance(root, ast.Name):
        return []
    text = root.id if part is None else f"{root.id}[{part}]"
    made = None if function is None else _assigned_slice(function, root.id)
    if made is not None and not isinstance(chain, ast.Subscript):
        plain = code.replaced(made, code.words(made.value) + (f"[{part}]" if part else ""))
        return [plain] if "contiguous" in code.words(code.statement(made)) else [*edits, plain]
    return [*edits, code.replaced(chain, text)]


def _assigned_slice(function: ast.AST, name: str) -> ast.Subscript | None:
    """`shift_labels = labels[..., 1:].contiguous()`: the slice in it."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=said)], value=value) if said == name:
                return next((part for part in ast.walk(value) if isinstance(part, ast.Subscript)), None)
    return None


def loss_denominator(case: Case) -> Iterator[Fix | None]:
    """The mean that torch takes: over the labels that count."""
    words = "torch's own mean divides by the labels that count, and leaves out those that are ignored"
    for code, call in case.home.nodes(ast.Call):
        reduction = named_node(call, "reduction")
        if reduction is None or _name(call) not in ("cross_entropy", "nll_loss", "CrossEntropyLoss"):
            continue
        plain = dropped(code, call, reduction)
        outer: ast.AST = call
        for above in code.above(call):
            if isinstance(above, ast.stmt):
                break
            outer = above
        start, end = code.span(call)
        text = code.text[start : plain.start] + code.text[plain.end : end]
        if isinstance(outer, ast.expr):
            yield code.fix([code.replaced(outer, text)], words)
        statement = code.statement(call)
        name = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(name, ast.Name):
            yield _undivided(code, call, name.id, plain, words)
    yield from _by_those_that_count(case)


def _by_those_that_count(case: Case) -> Iterator[Fix | None]:
    """A loss that is written out: its sum is divided by the labels that were not left out."""
    words = "the sum is divided by all labels, also by those that are left out of it"
    for code, node in case.home.nodes(ast.BinOp, ast.Call):
        function = code.function(node)
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=right) if "sum" in code.words(left):
                for count in _counted(code, function, right):
                    yield code.fix([code.replaced(right, count)], words)
            case ast.Call(func=ast.Attribute(attr="mean", value=value), args=[], keywords=[]):
                for count in _counted(code, function, value):
                    yield code.fix([code.replaced(node, f"{method_of(code, value, '.sum()')} / {count}")], words)


def _counted(code: Code, function: ast.AST | None, node: ast.expr) -> Iterator[str]:
    """How many labels count: by a mask that is made of them, or by the usual number for those that do not."""
    for part in ast.walk(function) if function is not None else ():
        match part:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Compare(ops=[ast.NotEq() | ast.GtE()])):
                yield f"{name}.sum()"
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if re.search(
                r"\.ne\(|!= ", code.words(value)
            ) and code.words(value).endswith((".float()", ".long()", ".to(", ".ne(-100)")):
                yield f"{name}.sum()"
    for name in dict.fromkeys(part.id for part in ast.walk(node) if isinstance(part, ast.Name)):
        yield f"({name} != -100).sum()"


def _undivided(code: Code, call: ast.Call, name: str, plain: Edit, words: str) -> Fix | None:
    """What is divided later is taken as it is."""
    function = code.function(call)
    edits = [plain]
    for node in ast.walk(function) if function is not None else ():
        match node:
            case ast.BinOp(op=ast.Div(), left=left) if _begins(left) == name:
                edits.append(code.replaced(node, name))
            case ast.Call(func=ast.Attribute(attr="mean", value=ast.Name(id=said)), args=[]) if said == name:
                edits.append(code.replaced(node, name))
    return code.fix(edits, words) if len(edits) > 1 else None


def _begins(node: ast.AST) -> str | None:
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def tying_lost(case: Case) -> Iterator[Fix | None]:
    """One weight under two names, not a copy of it."""
    words = "a copy drifts away; one parameter under two names stays one"
    for code, statement in case.home.nodes(ast.Assign, ast.Expr):
        text = code.words(statement)
        found = re.match(r"([\w.\[\]]+?)\.weight(?:\.data)?\s*(?:=|\.copy_\()", text)
        other = re.search(r"([\w.\[\]]+?)\.weight\b", text[found.end() :] if found else "")
        if found and other and found[1] != other[1]:
            yield code.fix([code.replaced(statement, f"{found[1]}.weight = {other[1]}.weight")], words)
