"""The text of a stranger's code: of a file, of the cells of a notebook, or pasted; and how its places are called."""

from __future__ import annotations
import __future__

import ast
import json
import linecache
import os
import re
import sys
import textwrap
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import CannotCheck

PASTED = "<stdin>"
CELL = ", cell "
PYTHON_CELLS = {"time", "timeit", "capture", "prun"}  # magics of which the rest of the cell is Python
PYTHON_2 = re.compile(
    r"^\s*(print\s+[^(=\s]|print\s*$|print\s*>>|exec\s+[^(=\s]|except\s+[\w.]+\s*,\s*\w+\s*:|raise\s+[\w.]+\s*,)|<>|\bur['\"]"
)
MAGIC = re.compile(r"^(\s*)(?:[%!].*|(\w[\w, ]*=)\s*[%!].*|\?.*|[\w.]+\?{1,2}\s*)$")


@dataclass(frozen=True)
class Source:
    """A text of Python, under the name that tracebacks and `inspect` know it by."""

    file: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.file)

    @property
    def flags(self) -> int:
        """What it imports from `__future__`, for each of its statements."""
        found = [node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        names = [alias.name for node in found for alias in node.names]
        return sum(getattr(__future__, name).compiler_flag for name in names)

    def remember(self) -> Source:
        """Let `inspect.getsource` find it, though no file of this name is there."""
        lines = self.text.splitlines(keepends=True)
        linecache.cache[self.file] = (len(self.text), None, lines, self.file)
        return self


def read(path: Path) -> Source:
    """A file, in the encoding that it declares."""
    try:
        with tokenize.open(path) as file:
            text = file.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise CannotCheck(f"{path} is no text in UTF-8 or in the encoding that it declares: {error}") from None
    except OSError as error:
        raise CannotCheck(f"{path} cannot be read: {error.strerror}") from None
    if "\0" in text:
        raise CannotCheck(f"{path} is no text: it holds zero bytes")
    return Source(str(path), text)


def pasted(text: str) -> Source:
    """What came on standard input; a method that was cut out of its class loses its indent."""
    if not text.strip():
        raise CannotCheck("nothing came on standard input; write: cat my_attention.py | heed check -")
    return Source(PASTED, textwrap.dedent(text)).remember()


def cells(path: Path) -> list[Source]:
    """The code cells of a notebook, counted from 1; lines for the shell and magics are left out."""
    try:
        book = json.loads(path.read_text(encoding="utf-8"))
        language = book.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        sheets = book.get("worksheets", [book])
        found = [cell for sheet in sheets for cell in sheet["cells"] if cell["cell_type"] == "code"]
        texts = [_joined(cell["source"] if "source" in cell else cell["input"]) for cell in found]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotCheck(f"{path} is no notebook: {type(error).__name__}: {error}") from None
    except OSError as error:
        raise CannotCheck(f"{path} cannot be read: {error.strerror}") from None
    if "python" not in str(language).lower():
        raise CannotCheck(f"{path} is a notebook in {language}; heed reads Python")
    numbered = [Source(f"{path}{CELL}{number}", plain(text)) for number, text in enumerate(texts, 1)]
    return [cell.remember() for cell in numbered]


def _joined(source: str | Sequence[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def plain(cell: str) -> str:
    """A cell without magics and shell lines; every line keeps its number."""
    lines = cell.split("\n")
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if first is not None and (magic := re.match(r"%%(\w+)", lines[first])):
        if magic[1] not in PYTHON_CELLS:
            return ""
        lines[first] = ""
    try:
        ast.parse("\n".join(lines))
    except SyntaxError:  # only then: a line of a long expression may begin with %, too
        lines = [MAGIC.sub(_without, line) for line in lines]
    return "\n".join(lines)


def _without(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]} None" if found[2] else f"{found[1]}pass"


def shown(file: str, line: int | None) -> str:
    """A place, for people: `att.py:12`, or `book.ipynb, cell 3 line 12`."""
    near = os.path.relpath(file) if os.path.isabs(file) and _below_here(file) else file
    if line is None:
        return near
    return f"{near} line {line}" if CELL in near else f"{near}:{line}"


def _below_here(file: str) -> bool:
    try:
        return Path(file).is_relative_to(Path.cwd())
    except OSError:  # the folder is gone
        return False


def last_place(trace: TracebackType | None, files: Any) -> tuple[str, int] | None:
    """The innermost line of the user's own files in a traceback."""
    found = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in files:
            found = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found


def one_line(error: BaseException) -> str:
    """An exception, in a line."""
    words = " ".join(str(error).split())
    if len(words) > 300:
        words = f"{words[:300]} ..."
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def syntax_problem(error: SyntaxError) -> str:
    """What is wrong with a text that is no Python 3, with its line."""
    place = shown(error.filename or "", error.lineno)
    line = (error.text or "").strip()
    told = f"{place} is no Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}"
    if line:
        told += f": {line[:100]}"
    if PYTHON_2.search(error.text or "") or "Missing parentheses in call to" in error.msg:
        return f"{told}\nThis is Python 2; make it Python 3 first: print(x), except E as e, raise E(x)"
    return told
