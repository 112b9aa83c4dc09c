"""What a source of data is: named splits of examples, each a tuple of texts under named columns."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from ..core.config import Config

Name: TypeAlias = Literal["train", "valid", "test"]
Example: TypeAlias = "tuple[str, ...]"  # one text per column


class Examples(ABC):
    """Examples by number: the same number gives the same example, always."""

    endless: bool = False  # then any number from 0 on is an example, and `len` is how many make a round

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Example: ...

    def __iter__(self) -> Iterator[Example]:
        """One round of them."""
        return (self[index] for index in range(len(self)))

    @abstractmethod
    def report(self) -> str:
        """One line for people: what was read, how many, and what was left out and why."""


class Source(Config):
    """Where examples come from."""

    @abstractmethod
    def split(self, name: Name, columns: tuple[str, ...]) -> Examples:
        """The examples of a split, with a text for each of these columns, in this order.

        A task names the columns it needs: ("source", "target") to translate, ("text",) for a language model.
        """

    @abstractmethod
    def splits(self) -> tuple[Name, ...]:
        """The splits there are."""


NUMBERS = frozenset({"label", "score"})  # columns that may hold numbers, or yes and no, in jsonl and parquet
LISTS = frozenset({"label", "target"})  # columns that may hold several values, in jsonl
EMPTY = frozenset({"label", "heard", "transcript"})  # columns that may be empty: a text with no class, silence
SEVERAL = "\x1e"  # between several values in one cell (ASCII's record separator); no text holds it


def several(cell: str) -> list[str]:
    """The values of a cell."""
    return cell.split(SEVERAL)


def as_text(value: object, role: str) -> object:
    """A value in the words of a cell where the task's column takes it: a number, yes or no, several; else as it is."""
    match value:
        case bool() if role in NUMBERS:
            return str(value).lower()
        case int() | float() if role in NUMBERS:
            return str(value)
        case list() if role in LISTS:
            texts = [text for one in value if isinstance(text := as_text(one, role), str) and SEVERAL not in text]
            return SEVERAL.join(texts) if len(texts) == len(value) else value
    return value


def near(name: str, known: Iterable[str]) -> str:
    """`; did you mean x?` if there is a name like it."""
    close = difflib.get_close_matches(name, sorted(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
