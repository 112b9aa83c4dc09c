"""A file of the user's, read: what stands where, and how a change of it is written down.

A change is a `Fix`: whole lines as they stand there, and the same lines mended, so that it can be shown and applied.
"""

from __future__ import annotations

import ast
import difflib
import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from ..reports.report import Fix

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Edit:
    """Some letters of a file, and what should stand in their place."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, eq=False)
class Code:
    """A file that could be read and parsed."""

    file: str
    text: str
    tree: ast.Module

    @classmethod
    def of(cls, file: str) -> Code | None:
        """A file or the cell of a notebook; None if there is no source, or none of Python."""
        text = "".join(linecache.getlines(file))
        try:
            return cls(file, text, ast.parse(text)) if text else None
        except (SyntaxError, ValueError):
            return None

    # --- where things stand ---

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        """The offset of every line."""
        return [0, *accumulate(len(line) + 1 for line in self._lines)]

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def _places(self) -> dict[tuple[int | None, ...], list[ast.AST]]:
        found: dict[tuple[int | None, ...], list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr | ast.stmt):
                where = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
                found.setdefault(where, []).append(node)
                found.setdefault(where[1::2], []).append(node)  # by its end alone
        return found

    def at(self, where: tuple[int | None, int | None, int | None, int | None]) -> ast.AST | None:
        """What an instruction was compiled from: the first and last line, the first and last column."""
        if where in self._places:
            return self._places[where][-1]
        ends = self._places.get(where[1::2], [])  # a call in a chain over several lines is told by its last ones
        return next((node for node in ends if isinstance(node, ast.Call)), None)

    def offset(self, line: int, column: int) -> int:
        """Of a line from 1 and a column in bytes, as syntax trees count."""
        begun = self._lines[line - 1].encode()[:column].decode(errors="replace")
        return self._starts[line - 1] + len(begun)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """From where to where it stands."""
        assert isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def words(self, node: ast.AST) -> str:
        """Exactly as it stands there."""
        start, end = self.span(node)
        return self.text[start:end]

    def line_of(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    # --- what it belongs to ---

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What it stands in, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement around it, or itself."""
        return next(n for n in (node, *self.above(node)) if isinstance(n, ast.stmt))

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        return next((n for n in self.above(node) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)), None)

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class it stands in."""
        return next((n for n in self.above(node) if isinstance(n, ast.ClassDef)), None)

    def indent(self, node: ast.stmt) -> str:
        line = self._lines[node.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    # --- changes ---

    def replaced(self, node: ast.AST, text: str) -> Edit:
        """Another text in its place."""
        return Edit(*self.span(node), text)

    def before(self, statement: ast.stmt, *lines: str) -> Edit:
        """Lines in front of a statement, as far indented as that is."""
        start = self._starts[statement.lineno - 1]
        decorated = getattr(statement, "decorator_list", None)
        if decorated:
            start = self._starts[decorated[0].lineno - 1]
        return Edit(start, start, "".join(f"{self.indent(statement)}{line}\n" for line in lines))

    def after(self, statement: ast.stmt, *lines: str) -> Edit:
        """Lines behind a statement."""
        assert statement.end_lineno is not None
        end = self._starts[statement.end_lineno] - 1
        return Edit(end, end, "".join(f"\n{self.indent(statement)}{line}" for line in lines))

    def without(self, statement: ast.stmt) -> Edit:
        """A statement taken away, with its lines; `pass` where it is the only one."""
        parent = self.parents[statement]
        for body in (getattr(parent, "body", []), getattr(parent, "orelse", [])):
            if body == [statement]:
                return self.replaced(statement, "pass")
        assert statement.end_lineno is not None
        return Edit(self._starts[statement.lineno - 1] - 1, self._starts[statement.end_lineno] - 1, "")

    def fix(self, edits: Iterable[Edit], words: str) -> Fix | None:
        """Changes as one: all lines from the first to the last; None if they cross, or change nothing."""
        order = sorted(set(edits), key=lambda edit: (edit.start, edit.end))
        if not order or any(a.end > b.start for a, b in pairwise(order)):
            return None
        start = self.text.rfind("\n", 0, order[0].start) + 1
        end = self.text.find("\n", max(order[-1].end, start))
        end = len(self.text) if end < 0 else end
        after, last = "", start
        for edit in order:
            after, last = after + self.text[last : edit.start] + edit.text, edit.end
        before, after = self.text[start:end], after + self.text[last:end]
        if before == after:
            return None
        before, after, start = self._shortest(before, after, start)
        if "\n" not in before + after:  # one line needs no indentation
            before, after = before.strip(), after.strip()
        return Fix(self.file, self.line_of(start), before, after, words)

    def _shortest(self, before: str, after: str, start: int) -> tuple[str, str, int]:
        """Without lines at the beginning and the end that stay as they are; of what is only added to, one stays."""
        old, new = before.split("\n"), after.split("\n")
        while len(old) > 1 and len(new) > 1 and old[-1] == new[-1]:
            old, new = old[:-1], new[:-1]
        while len(old) > 1 and len(new) > 1 and old[0] == new[0]:
            start += len(old[0]) + 1
            old, new = old[1:], new[1:]
        return "\n".join(old), "\n".join(new), start


def apply(fix: Fix, text: str) -> str:
    """The text of a file with a fix applied; an error if the file is not the one that was read."""
    begin = sum(len(line) + 1 for line in text.split("\n")[: fix.line - 1])
    place = text.find(fix.before, begin)
    if place < 0 or text.count("\n", 0, place) + 1 != fix.line:
        raise ValueError(f"{fix.file}:{fix.line} no longer reads {fix.before.splitlines()[0]!r}; check it again")
    return text[:place] + fix.after + text[place + len(fix.before) :]


def diff(fixes: Sequence[Fix]) -> str:
    """All fixes as one unified diff; of two that touch the same lines the first."""
    shown = list[str]()
    for file in dict.fromkeys(fix.file for fix in fixes):
        code = Code.of(file)
        if code is None:
            continue
        taken: list[Fix] = []
        for fix in (fix for fix in fixes if fix.file == file):
            if not any(_lines(fix) & _lines(other) for other in taken):
                taken.append(fix)
        text = code.text
        for fix in sorted(taken, key=lambda fix: -fix.line):
            text = apply(fix, text)
        shown += difflib.unified_diff(code.text.splitlines(True), text.splitlines(True), file, file)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in shown)


def _lines(fix: Fix) -> set[int]:
    return set(range(fix.line, fix.line + fix.before.count("\n") + 1))
