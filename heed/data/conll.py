"""Sentences of words with a label each: a word per line, a blank line between sentences (CoNLL).

Cells stand between tabs if a line has one, else between spaces; `data.columns` says which are the word and the label,
the first two if nothing is said. A line that begins with # and has not the cells of the others is a comment, and a line
-DOCSTART- begins a document. In CoNLL-U the first cell counts the words: 2-3 and 4.1 are no words of their own.

An example holds the words in one cell and the labels in another, between tabs, which neither can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..core.errors import InputError, counted
from .base import Example
from .columns import SAMPLE, Layout
from .rows import BadRow, Notes, lines, must_be_text, objects

SENTENCE = ("words", "labels")  # what a task that labels words asks for
SEPARATOR = "\t"
DOCUMENT = "-DOCSTART-"
_NO_WORD = re.compile(r"\d+[-.]\d+")


def listed(cell: str) -> list[str]:
    """The words, or the labels, of a cell."""
    return cell.split(SEPARATOR)


def lists(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    """Sentences of a jsonl file, whose objects have a list of words and a list of labels."""
    words, labels = layout.columns or layout.wanted

    def made(row: dict[str, Any]) -> Example:
        found = [_texts(row, str(name)) for name in (words, labels)]
        if len(found[0]) != len(found[1]):
            raise BadRow(f"has {counted(len(found[0]), 'word')} and {counted(len(found[1]), 'label')}")
        return tuple(SEPARATOR.join(cells) for cells in found)

    return objects(path, notes, made)


def _texts(row: dict[str, Any], name: str) -> list[str]:
    value = row.get(name)
    if not isinstance(value, list) or not value:
        given = "nothing" if value is None else repr(value)[:30]
        raise BadRow(f'"{name}" is {given}; needed is a list of texts, one for each word')
    return [_cell(must_be_text(one, f'"{name}"[{place}]')) for place, one in enumerate(value)]


def _cell(text: str) -> str:
    if SEPARATOR in text:
        raise BadRow(f"{text!r} holds a tab, which no word and no label does")
    return text.strip()


def conll(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    """The sentences of a file."""
    numbered = layout.format == "conllu"
    chosen = _chosen(path, layout)
    every = lines(path, notes)
    first = list(islice(every, SAMPLE))
    sample = next((line for _, line in first if line is not None and _is_data(line)), None)
    if sample is None:
        return
    split = _by_tabs if "\t" in sample else str.split
    width = len(split(sample))
    _must_have(path, layout, width, chosen)
    if layout.columns is None and not numbered and width > len(SENTENCE):
        notes.said[f"column 1 of 0 to {width - 1} is the label; data.columns=[0, {width - 1}] takes another"] = None
    held, comments = _Sentence(), 0
    for number, line in chain(first, every):
        cells = None if line is None else split(line)
        if cells is not None and (not "".join(cells).strip() or cells[0] == DOCUMENT):
            yield from held.ended()
            held = _Sentence()
        elif cells is not None and cells[0].startswith("#") and len(cells) != width:
            comments += 1
        elif cells is None or not (numbered and _NO_WORD.fullmatch(cells[0])):
            problem = held.add(number, cells, width, chosen)
            notes.budget.line(held.size, held.begun)  # a file without blank lines is one sentence
            if problem is not None:
                notes.problem(path, number, problem)
    yield from held.ended()
    if comments:
        notes.said[f"{counted(comments, 'comment')} passed over"] = None


class _Sentence:
    """The words so far."""

    def __init__(self) -> None:
        self.words, self.labels = list[str](), list[str]()
        self.begun, self.size, self.broken = 0, 0, False

    def add(self, number: int, cells: Sequence[str] | None, width: int, chosen: tuple[int, int]) -> str | None:
        """One word more, of this line, or what is wrong with it; what is no text was told already."""
        self.begun = self.begun or number
        if cells is None:
            self.broken = True
            return None
        word, label = (cells[column].strip() if len(cells) == width else "" for column in chosen)
        if not word or not label:
            self.broken = True
            if len(cells) != width:
                return f"{counted(len(cells), 'column')} where the first word has {width}"
            return f"column {chosen[0] if not word else chosen[1]} is empty"
        self.words.append(word)
        self.labels.append(label)
        self.size += len(word) + len(label) + 2
        return None

    def ended(self) -> Iterator[Example]:
        """The sentence, if there is one and nothing in it is wrong."""
        if self.words and not self.broken:
            yield SEPARATOR.join(self.words), SEPARATOR.join(self.labels)


def _is_data(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(("#", DOCUMENT))


def _by_tabs(line: str) -> list[str]:
    return line.removesuffix("\n").split("\t")


def _chosen(path: Path, layout: Layout) -> tuple[int, int]:
    columns = layout.columns or ((1, 3) if layout.format == "conllu" else (0, 1))
    word, label = columns
    if not isinstance(word, int) or not isinstance(label, int):
        raise InputError(f"{path}: columns of {layout.format} have numbers; set data.columns to two of them, from 0 on")
    return word, label


def _must_have(path: Path, layout: Layout, width: int, chosen: tuple[int, int]) -> None:
    if max(chosen) >= width:
        given = "the word and its label" if layout.columns is None else f"those of data.columns={list(chosen)}"
        raise InputError(
            f"{path} has {counted(width, 'column')}; needed are {given}: a word per line, its label after a tab or a "
            "space, and a blank line between sentences"
        )
