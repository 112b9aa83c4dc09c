"""Which columns of a file are wanted, and whether the first line of a csv or tsv file holds their names.

A header that is taken for data teaches a model to translate "source" into "target", and says nothing. So it is looked
for, and a file without one must not lose a line: in doubt the line is data.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ..core.errors import InputError, counted
from .base import near

Format: TypeAlias = Literal["tsv", "csv", "jsonl", "parquet", "text", "conll", "conllu", "squad"]


ALIASES = {  # what else a column of the task's is called in files, the first that is there
    "source": ("source", "src", "text", "document", "article", "abstract"),
    "target": ("target", "tgt", "trg", "summary", "summaries", "highlights"),
    "text": ("text", "sentence", "sentence1", "text1", "review", "content", "premise", "caption", "transcript"),
    "pair": ("pair", "sentence2", "text2", "hypothesis"),
    "label": ("label", "labels", "class", "category", "sentiment"),
    "score": ("score", "similarity", "similarity_score", "label"),
    "image": ("image", "path", "file", "filename", "file_name", "img", "image_path"),
    "transcript": ("transcript", "text", "transcription", "sentence"),
    "heard": ("transcript", "text", "transcription", "sentence", "label", "labels", "class", "category"),
    "sound": ("sound", "audio", "path", "file", "filename", "file_name", "wav", "clip", "audio_path"),
}
NUMBERS = frozenset({"", "id", "idx", "index", "nr", "no", "unnamed: 0"})  # columns that only count the rows

_ROLES = """source src target tgt trg text texts label labels class category sentence sentence1 sentence2 sentence_1
sentence_2 question answer answers input output inputs outputs prompt completion response instruction context query
passage document summary title body content description premise hypothesis review rating stars score original
translation translated word words token tokens tag tags lang language url date author name key value reference
references references_1 abstract article highlights dialogue message comment tweet line id idx index path file filename
file_name image img sound audio wav caption transcript"""
_LANGUAGES = """english german french spanish italian portuguese dutch swedish danish norwegian finnish polish czech
russian ukrainian greek turkish arabic hebrew hindi bengali chinese mandarin japanese korean vietnamese thai indonesian
deutsch francais français espanol español italiano"""
_CODES = """
en de fr es it pt nl sv da no nb nn fi pl cs sk ru uk el tr ar he fa hi bn ur ta zh ja ko vi th id ms hu ro bg hr
sr sl et lv lt is ga eu ca gl la eo sw eng deu ger fra fre spa ita por nld rus zho chi jpn kor"""

ROLES = frozenset(_ROLES.split()) | frozenset(_LANGUAGES.split())
CODES = frozenset(_CODES.split())

SAMPLE = 200  # rows that the first line is compared with
ENOUGH = 5  # rows that show of what kind a column is
PHRASE = 5  # characters of a text that is written without spaces
_NAME = re.compile(r"[^\W\d][\w .:/-]{0,39}")
_CODE = re.compile(r"([a-z]{2,3})([_-][a-z]{2,4})?")


@dataclass(frozen=True)
class Layout:
    """How a file is laid out, and which of its columns are wanted."""

    format: Format
    wanted: tuple[str, ...]  # the task's names
    columns: tuple[str | int, ...] | None  # the file's names or numbers for them
    header: bool | Literal["auto"]
    lines: bool

    def named(self, rows: Sequence[Sequence[str]]) -> bool:
        """Whether the first of these rows of a tsv or csv file holds names."""
        if self.header is True or any(isinstance(column, str) for column in self.columns or ()):
            return True
        return self.header == "auto" and is_header(rows[0], rows[1:], self.wanted)


@dataclass(frozen=True)
class Columns:
    """The columns of a tsv or csv file: their names, if its first line holds them, and which are wanted."""

    path: Path
    line: int  # the first that is not blank
    width: int
    names: tuple[str, ...] | None
    chosen: tuple[int, ...]

    def must_match(self, other: Columns) -> None:
        """Rows of several files are appended, so their columns must be the same."""
        if (self.width, self.names) != (other.width, other.names):
            raise InputError(
                f"{self.path} has other columns than {other.path} ({self._told()}; {other._told()}); "
                "rows of several files need the same columns: set data.columns, or give files that match"
            )

    def _told(self) -> str:
        return counted(self.width, "column") + (f": {', '.join(self.names)}" if self.names else " without names")


# --- a header ---


def is_header(first: Sequence[str], rest: Sequence[Sequence[str]], wanted: Sequence[str]) -> bool:
    """Whether the first row names columns, judged by its own cells and by the rows after it."""
    cells = [cell.strip().casefold() for cell in first]
    if len(set(cells)) < len(cells) or not rest:
        return False
    columns = [[row[place].strip().casefold() for row in rest if place < len(row)] for place in range(len(cells))]
    if any(cell in column for cell, column in zip(cells, columns, strict=True)):
        return False  # what stands there again is data
    if None not in places(cells, wanted):
        return True
    if all(map(_names, cells)) and any(map(_phrases, columns)):  # above single words they may be words themselves
        return True
    return all(map(_NAME.fullmatch, cells)) and any(map(_numbers, columns))


def places(names: Sequence[str], wanted: Sequence[str]) -> list[int | None]:
    """Where each wanted column is by its name, None where it is not."""
    folded = [name.strip().casefold() for name in names]
    return [
        next((folded.index(alias) for alias in ALIASES.get(one, (one,)) if folded.count(alias) == 1), None)
        for one in wanted
    ]


def called(names: Collection[str], wanted: str) -> str:
    """What an object calls a column of the task's; by its own name, if it has none of them."""
    return next((alias for alias in ALIASES.get(wanted, (wanted,)) if alias in names), wanted)


