"""Codes of positions: sinusoids, tables and slices of them, rotations, slopes; and where they begin beside a cache."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ...foreign.words import Role, role_of
from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..flow import named_node
from ..write import enclosed, renamed

WAVES = "channel pair c turns with 1 / 10000^(2c/d); the exponent here is another one"
SLICED = "this takes one code for all tokens, or codes by the row; the first codes, one for each token, are meant"
TABLES = re.compile(r"pe$|pe_|pos|emb|enc|weight|table", re.I)


@dataclass(frozen=True)
class Index:
    """What counts the channels in an exponent."""

    text: str
    step: int  # 2 if it counts every other channel
    pairs: bool  # whether it counts pairs
    width: str

    @property
    def exponent(self) -> str:
        if self.step == 2:
            return f"{self.text} / {self.width}"
        return f"2 * {self.text} / {self.width}" if self.pairs else f"2 * ({self.text} // 2) / {self.width}"


def position_exponent(case: Case) -> Iterator[Fix | None]:
    """Every power of 10000 with the exponent 2c/d, whatever it is computed from."""
    for code, definition in case.home.reach:
        for turned in (False, True):
            edits = list(_powers(code, definition, turned))
            yield code.fix(edits, WAVES)
        bases = [n for n in ast.walk(definition) if _is_base(code, n)]
        yield code.fix([code.replaced(node, "10000.0") for node in bases], "wavelengths go up to 10000")
        yield code.fix(list(_exchanged(code, definition)), "even channels take the sine, odd ones the cosine")


def _powers(code: Code, definition: ast.AST, turned: bool) -> Iterator[Edit]:
    for node in ast.walk(definition):
        match node:
            case ast.BinOp(left=ast.Constant(value=int() | float()), op=ast.Pow(), right=power) if (
                _number(node.left) > 99
            ):
                index = _index(code, power, definition)
                if index is not None:
                    minus = _negative(code, power) != turned
                    start, end = enclosed(code, power)
                    yield Edit(start, end, f"({'-' if minus else ''}{index.exponent})")
            case ast.Call(func=ast.Attribute(attr="pow" | "power"), args=[ast.Constant() as base, power]) if (
                _number(base) > 99
            ):
                index = _index(code, power, definition)
                if index is not None:
                    yield code.replaced(power, f"{'-' if _negative(code, power) != turned else ''}{index.exponent}")
            case ast.Call(func=ast.Attribute(attr="exp"), args=[power]) if not turned:
                index, log = _index(code, power, definition), _log(power)
                if index is not None and log is not None:
                    factor = f"-{code.words(log)} / {index.width}"
                    yield code.replaced(power, f"{_doubled(index)} * ({factor})")


def _doubled(index: Index) -> str:
    return index.text if index.step == 2 else f"2 * {index.text}" if index.pairs else f"2 * ({index.text} // 2)"


def _number(node: ast.AST) -> float:
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else 0.0


def _log(node: ast.AST) -> ast.Call | None:
    """The logarithm of a base in an expression."""
    for part in ast.walk(node):
        match part:
            case ast.Call(func=ast.Attribute(attr="log") | ast.Name(id="log"), args=[*_]):
                return part
    return None


def _is_base(code: Code, node: ast.AST) -> bool:
    parent = code.parents.get(node)
    power = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Pow) and parent.left is node
    log = isinstance(parent, ast.Call) and re.search(r"log$|pow(er)?$", code.words(parent.func)) is not None
    return _number(node) > 99 and _number(node) != 10000 and (power or log)


def _negative(code: Code, power: ast.expr) -> bool:
    return code.words(power).lstrip("( ").startswith("-")


def _index(code: Code, power: ast.expr, definition: ast.AST) -> Index | None:
    """What counts channels in an expression: a range of them, or a name for one."""
    for node in ast.walk(power):
        if (found := _range(code, node)) is not None:
            return found
    for node in ast.walk(power):
        if isinstance(node, ast.Name) and (found := _named_range(code, node.id, definition)) is not None:
            return found
    return None


def _range(code: Code, node: ast.AST, text: str | None = None) -> Index | None:
    match node:
        case ast.Call(func=ast.Attribute(attr="arange") | ast.Name(id="range" | "arange"), args=[*given]):
            words = [code.words(one) for one in given]
            text = text or code.words(node)
            if len(words) == 3 and words[2] == "2":
                return Index(text, 2, False, words[1])
            if len(words) in (1, 2):
                halved = re.fullmatch(r"\(?(.+?)\)? ?// ?2\)?", words[-1])
                width = halved[1] if halved else words[-1]
                return Index(text, 1, halved is not None, width)
    return None


def _named_range(code: Code, name: str, definition: ast.AST) -> Index | None:
    for node in ast.walk(definition):
        match node:
            case ast.For(target=ast.Name(id=said), iter=over) if said == name:
                return _range(code, over, name)
            case ast.comprehension(target=ast.Name(id=said), iter=over) if said == name:
                return _range(code, over, name)
            case ast.Assign(targets=[ast.Name(id=said)], value=value) if said == name:
                found = next((r for part in ast.walk(value) if (r := _range(code, part, name)) is not None), None)
                divided = any(isinstance(p, ast.BinOp) and isinstance(p.op, ast.Div) for p in ast.walk(value))
                return None if divided else found
    return None


def _exchanged(code: Code, definition: ast.AST) -> Iterator[Edit]:
    """Sine for cosine and cosine for sine."""
    for node in ast.walk(definition):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("sin", "cos"):
            end = code.span(node.func)[1]
            yield Edit(end - 3, end, "cos" if node.func.attr == "sin" else "sin")


def position_sliced(case: Case) -> Iterator[Fix | None]:
    """The first codes, by the number of tokens."""
    for code, node in case.home.nodes(ast.Subscript):
        if not TABLES.search(code.words(node.value)) or isinstance(node.ctx, ast.Store):
            continue
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for place, part in enumerate(parts):
            words = [code.words(one) for one in parts]
            if not isinstance(part, ast.Slice | ast.Constant | ast.UnaryOp):
                words[place] = f":{words[place]}"
                yield code.fix([code.replaced(node.slice, ", ".join(words))], SLICED)
        told = code.words(node.slice)
        other = re.sub(r"(\.size\()0(\))|(\.shape\[)0(\])", lambda m: m[0].replace("0", "1"), told)
        if other != told:
            for text in (other, f":, {other}", f"{other}, 0"):
                yield code.fix([code.replaced(node.slice, text)], SLICED)


def alibi_slopes(case: Case) -> Iterator[Fix | None]:
    """Heads are counted from 1; where they are no power of two, slopes of two powers are taken together."""
    for code, call in case.home.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Name(id="range") | ast.Attribute(attr="arange"), args=[only]):
                text = f"1, {code.words(only)} + 1"
                yield code.fix([code.replaced(only, text)], "heads are counted from 1: the slopes are 2^(-8h/n)")
    for code, function in case.home.nodes(ast.FunctionDef):
        returned = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        if len(returned) == 1 and returned[0].value is not None and function.args.args:
            yield _both_powers(case, code, function, returned[0])
    yield from _falls(case)


def _falls(case: Case) -> Iterator[Fix | None]:
    """What is added for the distance is taken away: scores fall with it."""
    for code, node in case.home.nodes(ast.BinOp):
        match node:
            case ast.BinOp(left=left, op=ast.Add(), right=right) if re.search(r"slope|alibi", code.words(right)):
                start, end = enclosed(code, left)[1], enclosed(code, right)[0]
                yield code.fix([Edit(start, end, " - ")], "scores rise with the distance; they should fall with it")


def _both_powers(case: Case, code: Code, function: ast.FunctionDef, returned: ast.Return) -> Fix | None:
    n = next(one.arg for one in function.args.args if one.arg != "self")
    try:
        tensor = isinstance(case.home.origin(8), Tensor)
    except Exception:  # foreign code may raise anything
        return None
    first = "[2 ** (-8 * h / near) for h in range(1, near + 1)]"
    rest = f"[2 ** (-8 * h / (2 * near)) for h in range(1, 2 * ({n} - near), 2)]"
    text = f"torch.tensor({first} + {rest})" if tensor else f"{first} + {rest}"
    assert returned.value is not None
    lines = code.before(returned, f"near = 2 ** ({n}.bit_length() - 1)  # the largest power of two that is not larger")
    words = (
        "the slopes of n heads: 2^(-8h/n) for powers of two, else of the next smaller one, and every other of the next"
    )
    return code.fix([lines, code.replaced(returned.value, text)], words)


def rope_mismatch(case: Case) -> Iterator[Fix | None]:
    """Angles in the layout of the rotation; a rotation with one minus; keys turned like queries."""
    words = "the angles are laid out for neighbouring channels, and halves are turned, or the other way round"
    for code, call in case.home.nodes(ast.Call):
        text = _other_layout(code, call)
        if text is not None:
            yield code.fix([code.replaced(call, text)], words)
    for code, call in case.home.nodes(ast.Call):
        yield from _other_signs(code, call)
    yield from _both_turned(case)
    yield from _turned_alike(case)


def _other_layout(code: Code, call: ast.Call) -> str | None:
    match call:
        case ast.Call(func=ast.Attribute(attr="repeat_interleave", value=value), args=[ast.Constant(value=2), *_]):
            x = code.words(value)
            return f"torch.cat(({x}, {x}), dim=-1)"
        case ast.Call(func=ast.Attribute(attr="repeat_interleave"), args=[value, ast.Constant(value=2), *_]):
            x = code.words(value)
            return f"torch.cat(({x}, {x}), dim=-1)"
        case ast.Call(
            func=ast.Attribute(
                attr="flatten" | "reshape" | "view",
                value=ast.Call(func=ast.Attribute(attr="stack"), args=[several, *_]),
            )
        ):
            match several:
                case ast.Tuple(elts=[one, other]) | ast.List(elts=[one, other]) if code.words(one) == code.words(other):
                    return f"torch.cat(({code.words(one)}, {code.words(one)}), dim=-1)"
        case ast.Call(
            func=ast.Attribute(attr="cat"), args=[ast.Tuple(elts=[one, other]) | ast.List(elts=[one, other]), *_]
        ):
            if code.words(one) == code.words(other):
                return f"{code.words(one)}.repeat_interleave(2, dim=-1)"
        case ast.Call(func=ast.Attribute(attr="repeat", value=value), args=[*ones, ast.Constant(value=2)]):
            if all(isinstance(one, ast.Constant) and one.value == 1 for one in ones):
                return f"{code.words(value)}.repeat_interleave(2, dim=-1)"
    return None


def _other_signs(code: Code, call: ast.Call) -> Iterator[Fix | None]:
    """(a, b) becomes (-b, a): of the two halves the second comes first, with a minus."""
    match call:
        case ast.Call(
            func=ast.Attribute(attr="cat" | "stack"),
            args=[ast.Tuple(elts=[one, other]) | ast.List(elts=[one, other]), *_],
        ):
            first, second = (code.words(node).lstrip("-") for node in (one, other))
            words = "a quarter turn takes (a, b) to (-b, a)"
            for a, b in ((f"-{first}", second), (f"-{second}", first), (first, f"-{second}")):
                if first != second and (a, b) != (code.words(one), code.words(other)):
                    yield code.fix([code.replaced(one, a), code.replaced(other, b)], words)


def _turned_alike(case: Case) -> Iterator[Fix | None]:
    """`q = one(q); k = other(k)`: both by the same function."""
    found: dict[Role, list[tuple[Code, ast.Call]]] = {}
    for code, statement in case.home.nodes(ast.Assign):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Name(id=given), *_]) as call) if (
                name == given
            ):
                found.setdefault(role_of(name), []).append((code, call))
    for code, query in found.get(Role.QUERY, []):
        for other, key in found.get(Role.KEY, []):
            one, two = code.words(query.func), other.words(key.func)
            if code is other and one != two:
                words = f"queries are turned by {one}, keys by {two}"
                yield code.fix([code.replaced(key.func, one)], words)
                yield code.fix([code.replaced(query.func, two)], words)


def _both_turned(case: Case) -> Iterator[Fix | None]:
    """What is done to queries by a line of its own is done to keys, too."""
    for code, statement in case.home.nodes(ast.Assign):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Name(id=given), *_])) if (
                name == given
            ):
                other = {Role.QUERY: "k", Role.KEY: "q"}.get(role_of(name))
                if other is None:
                    continue
                letter = re.search(r"[qQkK]", name)
                if letter is None:
                    continue
                twin = name.replace(letter[0], other.upper() if letter[0].isupper() else other, 1)
                twin = {"query": "key", "queries": "keys", "key": "query", "keys": "queries"}.get(name, twin)
                line = renamed(code.words(statement), name, twin)
                words = f"{name} is turned by its place, {twin} is not"
                yield code.fix([code.after(statement, line)], words)


def rope_precision(case: Case) -> Iterator[Fix | None]:
    """Places and frequencies in float32."""
    words = "places and angles need float32: 257 is 256 in bfloat16"
    found = [(code, edit) for code, call in case.home.nodes(ast.Call) for edit in _wider(code, call)]
    for code, edit in found:
        yield code.fix([edit], words)
    for code in dict.fromkeys(code for code, _ in found):
        yield code.fix([edit for other, edit in found if other is code], words)


def _wider(code: Code, call: ast.Call) -> Iterator[Edit]:
    """A cast, or a dtype that something is made in."""
    node = named_node(call, "dtype")
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if node is not None and name in ("arange", "linspace", "tensor", "outer"):
        yield code.replaced(node, "torch.float32")
    elif name in ("half", "bfloat16") and not call.args:
        end = code.span(call.func)[1]
        yield Edit(end - len(name), end, "float")
    elif name in ("to", "type") and len(call.args) == 1 and re.search(r"16|dtype|half", code.words(call.args[0])):
        yield code.replaced(call.args[0], "torch.float32")


def relative_shift(case: Case) -> Iterator[Fix | None]:
    """The column is put on the left, and the first row is cut."""
    words = "the column that shifts the rows belongs on the left"
    for code, call in case.home.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr="pad"), args=[_, ast.Tuple(elts=[left, right]), *_]):
                edits = [code.replaced(left, code.words(right)), code.replaced(right, code.words(left))]
                yield code.fix(edits, words)
            case ast.Call(
                func=ast.Attribute(attr="cat"), args=[ast.Tuple(elts=[one, other]) | ast.List(elts=[one, other]), *_]
            ):
                edits = [code.replaced(one, code.words(other)), code.replaced(other, code.words(one))]
                yield code.fix(edits, words)
    for code, part in case.home.nodes(ast.Slice):
        told = code.words(part) if hasattr(part, "lineno") else ""
        if told in (":-1", "1:"):
            yield code.fix(
                [code.replaced(part, "1:" if told == ":-1" else ":-1")], "the first row is cut, not the last"
            )
