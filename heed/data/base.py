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


def near(name: str, known: Iterable[str]) -> str:
    """`; did you mean x?` if there is a name like it."""
    close = difflib.get_close_matches(name, sorted(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