def in_order(names: Sequence[str], count: int) -> list[int]:
    """The first so many columns that do more than count the rows."""
    real = [place for place, name in enumerate(names) if name.strip().casefold() not in NUMBERS]
    return (real if len(real) >= count else list(range(len(names))))[:count]


def _names(cell: str) -> bool:
    """Whether a cell is a usual name of a column, or a language."""
    code = _CODE.fullmatch(cell)
    return cell in ROLES or (code is not None and code[1] in CODES)


def _phrases(column: Sequence[str]) -> bool:
    """Whether most cells are more than a word."""
    long = sum(" " in cell or (not cell.isascii() and len(cell) >= PHRASE) for cell in column)
    return 2 * long > len(column)


def _numbers(column: Sequence[str]) -> bool:
    return len(column) >= ENOUGH and all(map(_is_number, column))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


# --- which columns ---


def columns_of(path: Path, layout: Layout, first: Sequence[tuple[int, list[str]]]) -> Columns:
    line, row = first[0]
    names = tuple(name.strip() for name in row) if layout.named([cells for _, cells in first]) else None
    guessed = names is not None and layout.header == "auto" and layout.columns is None
    chosen = _found(path, layout, names or ()) if guessed else chosen_of(path, layout, names, len(row))
    return Columns(path, line, len(row), names, tuple(chosen))


def _found(path: Path, layout: Layout, names: Sequence[str]) -> list[int]:
    """The wanted columns under names that were found: by those names, or in their order if no name is the task's."""
    by_name = places(names, layout.wanted)
    known = [place for place in by_name if place is not None]
    if len(known) == len(layout.wanted):
        return known
    if known:
        missing = [one for one, place in zip(layout.wanted, by_name, strict=True) if place is None]
        raise InputError(
            f"{path} begins with names of columns ({', '.join(names)}), and none is {' or '.join(missing)}; set "
            f"data.columns to the names for {', '.join(layout.wanted)}, or data.header=false if that line is data"
        )
    return _enough(path, layout, in_order(names, len(layout.wanted)), len(names))


def chosen_of(path: Path, layout: Layout, names: Sequence[str] | None, width: int) -> list[int]:
    """The number of each wanted column."""
    columns = layout.columns
    if columns is None:
        columns = tuple(range(len(layout.wanted))) if names is None else layout.wanted
    chosen = [column if isinstance(column, int) else _index(path, column, names or ()) for column in columns]
    return _enough(path, layout, chosen, width)


def _enough(path: Path, layout: Layout, chosen: list[int], width: int) -> list[int]:
    if len(chosen) < len(layout.wanted) or max(chosen) >= width:
        asked = "" if layout.columns is None else f"; data.columns asks for column {max(chosen)}, counted from 0"
        raise InputError(
            f"{path} has {counted(width, 'column')}; needed is one for each of {', '.join(layout.wanted)}{asked}"
        )
    return chosen


def _index(path: Path, name: str, names: Sequence[str]) -> int:
    if name not in names:
        there = f"{', '.join(names)}{near(name, names) or '.'}"
        raise InputError(f"{path} has no column {name!r}; it has {there} Set data.columns to choose")
    if names.count(name) > 1:
        raise InputError(f"{path} has {names.count(name)} columns {name!r}; set data.columns to numbers to choose")
    return names.index(name)
