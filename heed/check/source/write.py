"""Writing code into code: parentheses where they are needed, arguments added or taken away, conditions turned round."""

from __future__ import annotations

import ast
import re

from .code import Code, Edit

TIGHT = ast.Attribute | ast.Subscript | ast.Call | ast.BinOp | ast.UnaryOp | ast.Compare | ast.Await


def inside(code: Code, node: ast.expr, text: str, own: type[ast.operator] | None = None) -> Edit:
    """A longer expression in the place of a shorter one, in parentheses where what is around it would tear it apart."""
    parent = code.parents.get(node)
    loose = isinstance(node, ast.BinOp) and (own is None or isinstance(node.op, own | ast.MatMult | ast.Mult | ast.Div))
    held = isinstance(parent, TIGHT) and not (isinstance(parent, ast.Call) and parent.func is not node)
    if isinstance(parent, ast.Subscript) and parent.value is not node:
        held = False
    return code.replaced(node, f"({text})" if held and not loose else text)


def dropped(code: Code, call: ast.Call, value: ast.expr) -> Edit:
    """An argument taken out of a call, with its name if it has one."""
    keyword = next((keyword for keyword in call.keywords if keyword.value is value), None)
    start, end = code.span(value if keyword is None else keyword)
    before = [code.span(other)[1] for other in (*call.args, *call.keywords) if code.span(other)[1] <= start]
    return Edit(max(before, default=start), end, "")


def given_keyword(code: Code, call: ast.Call, name: str, text: str) -> Edit:
    """A keyword of a call, set: in the place of what it was, or behind all others."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return code.replaced(keyword.value, text)
    return appended(code, call, f"{name}={text}")


def appended(code: Code, call: ast.Call, text: str) -> Edit:
    """One more argument of a call."""
    given = [*call.args, *call.keywords]
    if given:
        end = max(code.span(one)[1] for one in given)
        return Edit(end, end, f", {text}")
    end = code.span(call)[1] - 1
    return Edit(end, end, text)


def enclosed(code: Code, node: ast.expr) -> tuple[int, int]:
    """Where an expression stands, its own parentheses included."""
    start, end = code.span(node)
    parent = code.parents.get(node)
    calls = isinstance(parent, ast.Call) and parent.func is not node
    while not calls and code.text[:start].rstrip()[-1:] == "(" and code.text[end:].lstrip()[:1] == ")":
        start, end = len(code.text[:start].rstrip()) - 1, len(code.text) - len(code.text[end:].lstrip()) + 1
        if isinstance(parent, ast.stmt | ast.Tuple):
            break
    return start, end


def with_method(code: Code, node: ast.expr, call: str) -> Edit:
    """A method called on an expression."""
    start, end = enclosed(code, node)
    if isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript):
        start, end = code.span(node)
        return Edit(start, end, f"{code.text[start:end]}{call}")
    inner = code.words(node)
    return Edit(start, end, f"({inner}){call}")


def method_of(code: Code, node: ast.expr, call: str) -> str:
    """The same as a text."""
    return with_method(code, node, call).text


def fresh(code: Code, node: ast.AST, wanted: str) -> str:
    """A local name that is not taken in the function around."""
    taken = {n.id for n in ast.walk(code.function(node) or code.tree) if isinstance(n, ast.Name)}
    return next(name for name in (wanted, *(f"{wanted}_{i}" for i in range(2, 99))) if name not in taken)


def movable(code: Code, node: ast.AST) -> bool:
    """Whether a line before its statement computes the same: not in a loop over pieces, or a small function."""
    for above in code.above(node):
        if isinstance(above, ast.stmt):
            return isinstance(above, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr)
        if isinstance(above, ast.Lambda | ast.comprehension | ast.GeneratorExp | ast.ListComp | ast.DictComp):
            return False
    return False


def negated(code: Code, node: ast.expr, boolean: bool) -> str:
    """The opposite of a condition over a tensor."""
    words = code.words(node)
    match node:
        case ast.UnaryOp(op=ast.Invert() | ast.Not(), operand=inner):
            return code.words(inner)
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=value)]) if value in (0, 1):
            return f"{code.words(left)} {'==' if value else '!='} 0"
        case ast.Compare(left=left, ops=[ast.NotEq() | ast.Gt()], comparators=[ast.Constant(value=0)]):
            return f"{code.words(left)} == 0"
        case ast.Call(func=ast.Attribute(attr="logical_not", value=value), args=[]):
            return f"{code.words(value)}.bool()"
        case ast.Call(func=ast.Attribute(attr="logical_not"), args=[value]):
            return code.words(value)
        case ast.Call(func=ast.Attribute(attr="eq" | "ne" as attr, value=value), args=[right]):
            return f"{code.words(value)}.{'ne' if attr == 'eq' else 'eq'}({code.words(right)})"
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Sub(), right=right):
            return code.words(right)
    atom = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
    text = words if atom else f"({words})"
    return f"~{text}" if boolean else f"{text} == 0"


def mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def renamed(text: str, old: str, new: str) -> str:
    """A name exchanged in an expression."""
    return re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, text)
