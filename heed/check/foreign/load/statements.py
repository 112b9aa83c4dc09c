"""Running a stranger's text, statement by statement: what fails is skipped and told, and the rest is there.

A script that trains below its classes, reads a file of its author's, or wants a command line still defines its classes.
What a skipped statement would have defined is a stand-in, which says why it is not there when it is used. What comes
below the class that is wanted is run only if it defines something that is used above: no model is built, nothing is
downloaded and nothing is trained for a class that does not need it.
"""

from __future__ import annotations

import ast
import dis
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FrameType
from typing import Any

from ..contain.clock import Clock
from ..contain.limits import within
from .absent import Stub, importing
from .text import Source, last_place, one_line, shown

IMPORT_SECONDS = 60.0  # that a statement which imports may take
OTHER_SECONDS = 15.0  # and all others together
LATE_SECONDS = 5.0  # a definition, after something took too long
DEFINES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)
READS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement of a text, at its top."""

    node: ast.stmt
    source: Source
    module: str  # under which it runs: each cell of a notebook has its own

    @property
    def place(self) -> str:
        return shown(self.source.file, self.node.lineno)

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names that it gives to the module, or changes something of."""
        return frozenset(bound(self.node, changed=True))

    @cached_property
    def defines(self) -> frozenset[str]:
        """The names that it gives to the module."""
        return frozenset() if self.main else frozenset(bound(self.node))

    @cached_property
    def code(self) -> CodeType:
        flags = self.source.flags
        tree = ast.Module([self.node], [])
        code: CodeType = compile(tree, self.source.file, "exec", flags=flags, dont_inherit=True)
        return code

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names of the module that it, or what it defines, asks for."""
        return frozenset(asked_for(self.code, functions=True))

    @cached_property
    def uses_now(self) -> frozenset[str]:
        """Those that it asks for when it is run: decorators, bases and defaults, not what is inside its functions."""
        return frozenset(asked_for(self.code, functions=False))

    @cached_property
    def main(self) -> bool:
        """`if __name__ == "__main__"`, which is never so."""
        return isinstance(self.node, ast.If) and "__name__" in ast.unparse(self.node.test)


class Runner:
    """Runs texts of one project, one within another as they import each other."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}  # all that was run, by file
        self._depth = 0

    def script(self, texts: Sequence[tuple[Source, str]], namespace: dict[str, Any]) -> Script:
        """Texts that share their names, each with the name of its module; one that is no Python is a SyntaxError."""
        statements = [Statement(node, source, name) for source, name in texts for node in source.tree.body]
        self.sources |= {source.file: source for source, _ in texts}
        return Script(self, statements, namespace)

    def run(self, statement: Statement, namespace: dict[str, Any], seconds: float) -> str | None:
        """One statement; why it was not done, if it was not. Those that wait for it have no time of their own."""
        code = statement.code
        self._depth += 1
        told = None
        try:
            with within(seconds if self._depth == 1 else None) as deadline:
                try:
                    with importing():
                        exec(code, namespace)
                except (Exception, SystemExit) as error:
                    if isinstance(error, MemoryError) or caught_above(error, self.sources):
                        raise
                    told = self._told(error, statement)
        finally:
            self._depth -= 1
        return f"not done after {seconds:.0f} s" if deadline.over else told

    def _told(self, error: BaseException, statement: Statement) -> str:
        place = last_place(error.__traceback__, self.sources)
        if isinstance(error, SyntaxError) and error.filename:
            place = (error.filename, error.lineno or 0)
        if place is None or (place[0] == statement.source.file and _around([statement.node], place[1])):
            return one_line(error)
        return f"{one_line(error)} ({shown(*place)})"


