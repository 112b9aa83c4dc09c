"""Probes: synthetic sequences of symbols that show what a mixer can remember. Made on the spot, of any length.

recall     a 1 b 2 c 3 : b -> 2       associative recall: the value of a key seen before (Arora et al. 2023, MQAR)
copy       a b c d : -> a b c d       selective copying of all that was seen
reverse    a b c d : -> d c b a
induction  a b c a -> b               what followed this symbol the last time (Olsson et al. 2022)

Example i follows from the seed, the split and i, so training is endless and no split repeats another's draws.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..core.config import Seed, Size
from ..core.errors import ConfigError, InputError
from .base import Example, Examples, Name, Source

NUMBERS: dict[Name, int] = {"train": 0, "valid": 1, "test": 2}
ASK = ":"  # between what is seen and what is asked

Probe = Literal["recall", "copy", "reverse", "induction"]


class Probes(Source):
    """Sequences of symbols, each with what is to be told of it."""

    kind: Literal["probes"] = "probes"
    probe: Probe = "recall"  # what is asked
    length: Size = 32  # symbols that are seen before anything is asked
    symbols: Size = 32  # different ones there are; of `recall`, as many keys as values
    asked: Size = 4  # keys that are asked for in `recall`
    held: Size = 500  # examples of valid, and of test
    round: Size = 10_000  # examples of a round of training
    seed: Seed = 0

    def splits(self) -> tuple[Name, ...]:
        return ("train", "valid", "test")

    def split(self, name: Name, columns: tuple[str, ...]) -> Examples:
        if columns != ("prompt", "answer"):
            raise InputError(f"probes have a prompt and an answer, not {', '.join(columns)}; use task.kind=recall")
        if self.probe == "recall" and not 2 * self.asked <= self.length <= 2 * self.symbols:
            raise ConfigError(
                f"data.length {self.length} holds {self.length // 2} pairs of a key and a value: there must be "
                f"{self.asked} at least (data.asked), and no more than there are keys, {self.symbols} (data.symbols)"
            )
        return _Made(self, name)


class _Made(Examples):
    def __init__(self, source: Probes, name: Name) -> None:
        self._source, self._name, self.endless = source, name, name == "train"

    def __len__(self) -> int:
        return self._source.round if self.endless else self._source.held

    def __getitem__(self, index: int) -> Example:
        if index < 0 or (index >= len(self) and not self.endless):
            raise IndexError(f"example {index} of {len(self)}")
        draw = np.random.default_rng((self._source.seed, NUMBERS[self._name], index))
        seen, told = _MAKERS[self._source.probe](self._source, draw)
        return " ".join(seen), " ".join(told)

    def report(self) -> str:
        kind = f"{self._source.probe} over {self._source.length} symbols"
        return f"probes: {kind}; endless" if self.endless else f"probes: {kind}; {len(self):,} examples"


def _recall(source: Probes, draw: np.random.Generator) -> tuple[list[str], list[str]]:
    """Keys, each followed by its value; then some of the keys, whose values are to be told, one after the other."""
    pairs = source.length // 2
    keys = [f"k{n}" for n in draw.choice(source.symbols, pairs, replace=False)]
    values = [f"v{n}" for n in draw.choice(source.symbols, pairs)]
    asked = draw.choice(pairs, source.asked, replace=False)
    seen = [symbol for pair in zip(keys, values, strict=True) for symbol in pair]
    return [*seen, ASK, *(keys[place] for place in asked), ASK], [values[place] for place in asked]


def _copy(source: Probes, draw: np.random.Generator) -> tuple[list[str], list[str]]:
    seen = [f"s{n}" for n in draw.choice(source.symbols, source.length)]
    return [*seen, ASK], seen


def _reverse(source: Probes, draw: np.random.Generator) -> tuple[list[str], list[str]]:
    seen, told = _copy(source, draw)
    return seen, told[::-1]


def _induction(source: Probes, draw: np.random.Generator) -> tuple[list[str], list[str]]:
    """One symbol occurs twice, the second time at the end: what followed it is to be told."""
    seen = [f"s{n}" for n in draw.choice(source.symbols - 1, source.length) + 1]
    place = int(draw.integers(source.length - 1))
    seen[place] = "s0"
    return [*seen, "s0"], [seen[place + 1]]


_MAKERS = {"recall": _recall, "copy": _copy, "reverse": _reverse, "induction": _induction}
