"""Rows of text out of files, strictly: whatever is wrong is named by file and line.

Libraries that read csv and json by the table do not say which line is wrong, so files are parsed here, line by line;
parquet, whose rows have no lines, is read by pyarrow (`parquet.py`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..core.errors import InputError, counted
from .base import EMPTY, Example, as_text, near
from .bounds import Budget
from .columns import SAMPLE, Columns, Format, Layout, called, columns_of

SHOWN = 5  # problems that are listed; all are counted
BOM = b"\xef\xbb\xbf"  # some editors begin UTF-8 with it
OTHER = (  # how files begin that are something else
    (b"\x1f\x8b", "compressed by gzip; end its name with .gz"),
    (b"PAR1", "parquet; end its name with .parquet"),
    (b"PK\x03\x04", "a zip archive or a spreadsheet; unpack it, or save it as csv"),
    (b"\xff\xfe", "UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "UTF-16; save it as UTF-8"),
)


V = TypeVar("V")


class Notes:
    """What was left out, and why."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.blank = 0
        self.bad = 0
        self.first: list[str] = []
        self.said: dict[str, None] = {}  # what people should know of the files, each once
        self.columns: Columns | None = None  # of the tsv and csv files so far
        self.paragraphs: dict[str, str] = {}  # by their names: what questions may be about

    def problem(self, path: Path, line: int, what: str) -> None:
        self.bad += 1
        if len(self.first) < SHOWN:
            self.first.append(f"{path}:{line}: {what}")


class Table:
    """Rows of texts, by number.

    They are kept as UTF-8 in one block, and the ends of the cells in another. That is how arrow keeps them, without
    needing it: no object per text, so the memory is that of the file, and forked workers share it.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._text = bytearray()
        self._ends = array("Q", [0])

    def add(self, row: Iterable[str]) -> None:
        for cell in row:
            self._text += cell.encode()
            self._ends.append(len(self._text))

    def __len__(self) -> int:
        return (len(self._ends) - 1) // self._width

    def __getitem__(self, index: int) -> Example:
        first = index * self._width
        ends = self._ends[first : first + self._width + 1]
        return tuple(self._text[begin:end].decode() for begin, end in pairwise(ends))

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))


class BadRow(Exception):  # it is about a row, and never leaves this package
    """A row that cannot be used."""


# --- lines ---


def _raw_lines(path: Path, budget: Budget) -> Iterator[bytes]:
    packed = path.suffix.lower() == ".gz"
    try:
        with path.open("rb") as plain:
            file = io.BufferedReader(gzip.GzipFile(fileobj=plain)) if packed else plain
            budget.opened(path, packed=packed)
            number = 0
            while line := file.readline(min(budget.bounds.line, budget.left) + 1):
                number += 1
                budget.take(len(line))
                budget.line(len(line), number)
                yield line
    except EOFError:
        raise InputError(f"{path} is cut off in the middle of its compressed data; copy or download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not gzip data, or damaged ({error}); copy it again, or drop .gz") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def lines(path: Path, notes: Notes) -> Iterator[tuple[int, str | None]]:
    """Every line with its number, ended by "\\n" if it was ended; None in the place of a line that is no text."""
    for number, raw in enumerate(_raw_lines(path, notes.budget), 1):
        line = _beginning(path, raw) if number == 1 else raw
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            notes.problem(path, number, f"byte {error.start + 1} of the line, 0x{line[error.start]:02x}, is not UTF-8")
            yield number, None
            continue
        if "\0" in text:
            notes.problem(path, number, "holds a NUL byte, which no text does")
            yield number, None
            continue
        yield number, text.rstrip("\r\n") + "\n" if text.endswith("\n") else text.rstrip("\r")


def _beginning(path: Path, line: bytes) -> bytes:
    """The first line, of a file that looks like text."""
    for begin, what in OTHER:
        if line.startswith(begin):
            raise InputError(f"{path} is {what}")
    return line.removeprefix(BOM)


def _text(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    """The whole text, or each of its lines."""
    good = (line for _, line in lines(path, notes) if line is not None)
    if not layout.lines:
        text = bytearray()  # short lines are ten times as large as objects
        for line in good:
            text += line.encode()
        if text.strip() and (whole := text.decode()).strip():
            yield (whole,)
        return
    for line in good:
        if line.strip():
            yield (line.removesuffix("\n"),)
        else:
            notes.blank += 1


# --- tsv and csv ---


def _tsv(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    rows = ((number, line.removesuffix("\n").split("\t")) for number, line in lines(path, notes) if line is not None)
    return _cells(rows, path, layout, notes)


def _csv(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    limit = csv.field_size_limit(sys.maxsize)  # the module allows 131,072 characters, and a document may have more
    try:
        yield from _cells(_records(path, notes), path, layout, notes)
    finally:
        csv.field_size_limit(limit)


class _Followed:
    """Lines for the csv reader. It may take several for a record; this tells which, and whether all were text."""

    def __init__(self, lines: Iterable[tuple[int, str | None]], budget: Budget) -> None:
        self._lines = iter(lines)
        self._budget = budget
        self._held = 0  # characters of the record so far
        self.first = self.number = 0
        self.broken = False

    def record(self) -> None:
        """The next line begins another."""
        self.first, self.broken, self._held = self.number + 1, False, 0

    def __iter__(self) -> _Followed:
        return self

    def __next__(self) -> str:
        self.number, line = next(self._lines)
        self.broken = self.broken or line is None
        self._held += len(line or "")
        self._budget.line(self._held, self.first)  # a quote that is never closed takes all lines that follow
        return line or ""


def _records(path: Path, notes: Notes) -> Iterator[tuple[int, list[str]]]:
    followed = _Followed(lines(path, notes), notes.budget)
    reader = csv.reader(followed, strict=True)
    while True:
        followed.record()
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            last = f", up to line {followed.number}" if followed.number > followed.first else ""
            notes.problem(
                path, followed.first, f'is not valid csv{last}: {error}; a field with " is quoted, and " doubled'
            )
            continue
        if not followed.broken:
            yield followed.first, record


def _cells(rows: Iterable[tuple[int, list[str]]], path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    """The wanted cells of each row. The first row says how many there are, and perhaps their names."""
    filled = _filled(rows, notes)
    first = list(islice(filled, SAMPLE + 1))
    if not first:
        return
    columns = columns_of(path, layout, first)
    if layout.columns is None:
        columns.must_match(notes.columns or columns)
        notes.columns = columns
    if columns.names is not None and layout.header == "auto":
        named = (f"{columns.names[at]} as {one}" for at, one in zip(columns.chosen, layout.wanted, strict=True))
        notes.said[f"the first line names the columns: {', '.join(named)}"] = None
    for number, row in chain(first[columns.names is not None :], filled):
        if len(row) != columns.width:
            notes.problem(path, number, f"{counted(len(row), 'field')} where line {columns.line} has {columns.width}")
            continue
        cells = tuple(row[index] for index in columns.chosen)
        cell_of = zip(columns.chosen, layout.wanted, cells, strict=True)
        empty = next((at for at, name, cell in cell_of if not cell.strip() and name not in EMPTY), None)
        if empty is None:
            yield cells
        else:
            notes.problem(path, number, f"column {empty} is empty")


def _filled(rows: Iterable[tuple[int, list[str]]], notes: Notes) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank."""
    for number, row in rows:
        if len(row) <= 1 and not "".join(row).strip():
            notes.blank += 1
        else:
            yield number, row