class Script:
    """The statements of a module: those that were run, and those that wait until somebody wants what they define."""

    def __init__(self, runner: Runner, statements: Sequence[Statement], namespace: dict[str, Any]) -> None:
        self.statements, self.namespace = statements, namespace
        self.skipped: list[str] = []
        self.waiting: list[Statement] = []
        self._runner, self._seconds, self._late = runner, OTHER_SECONDS, ""

    def run(self, wanted: frozenset[str] | None = None) -> None:
        """All of it, or all that comes before the last of these names and what they use of the rest."""
        last = max((n for n, one in enumerate(self.statements) if one.defines & (wanted or set())), default=None)
        for number, statement in enumerate(self.statements):
            there = last is not None and number > last
            if there and not isinstance(statement.node, DEFINES):
                self.waiting.append(statement)
                continue
            if there:
                self.want(statement.uses_now)
            self._run(statement)
        self.want(wanted or ())

    def want(self, names: Iterable[str]) -> None:
        """Run what still waits and these names need."""
        if not self.waiting:
            return
        needed = self._needed(names)
        due = [statement for statement in self.waiting if statement.binds & needed]
        self.waiting = [statement for statement in self.waiting if not statement.binds & needed]
        for statement in due:
            self._run(statement)

    def want_all(self) -> None:
        """Run all that still waits."""
        due, self.waiting = self.waiting, []
        for statement in due:
            self._run(statement)

    @property
    def sources(self) -> list[Source]:
        """The texts, in order."""
        return list(dict.fromkeys(statement.source for statement in self.statements))

    @property
    def unused(self) -> int:
        """How many statements were not needed."""
        return sum(not statement.main for statement in self.waiting)

    def _needed(self, names: Iterable[str]) -> set[str]:
        """These names, and all that what defines them asks for."""
        needed, left = set[str](), set(names)
        while left:
            needed |= left
            left = {use for one in self.statements if one.binds & left for use in one.uses} - needed
        return needed

    def _run(self, statement: Statement) -> None:
        node = statement.node
        if trains(node):
            self._skip(statement, "it trains")
        elif self._late and not isinstance(node, DEFINES):
            self._skip(statement, f"it comes after {self._late}", aloud=False)
        else:
            imports = any(isinstance(part, ast.Import | ast.ImportFrom) for part in ast.walk(node))
            seconds = LATE_SECONDS if self._late else IMPORT_SECONDS if imports else max(self._seconds, 0.1)
            clock, name = Clock(), self.namespace["__name__"]
            self.namespace["__name__"] = statement.module
            try:
                told = self._runner.run(statement, self.namespace, seconds)
            finally:
                self.namespace["__name__"] = name
            self._seconds -= 0 if imports else clock.seconds
            if told is not None:
                self._skip(statement, told)
                self._late = self._late or (statement.place if told.startswith("not done") else "")

    def _skip(self, statement: Statement, why: str, aloud: bool = True) -> None:
        words = f"{statement.place} was skipped: {why}"
        if aloud:
            self.skipped.append(words)
        for name in statement.defines:
            self.namespace.setdefault(name, Stub(name, f"what makes it was not run: {words}"))


def trains(node: ast.stmt) -> bool:
    """Whether a statement at the top of a file is a loop that trains."""
    if not isinstance(node, ast.For | ast.While | ast.With):
        return False
    called = {n.func.attr for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    return "backward" in called


def bound(node: ast.AST, changed: bool = False) -> Iterator[str]:
    """The names that a statement would give to the module; `A.b = c` and `a[b] = c` have `changed` A and a."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name.partition(".")[0]
        return
    if changed and isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield inner.id
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.comprehension | ast.Lambda):
            yield from bound(child, changed)


def asked_for(code: CodeType, functions: bool) -> Iterator[str]:
    """The names of the module that compiled code reads; with or without those of the functions inside it."""
    yield from (str(one.argval) for one in dis.get_instructions(code) if one.opname in READS)
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and (functions or not inner.co_flags & inspect.CO_OPTIMIZED):
            yield from asked_for(inner, functions)


def caught_above(error: BaseException, sources: Mapping[str, Source]) -> bool:
    """Whether the user's code, somewhere up the stack, catches this error: then it has an answer of its own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        source = sources.get(frame.f_code.co_filename)
        if source is not None and any(_catches(node, frame.f_lineno, error) for node in ast.walk(source.tree)):
            return True
        frame = frame.f_back
    return False


def _catches(node: ast.AST, line: int, error: BaseException) -> bool:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        named = [call.args for call in calls if "suppress" in ast.unparse(call.func)]
        return _around(node.body, line) and any(_names(arg) & kinds for args in named for arg in args)
    if not isinstance(node, ast.Try) or not _around(node.body, line):
        return False
    return any(handler.type is None or _names(handler.type) & kinds for handler in node.handlers)


def _around(body: list[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)


def _names(expression: ast.expr) -> set[str]:
    """`ImportError`, `(ImportError, OSError)`, `builtins.ImportError`."""
    parts = list(ast.walk(expression))
    return {p.id for p in parts if isinstance(p, ast.Name)} | {p.attr for p in parts if isinstance(p, ast.Attribute)}
