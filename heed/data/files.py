"""The user's own files: tsv, csv, jsonl, parquet and plain text; all but parquet also as .gz.

A path may be a folder or a pattern (texts/*.txt): its files in the order of their names, rows appended, texts apart.

tsv     cells between tabs, and nothing is quoted: " is a character
csv     RFC 4180: cells between commas, quoted by "..." where they hold commas, line breaks or doubled quotes
jsonl   an object on every line; values are text in quotes (a number is an error, not a text)
parquet columns of text; a problem is named by the number of its row, from 1
text    one column; the whole file is one example, or every line
conll   sentences of words with labels, a word per line; so are tsv and text, where labels of words are asked for
squad   questions about texts, as json; also as jsonl
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator

from ..core.config import Count, Flag, Share, Size, Text
from ..core.errors import InputError, counted
from .base import Example, Examples, Name, Source
from .bounds import Bounds, Budget
from .columns import Format, Layout
from .conll import SENTENCE, conll, lists
from .parquet import parquet_rows
from .paths import expanded, format_of, names
from .questions import QUESTION, paragraphs_first, questions, squad
from .rows import LINED, Notes, Reader, Table

READERS: dict[Format, Reader] = {**LINED, "parquet": parquet_rows}
# Examples that are no rows of texts, and how files hold them.
OF_COLUMNS: dict[tuple[str, ...], dict[Format, Reader]] = {
    SENTENCE: {"conll": conll, "conllu": conll, "tsv": conll, "text": conll, "jsonl": lists},
    QUESTION: {"squad": squad, "jsonl": questions},
}
GOLDEN = (5**0.5 - 1) / 2  # the golden section
MANY = 20  # texts of which some are held out, rather than the end of each


def _paths(value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(path, str) for path in value):
        return tuple(value)
    raise ValueError(f"needed is a path or a list of paths, not {value!r}")


def _column(value: Any) -> str | int:
    if isinstance(value, str) or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"needed is the name of a column or its number from 0 on, not {value!r}")


Paths: TypeAlias = Annotated[Text | tuple[Text, ...], BeforeValidator(_paths)]
Column: TypeAlias = Annotated[Text | Count, BeforeValidator(_column)]


class Files(Source):
    """Examples out of files. Bad rows stop the reading, all at once, unless they are to be left out."""

    kind: Literal["files"] = "files"
    train: Paths | None = None  # the file or files to learn from
    valid: Paths | None = None  # for evaluation during training
    test: Paths | None = None  # for `heed eval` alone
    format: Literal["auto", Format] = "auto"  # auto = by the suffix
    # The column for each that the task asks for, in its order. None: those with the task's names if the file has
    # names, else the first ones.
    columns: tuple[Column, ...] | None = None  # which columns are read, by name or number; None: the task's, the first
    # By sight: if it looks like names of columns, which is then said; it holds names, too, if `columns` are names.
    header: Flag | Literal["auto"] = "auto"  # tsv, csv: whether the first line holds names; auto = by sight
    lines: Flag = False  # text: every line is an example
    bad_rows: Literal["stop", "skip"] = "stop"  # what is done about rows that cannot be read
    held_out: Share = 0.05  # of train, for valid if there is no file for it: the end of a text, rows from everywhere
    # A split is held in memory, and what a few bytes unpack to is not known before.
    max_text: Size = 1 << 32  # bytes of text that a split may have, unpacked
    max_ratio: Size = 100  # times its size that a compressed file may unpack to; 256 MiB in any case
    max_line: Size = 1 << 27  # bytes of a line, or of a row over several lines
    max_rows: Size = 1 << 26  # rows or lines of a split, blank and bad ones included

    def splits(self) -> tuple[Name, ...]:
        there: dict[Name, bool] = {
            "train": self.train is not None,
            "valid": self.valid is not None or self._holds_out,
            "test": self.test is not None,
        }
        return tuple(name for name, is_there in there.items() if is_there)

    def split(self, name: Name, columns: tuple[str, ...]) -> Examples:
        files = {"train": self.train, "valid": self.valid, "test": self.test}[name]
        if files is not None:
            found = self._read(files, columns)
            return found.kept(self.held_out) if name == "train" and self._holds_out else found.all()
        if name == "valid" and self._holds_out and self.train is not None:
            return self._read(self.train, columns).held(self.held_out)
        if name == "train":
            raise InputError(_needed(columns))
        more = ", or data.train with data.held_out above 0" if name == "valid" else ""
        raise InputError(f"there is no {name} split; set data.{name} to a file{more}")

    @property
    def _holds_out(self) -> bool:
        return self.train is not None and self.valid is None and self.held_out > 0

    @cached_property
    def read_before(self) -> dict[tuple[Any, ...], _Read]:
        """What was read, so that train and what is held out of it are read once."""
        return {}

    def _read(self, files: str | tuple[str, ...], columns: tuple[str, ...]) -> _Read:
        # All that decides what is read is in the key, because a changed copy of a configuration brings its memory.
        key = (files, columns, self.format, self.columns, self.header, self.lines, self.bad_rows, self._bounds)
        if key not in self.read_before:
            self.read_before[key] = self._read_anew([files] if isinstance(files, str) else files, columns)
        return self.read_before[key]

    @property
    def _bounds(self) -> Bounds:
        return Bounds(self.max_line, self.max_rows, self.max_text, self.max_ratio)

    def _read_anew(self, files: Sequence[str], columns: tuple[str, ...]) -> _Read:
        meant = [expanded(text, self.format) for text in files]
        paths = [path for found in meant for path in found.paths]
        if columns == QUESTION:
            paths = paragraphs_first(paths, Budget(self._bounds))
        layouts = [self._layout(path, columns) for path in paths]
        readers = OF_COLUMNS.get(columns, READERS)
        whole = {layout.format == "text" and readers is READERS and not self.lines for layout in layouts}
        if len(whole) > 1:
            raise InputError(f"{names(paths)}: whole texts and rows cannot be mixed; set data.lines=true to take lines")
        table, notes = Table(len(columns)), Notes(Budget(self._bounds))
        if passed := sum(found.passed for found in meant):
            notes.said[f"{counted(passed, 'file')} of another format passed over"] = None
        for path, layout in zip(paths, layouts, strict=True):
            for row in readers[layout.format](path, layout, notes):
                table.add(row)
        if notes.bad and self.bad_rows == "stop":
            raise InputError(_bad_rows(names(paths), notes, some=len(table) > 0))
        if not len(table):
            raise InputError(f"{names(paths)}: there are no examples{_left_out(notes)}")
        return (_Texts if whole.pop() else Rows)(names(paths), table, notes)

    def _layout(self, path: Path, columns: tuple[str, ...]) -> Layout:
        kind = format_of(path) if self.format == "auto" else self.format
        if self.columns is not None and len(self.columns) != len(columns):
            raise InputError(
                f"data.columns names {counted(len(self.columns), 'column')}; "
                f"needed is one for each of {', '.join(columns)}"
            )
        readers = OF_COLUMNS.get(columns, READERS)
        if kind not in readers and (columns in OF_COLUMNS or kind not in READERS):
            raise InputError(
                f"{path} is {kind}; needed is {', '.join(columns)}, which {', '.join(readers)} files hold. "
                "If it is one of them under another name, set data.format"
            )
        if kind == "text" and readers is READERS and (len(columns) > 1 or self.columns is not None):
            raise InputError(
                f"{path} is plain text, which is one column; needed is {', '.join(columns)}. "
                + ("Give a tsv, csv, jsonl or parquet file" if len(columns) > 1 else "Remove data.columns")
            )
        if kind == "jsonl" and any(isinstance(column, int) for column in self.columns or ()):
            raise InputError(f"{path}: in jsonl columns have names; give names in data.columns, not numbers")
        if kind == "parquet" and path.suffix.lower() == ".gz":
            raise InputError(f"{path}: parquet is compressed already; unpack the .gz")
        if self.header is True and kind not in {"tsv", "csv"}:
            raise InputError(f"{path}: {kind} has no header line; remove data.header")
        if self.lines and kind != "text":
            raise InputError(f"{path}: data.lines is for plain text, not for {kind}; remove it")
        return Layout(kind, columns, self.columns, self.header, self.lines)


@dataclass(frozen=True)
class _Read(ABC):
    """What was read: all of it is a split, or it falls into what is kept for train and what is held out for valid."""

    names: str
    table: Table
    notes: Notes

    @abstractmethod
    def all(self) -> Examples: ...

    @abstractmethod
    def kept(self, share: float) -> Examples: ...

    @abstractmethod
    def held(self, share: float) -> Examples: ...

    def _too_little(self) -> InputError:
        return InputError(
            f"{self.names}: there is too little to hold a part of it out for valid; "
            "set data.valid to a file, or data.held_out=0"
        )


class Rows(_Read):
    """Rows; every so many of them is held out."""

    def all(self) -> Examples:
        return self._split(range(len(self.table)), "")

    def kept(self, share: float) -> Examples:
        held = set(self._held(share))
        kept = array("Q", (number for number in range(len(self.table)) if number not in held))
        return self._split(kept, f"{len(held):,} held out for valid")

    def held(self, share: float) -> Examples:
        return self._split(self._held(share), f"held out of {len(self.table):,} of train")

    def _held(self, share: float) -> array[int]:
        total = len(self.table)
        if total < 2:
            raise self._too_little()
        return spread(total, min(max(round(total * share), 1), total - 1))

    def _split(self, numbers: Sequence[int], about: str) -> Examples:
        report = f"{self.names}: {counted(len(numbers), 'example')}{_left_out(self.notes, about)}"
        return _Split(self.table, numbers, report)


class _Texts(_Read):
    """Whole texts. Of many some are held out, of few their ends."""

    def all(self) -> Examples:
        return self._split([text for (text,) in self.table], "")

    def kept(self, share: float) -> Examples:
        kept, held, whole = self._parts(share)
        size = sum(map(len, held))
        about = f"{counted(len(held), 'text')} with {size:,}" if whole else f"the last {size:,}"
        return self._split(kept, f"{about} held out for valid")

    def held(self, share: float) -> Examples:
        kept, held, whole = self._parts(share)
        return self._split(
            held, f"held out of {len(kept) + len(held):,} texts of train" if whole else "the end of train"
        )

    def _parts(self, share: float) -> tuple[list[str], list[str], bool]:
        """What is kept, what is held out, and whether those are whole texts."""
        texts = [text for (text,) in self.table]
        if len(texts) >= MANY:
            held = set(spread(len(texts), min(max(round(len(texts) * share), 1), len(texts) - 1)))
            divided = [[text for at, text in enumerate(texts) if (at in held) is out] for out in (False, True)]
            return divided[0], divided[1], True
        cuts = [_cut(text, share) for text in texts]
        held_out = [text[cut:] for cut, text in zip(cuts, texts, strict=True) if cut < len(text)]
        if not held_out:
            raise self._too_little()
        return [text[:cut] for cut, text in zip(cuts, texts, strict=True)], held_out, False

    def _split(self, texts: Sequence[str], about: str) -> Examples:
        several = f" in {len(texts):,} texts" if len(texts) > 1 else ""
        size = counted(sum(map(len, texts)), "character")
        report = f"{self.names}: {size}{several}{_left_out(self.notes, about)}"
        return _Split([(text,) for text in texts], range(len(texts)), report)


class _Split(Examples):
    def __init__(self, rows: Table | list[Example], numbers: Sequence[int], report: str) -> None:
        self._rows, self._numbers, self._words = rows, numbers, report

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Example:
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        return self._rows[self._numbers[index]]

    def report(self) -> str:
        return self._words


def spread(total: int, count: int) -> array[int]:
    """`count` of the numbers 0 .. total-1: one of each of `count` equal stretches, at a place that no rhythm hits.

    Rows often come in turns (yes, no, yes, no ...), and every tenth of them would be of one kind alone. So the place in
    its stretch goes round by the golden section, which fits no period.
    """
    ends = [number * total // count for number in range(count + 1)] if count else [0]
    turns = (number * GOLDEN % 1.0 for number in range(1, count + 1))
    return array(
        "Q", (first + int(turn * (end - first)) for turn, (first, end) in zip(turns, pairwise(ends), strict=True))
    )


def _cut(text: str, share: float) -> int:
    """Where the end that is held out begins; the end of a text that is too short to be cut."""
    place = _tail(text, share)
    return place if text[:place].strip() and text[place:].strip() else len(text)


def _tail(text: str, share: float) -> int:
    """Where the last `share` of a text begins: after a line break, else after a space, if there is one near."""
    place = round(len(text) * (1 - share))
    earliest = max(place - (len(text) - place) // 2, 0)
    for mark in "\n ":
        if found := text.rfind(mark, earliest, place) + 1:
            return found
    return place


def _needed(columns: tuple[str, ...]) -> str:
    """What to give where there is nothing to learn from."""
    if columns in OF_COLUMNS:
        kinds = ", ".join(OF_COLUMNS[columns])
        return f"there is no data to learn from; give your files: --data PATH. Taken are {kinds}, all also as .gz"
    rows = f"tsv or csv ({', '.join(columns)} in this order, or under these names), jsonl or parquet (by these names)"
    text = f"plain text (.txt), or the column {columns[0]} of tsv, csv, jsonl or parquet"
    return (
        "there is no data to learn from; give your files: --data PATH, in Python data=PATH (data.train in a recipe). "
        f"Taken are {text if len(columns) == 1 else rows}; all but parquet also as .gz; a file, a folder, a pattern "
        "such as 'texts/*.txt', or several"
    )


def _bad_rows(names: str, notes: Notes, *, some: bool) -> str:
    lines = [f"{counted(notes.bad, 'bad row')} in {names}:", *notes.first]
    if notes.bad > len(notes.first):
        lines.append(f"... and {notes.bad - len(notes.first):,} more")
    remedy = (
        "set data.bad_rows=skip to leave them out" if some else "no row is good; check data.format and data.columns"
    )
    return "\n  ".join(lines) + f"\n{remedy}"


def _left_out(notes: Notes, about: str = "") -> str:
    """What else there is to say, in brackets."""
    counts = [
        counted(number, thing) for number, thing in ((notes.blank, "blank line"), (notes.bad, "bad row")) if number
    ]
    parts = [*([about] if about else []), *notes.said]
    if counts:
        parts.append(f"{' and '.join(counts)} left out")
    if notes.bad:
        parts.append(f"the first: {notes.first[0]}")
    return f" ({'; '.join(parts)})" if parts else ""
