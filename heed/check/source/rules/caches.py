"""Beside a cache: where places begin, and rows that follow when they are chosen anew."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...foreign.words import Role, role_of
from ...reports.report import Fix
from ..case import Case
from ..code import Code, Edit
from ..write import appended

CHOOSES = re.compile(r"\.index_select\(|\.gather\(|\[(beam|order|idx|index|perm|parents?)\w*\]")
TWINS = (("k", "v"), ("keys", "values"), ("key", "value"), ("v", "k"), ("values", "keys"), ("value", "key"))
WORDS = "with a cache, places go on from the number of tokens that it holds"


def cache_offset(case: Case) -> Iterator[Fix | None]:
    """Places begin behind what the cache holds."""
    for code, function in case.home.nodes(ast.FunctionDef):
        caches = [one.arg for one in function.args.args if role_of(one.arg) is Role.CACHE]
        for cache in caches:
            for length in (f"{cache}[0].shape[-2]", f"{cache}[0].shape[1]"):
                past = f"0 if {cache} is None else {length}"
                yield _told(case, code, function, past)
                yield _counted(code, function, past)


def _told(case: Case, code: Code, function: ast.FunctionDef, past: str) -> Fix | None:
    """Helpers that take a place to begin at are told one."""
    takes = {
        definition.name: (names, place)
        for _, definition in case.home.nodes(ast.FunctionDef)
        for names in [[one.arg for one in definition.args.args if one.arg != "self"]]
        for place, name in enumerate(names)
        if role_of(name) is Role.PLACE
    }
    edits: list[Edit] = []
    first: ast.stmt | None = None
    for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in takes:
            continue
        names, place = takes[name]
        given = call.args[place : place + 1] or [k.value for k in call.keywords if k.arg == names[place]]
        if not given:
            edits.append(appended(code, call, f"{names[place]}=past" if len(call.args) != place else "past"))
        elif isinstance(given[0], ast.Constant):
            edits.append(code.replaced(given[0], "past"))
        statement = code.statement(call)
        first = statement if first is None or statement.lineno < first.lineno else first
    return None if first is None else code.fix([*edits, code.before(first, f"past = {past}")], WORDS)


def _counted(code: Code, function: ast.FunctionDef, past: str) -> Fix | None:
    """Places that are counted here begin there."""
    edits: list[Edit] = []
    first: ast.stmt | None = None
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="arange"), args=[only]):
                edits.append(code.replaced(only, f"past, past + {code.words(only)}"))
            case ast.Slice(lower=None, upper=ast.expr() as upper) if _of_table(code, node):
                edits.append(code.replaced(node, f"past : past + {code.words(upper)}"))
            case _:
                continue
        statement = code.statement(node)
        first = statement if first is None or statement.lineno < first.lineno else first
    return None if first is None else code.fix([*edits, code.before(first, f"past = {past}")], WORDS)


def _of_table(code: Code, node: ast.Slice) -> bool:
    around = next(n for n in code.above(node) if isinstance(n, ast.Subscript))
    return code.words(around.value).startswith("self.")


def cache_reorder(case: Case) -> Iterator[Fix | None]:
    """The rows of a cache are chosen along its first axis."""
    words = "the cache keeps its rows where they were, or another axis is taken for theirs"
    for code, call in case.home.nodes(ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr="index_select"), args=[ast.Constant() as axis, _]):
                yield code.fix([code.replaced(axis, "0")], words)
    for code, function in case.home.nodes(ast.FunctionDef):
        names = [one.arg for one in function.args.args if one.arg != "self"]
        if "order" in function.name and len(names) >= 2:
            for node in ast.walk(function):
                if isinstance(node, ast.GeneratorExp | ast.ListComp) and isinstance(node.elt, ast.Name):
                    text = f"{node.elt.id}.index_select(0, {names[-1]})"
                    yield code.fix([code.replaced(node.elt, text)], words)
    yield from _both_follow(case)


def _both_follow(case: Case) -> Iterator[Fix | None]:
    """Where the rows of keys are chosen anew, those of values are, too."""
    words = "rows of keys are chosen anew, and values keep theirs"
    for code, statement in case.home.nodes(ast.Assign):
        told = code.words(statement)
        match statement:
            case ast.Assign(targets=[ast.Attribute(attr=attr) | ast.Name(id=attr)]) if CHOOSES.search(told):
                for one, other in TWINS:
                    twin = re.sub(rf"(?<![a-z]){one}(?![a-z])", other, attr)
                    if twin != attr:
                        yield code.fix([code.after(statement, re.sub(rf"\b{attr}\b", twin, told))], words)
    for code, pair in case.home.nodes(ast.Tuple, ast.List):
        match pair.elts:
            case [one, other]:
                yield from _alike(code, one, other, words)
                yield from _alike(code, other, one, words)


def _alike(code: Code, done: ast.expr, left: ast.expr, words: str) -> Iterator[Fix | None]:
    """What is done to one of a pair, done to the other."""
    told = code.words(done)
    if CHOOSES.search(told) and not CHOOSES.search(code.words(left)) and isinstance(left, ast.Name | ast.Subscript):
        for inner in ast.walk(done):
            if isinstance(inner, type(left)) and code.words(inner) != told:
                start, end = (place - code.span(done)[0] for place in code.span(inner))
                yield code.fix([code.replaced(left, told[:start] + code.words(left) + told[end:])], words)
