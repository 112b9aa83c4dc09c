"""Which items make which batch: rounds of all items, shuffled, cut into batches of similar lengths.

Everything follows from the seed and the place reached, so that a run that goes on sees just the batches it would have
seen without a stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .base import Corpus, Item


@dataclass(frozen=True)
class Place:
    """The next batch: its round, and its number within the round."""

    round: int = 0
    batch: int = 0


class Feed:
    """Batches without end."""

    def __init__(
        self, corpus: Corpus, cost: Callable[[Item], int], budget: int, seed: int, place: Place | None = None
    ) -> None:
        self._corpus, self._cost, self._budget, self._seed = corpus, cost, budget, seed
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
        batches = bucketed(self._corpus.round(number, self._seed), self._cost, self._budget)
        order = np.random.default_rng((self._seed, number, 1)).permutation(len(batches))
        return [batches[place] for place in order]


def bucketed(items: Sequence[Item], cost: Callable[[Item], int], budget: int) -> list[list[Item]]:
    """Items of similar lengths together, as many as fit the budget when padded to the longest of them."""
    lengths = {id(item): (cost(item), *_sizes(item)) for item in items}
    batches, batch = list[list[Item]](), list[Item]()
    for item in sorted(items, key=lambda item: lengths[id(item)]):  # ascending, so the last one is the longest
        if batch and (len(batch) + 1) * lengths[id(item)][0] > budget:
            batches.append(batch)
            batch = []
        batch.append(item)
    return [*batches, batch] if batch else batches


def _sizes(item: Item) -> Iterator[int]:
    """The lengths of its sequences; what else it holds has none."""
    return (len(part) for part in item if isinstance(part, np.ndarray))
