"""What people look at beside metrics of classes: which are taken for which, and the worst mistakes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..labels.scores import Numbers, single_class
from ..metrics import Metrics

MOST_SHOWN = 30  # classes, more than which fill no screen: then pairs that are confused are told instead
PAIRS = 10
MISTAKES = 48  # that are kept, the worst first
LONGEST = 12  # characters of the name of a class


@dataclass(frozen=True)
class Mistake:
    """An example whose class the model got wrong."""

    cell: str  # where it lies
    wanted: str
    found: str
    probability: float  # of what was found
    right: float  # of what was wanted


class Shown(dict[str, "float | str"], ABC):
    """Metrics, and a table of what was right and wrong beside them."""

    @abstractmethod
    def table(self) -> str:
        """What people look at below the metrics; nothing, if there is nothing to see."""


class Judged(Shown):
    """Metrics of a classifier; with which class was taken for which, and its worst mistakes."""

    classes: tuple[str, ...] = ()
    confusion: Numbers = np.zeros((0, 0), np.int64)  # [wanted, found]
    mistakes: tuple[Mistake, ...] = ()
    cells: tuple[str, ...] = ()  # where the examples lie

    @classmethod
    def of(cls, cells: Sequence[str], wanted: Numbers, probability: Numbers, classes: Sequence[str]) -> Self:
        """Of the probabilities of each class. [examples], [examples, classes]"""
        found = probability.argmax(1)
        judged = cls(single_class(wanted, found, classes))
        judged.classes, judged.cells = tuple(classes), tuple(cells)
        judged.confusion = np.zeros((len(classes), len(classes)), np.int64)
        np.add.at(judged.confusion, (wanted, found), 1)
        rows = np.arange(len(wanted))
        loss = -np.log(np.maximum(probability[rows, wanted], 1e-30))
        worst = sorted(np.flatnonzero(wanted != found).tolist(), key=lambda row: -loss[row])[:MISTAKES]
        judged.mistakes = tuple(
            Mistake(
                cells[row],
                classes[wanted[row]],
                classes[found[row]],
                float(probability[row, found[row]]),
                float(probability[row, wanted[row]]),
            )
            for row in worst
        )
        return judged

    def with_metrics(self, before: Metrics, after: Metrics) -> Self:
        """With these metrics around its own."""
        own = dict(self)
        self.clear()
        self.update({**before, **own, **after})
        return self

    def table(self) -> str:
        """Which class was taken for which: a row for each class that is right, a column for each that was said."""
        if len(self.classes) > MOST_SHOWN:
            return self._pairs()
        names = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in self.classes]
        rows = [["", *names], *([name, *map(_count, row)] for name, row in zip(names, self.confusion, strict=True))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]).rstrip() for cells in rows
        )
        return "\n".join(["what is right (rows), what was said (columns):", *lines])

    def _pairs(self) -> str:
        """Of many classes: those that are confused most."""
        wrong = self.confusion - np.diag(np.diag(self.confusion))
        order: Iterable[Any] = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
        places = [divmod(int(place), len(self.classes)) for place in order]
        told = [f"{wrong[a, b]:,} × {self.classes[a]} taken for {self.classes[b]}" for a, b in places if wrong[a, b]]
        return "\n".join(["confused most often:", *told])


def _count(number: int) -> str:
    return f"{number:,}" if number else "·"
