"""Which items make which batch: rounds of all items, shuffled, cut into batches of similar lengths.

Everything follows from the seed and the place reached, so that a run that goes on sees just the batches it would have
seen without a stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .base import Corpus, Item

MOST = 8  # budgets that one batch may take, where batches hold as many items each


@dataclass(frozen=True)
class Place:
    """The next batch: its round, and its number within the round."""

    round: int = 0
    batch: int = 0


class Feed:
    """Batches without end."""

    def __init__(
        self,
        corpus: Corpus,
        cost: Callable[[Item], int],
        budget: int,
        seed: int,
        place: Place | None = None,
        *,
        even: bool = False,  # as many items in every batch
    ) -> None:
        self._corpus, self._cost, self._budget, self._seed = corpus, cost, budget, seed
        self._cut = evenly if even else bucketed
        self.place = place or Place()
        self._round = self._plan(self.place.round)

    @property
    def batches(self) -> int:
        """How many make this round."""
        return len(self._round)

    def __iter__(self) -> Iterator[list[Item]]:
        return self

    def __next__(self) -> list[Item]:
        if self.place.batch >= len(self._round):
            self.place = Place(self.place.round + 1)
            self._round = self._plan(self.place.round)
        batch = self._round[self.place.batch]
        self.place = Place(self.place.round, self.place.batch + 1)
        return batch

    def _plan(self, number: int) -> list[list[Item]]:
        batches = self._cut(self._corpus.round(number, self._seed), self._cost, self._budget)
        order = np.random.default_rng((self._seed, number, 1)).permutation(len(batches))
        return [batches[place] for place in order]


def bucketed(items: Sequence[Item], cost: Callable[[Item], int], budget: int) -> list[list[Item]]:
    """Items of similar lengths together, as many as fit the budget when padded to the longest of them."""
    batches, batch = list[list[Item]](), list[Item]()
    for item in _by_length(items, cost):  # ascending, so the last one is the longest
        if batch and (len(batch) + 1) * cost(item) > budget:
            batches.append(batch)
            batch = []
        batch.append(item)
    return [*batches, batch] if batch else batches


def evenly(items: Sequence[Item], cost: Callable[[Item], int], budget: int) -> list[list[Item]]:
    """Items of similar lengths together, in each batch as many as fit the budget on average.

    Where an item has one label whatever its length, this is fair: a loss is a mean over labels, so that in batches of
    as many tokens a long text would count several times what a short one does. A batch takes at most `MOST` budgets.
    """
    if not items:
        return []
    count = max(1, round(budget * len(items) / sum(map(cost, items))))
    batches, ordered = list[list[Item]](), _by_length(items, cost)
    for start in range(0, len(ordered), count):
        batches += bucketed(ordered[start : start + count], cost, MOST * budget)
    return batches


def _by_length(items: Sequence[Item], cost: Callable[[Item], int]) -> list[Item]:
    return sorted(items, key=lambda item: (cost(item), *_sizes(item)))


def _sizes(item: Item) -> Iterator[int]:
    """The lengths of its sequences; what else it holds has none."""
    return (len(part) for part in item if isinstance(part, np.ndarray))