# --- jsonl ---


def _jsonl(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    def texts(row: dict[str, Any]) -> Example:
        names = layout.columns or [called(row, one) for one in layout.wanted]
        return tuple(text_in(row, name, role) for name, role in zip(names, layout.wanted, strict=True))

    return objects(path, notes, texts)


def objects(path: Path, notes: Notes, made: Callable[[dict[str, Any]], V]) -> Iterator[V]:
    """What is made of the object on each line; one of which nothing can be made is a problem of that line."""
    for number, line in lines(path, notes):
        if line is None:
            continue
        if not line.strip():
            notes.blank += 1
            continue
        try:
            yield made(parsed(line))
        except BadRow as bad:
            notes.problem(path, number, str(bad))


def parsed(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadRow(f"is not JSON: {error.msg} at character {error.colno}") from None
    except (ValueError, RecursionError) as error:  # a number of more than 4,300 digits, lists in lists in lists
        raise BadRow(f"is not JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        raise BadRow(f"holds a {type(value).__name__}; needed is an object, {{...}}")
    return value


def text_in(row: Mapping[str, Any], name: str | int, role: str = "") -> str:
    """A value of an object, which must be a text, or stand for one where a column may hold numbers and lists.

    `role`: what the task calls it.
    """
    if name not in row:
        raise BadRow(f'has no "{name}"; it has {", ".join(row) or "nothing"}{near(str(name), row)}')
    value = as_text(row[str(name)], role)
    return "" if value == "" and role in EMPTY else must_be_text(value, f'"{name}"')


def must_be_text(value: Any, name: str) -> str:
    """A text that holds something, or a bad row."""
    if not isinstance(value, str):
        given = "null" if value is None else json.dumps(value)
        given = given if len(given) <= 30 else given[:27] + "..."
        raise BadRow(f"{name} is {given}; needed is text in quotes")
    if not value.strip():
        raise BadRow(f"{name} is empty")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise BadRow(f"{name} holds half of a surrogate pair, which is no character")
    return value


Reader: TypeAlias = "Callable[[Path, Layout, Notes], Iterator[Example]]"

LINED: dict[Format, Reader] = {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl, "text": _text}
