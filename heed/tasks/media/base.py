"""Tasks that learn from files: what an item is before and after it is loaded, and how the items of a split are found.

A corpus holds where files lie and what is told of them. `Task.fetch` makes numbers of one: in this process or in
another one (`loader.py`), always the same, since what is drawn for it follows from its own seed, round and number.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from pydantic import BeforeValidator
from torch import Tensor

from ...core.config import OneOf
from ...core.contract import Where
from ...core.errors import HeedError, InputError, counted
from ...core.stamps import Span
from ...data.base import Example, Examples
from ...data.media.arrays import Member, member, pixels
from ...media.augment import AUGMENTS, Augment, OfPair, drawing
from ...pipelines.base import Padded
from ..base import Corpus, Item, Task, some

if TYPE_CHECKING:
    from ...pipelines.base import Ids
    from ..metrics import Metrics

NAMED = 3  # files that could not be read and are named
MOST_UNREADABLE = 0.5  # of the files of a split: more are no accident
TOGETHER = 4  # files that are looked into at a time
ANY_CLASS = 20  # classes whose sizes are told one by one


def _several(value: object) -> object:
    return (value,) if isinstance(value, Augment | dict) else value


AnyAugment: TypeAlias = Annotated[Augment, OneOf(lambda: AUGMENTS)]
SomeAugments: TypeAlias = Annotated[tuple[AnyAugment, ...], BeforeValidator(_several)]


class Draw(NamedTuple):
    """What random numbers of one item in one round follow from."""

    seed: int
    round: int
    place: int  # of the item in the data

    @property
    def generator(self) -> np.random.Generator:
        return drawing(*self)


class Sample(NamedTuple):
    """An item that is not loaded yet: where its file lies, and what is told of it."""

    cell: str  # the path of a file, or an image within one (`data/media/arrays.py`)
    label: tuple[int, ...]  # the number of its class, or the ids of a text
    length: int = 1  # what it takes in a batch
    draw: Draw | None = None  # None: nothing is drawn, as in evaluations
    other: Sample | None = None  # what it is mixed with
    share: float = 1.0  # how much of it is left then


class Loaded(NamedTuple):
    """An item that is loaded."""

    numbers: np.ndarray[Any, np.dtype[np.float32]]  # [C, H, W] of an image, [T, channels] of a sound
    label: Ids
    other: Ids | None = None  # what the other is that it was mixed with
    share: float = 1.0


class Pixels(Padded):
    """Images of one size side by side, [B, C, H, W], without padding; where their patches stand, the model says."""

    @classmethod
    def of_images(cls, images: Sequence[np.ndarray[Any, np.dtype[np.float32]]]) -> Self:
        return cls(torch.from_numpy(np.stack(images)), Where.run(len(images), 1))


class Frames(Padded):
    """Sounds side by side, padded at their ends: frames of numbers, [B, T, channels], or bare samples [B, T]."""

    @classmethod
    def of_sounds(cls, sounds: Sequence[np.ndarray[Any, np.dtype[np.float32]]]) -> Self:
        lengths = [len(sound) for sound in sounds]
        width = max(lengths)
        numbers = np.zeros((len(sounds), width, *sounds[0].shape[1:]), np.float32)
        for row, sound in enumerate(sounds):
            numbers[row, : len(sound)] = sound
        if min(lengths) == width:
            return cls(torch.from_numpy(numbers), Where.run(len(sounds), width))
        where = Where.ragged(lengths)
        where.known(Span(0, width - 1, run=True, padded=True))
        return cls(torch.from_numpy(numbers), where)


class MediaTask(Task):
    """A task whose examples are files, with what is told of each."""

    wordless: ClassVar[bool] = True
    loads: ClassVar[bool] = True
    takes: ClassVar[type[Augment]]  # what kind of augmentations it takes, beside those of pairs

    augment: SomeAugments = ()  # how examples are changed while learning, in this order; none in evaluations
    check: Literal["whole", "header"] = "whole"  # how far files are looked into before the training begins

    def augments(self, kind: type[Any]) -> tuple[Any, ...]:
        """Those of a kind, which may be an abstract one."""
        return tuple(one for one in self.augment if isinstance(one, kind))

    @cached_property
    def pairing(self) -> OfPair | None:
        """What mixes two examples, if anything does."""
        return next(iter(self.augments(OfPair)), None)

    def must_take(self) -> None:
        """Raise if an augmentation is of another kind of example."""
        for one in self.augment:
            if not isinstance(one, self.takes | OfPair):
                known = ", ".join(
                    name for name, kind in AUGMENTS.named.items() if issubclass(kind, self.takes | OfPair)
                )
                raise InputError(f"augment: {one.dump()['kind']} is nothing for {self.unit}s; they take {known}")

    @abstractmethod
    def decoded(self, cell: str, draw: np.random.Generator | None) -> Tensor:
        """One file as numbers, augmented by what is drawn; [C, H, W] of an image, [T, channels] of a sound."""

    @abstractmethod
    def looked(self, cell: str) -> int:
        """Raise unless a file can be decoded, as far as `check` looks; what it takes in a batch."""

    def fetch(self, item: Item) -> Item:
        if not isinstance(item, Sample):
            return item
        draw = None if item.draw is None else item.draw.generator
        numbers = self.decoded(item.cell, draw)
        other, pairing = item.other, self.pairing
        if other is None or pairing is None:
            return Loaded(numbers.numpy(), _ids(item))
        beside = self.decoded(other.cell, None if other.draw is None else other.draw.generator)
        mixed = pairing.mixed(numbers, beside, item.share)
        return Loaded(mixed.numpy(), _ids(item), _ids(other), item.share)

    def loaded(self, items: Sequence[Item]) -> list[Loaded]:
        """The items, all of them loaded."""
        every = (self.fetch(item) for item in items)
        return [item for item in every if isinstance(item, Loaded)]

    def cost(self, item: Item) -> int:
        return item.length if isinstance(item, Sample) else 1

    def seen(self, examples: Examples, labels: Callable[[Example], Ids]) -> MediaCorpus:
        """The corpus of these examples, without those whose files cannot be decoded."""
        self.must_take()
        kept, unreadable = readable(list(examples), self.looked)
        samples = [Sample(row[0], tuple(labels(row).tolist()), length) for row, length in kept]
        return MediaCorpus(samples, self.unit, unreadable, self.pairing)


def _ids(sample: Sample) -> Ids:
    return np.array(sample.label, np.int32)


class Unreadable(NamedTuple):
    """Files that could not be decoded."""

    total: int = 0
    first: tuple[str, ...] = ()

    def metrics(self) -> Metrics:
        """For a table, if there are some."""
        return {"unreadable": self.total} if self.total else {}

    def told(self) -> str:
        more = f", and {self.total - len(self.first):,} more" if self.total > len(self.first) else ""
        return f"{counted(self.total, 'file')} left out, which cannot be read: {'; '.join(self.first)}{more}"


NONE = Unreadable()


class MediaCorpus(Corpus):
    """Where the files of a split lie and what is told of each; shuffled, and drawn anew, in every round."""

    def __init__(
        self, samples: Sequence[Sample], unit: str, unreadable: Unreadable = NONE, pairing: OfPair | None = None
    ) -> None:
        self.samples, self._unit, self.unreadable, self._pairing = list(samples), unit, unreadable, pairing
        some(list(self.samples), self.report())

    def round(self, number: int, seed: int) -> list[Item]:
        order = np.random.default_rng((seed, number, 0)).permutation(len(self.samples))
        return [self._drawn(int(place), Draw(seed, number, int(place))) for place in order]

    def _drawn(self, place: int, draw: Draw) -> Sample:
        """An example as it is in one round."""
        sample = self.samples[place]._replace(draw=draw)
        if self._pairing is None:
            return sample
        numbers = np.random.default_rng((*draw[:2], 2, place))
        share = self._pairing.share(numbers)
        if share == 1.0:
            return sample
        at = int(numbers.integers(len(self.samples)))
        other = self.samples[at]._replace(draw=draw._replace(place=at))
        return sample._replace(other=other, share=share)

    def once(self) -> list[Item]:
        return list(self.samples)

    def report(self) -> str:
        told = counted(len(self.samples), self._unit)
        return f"{told}; {self.unreadable.told()}" if self.unreadable.total else told


def readable(rows: Sequence[Example], look: Callable[[str], int]) -> tuple[list[tuple[Example, int]], Unreadable]:
    """The examples whose files can be decoded, each with what it takes in a batch; and what of the others is told."""
    with ThreadPoolExecutor(min(TOGETHER, os.cpu_count() or 1)) as pool:
        found = list(pool.map(lambda row: _tried(look, row[0]), rows, chunksize=64))
    kept = [(row, length) for row, length in zip(rows, found, strict=True) if isinstance(length, int)]
    wrong = [told for told in found if isinstance(told, str)]
    unreadable = Unreadable(len(wrong), tuple(wrong[:NAMED]))
    if len(wrong) > MOST_UNREADABLE * len(rows):
        raise InputError(f"of {counted(len(rows), 'file')}, {unreadable.told()}")
    return kept, unreadable


def _tried(look: Callable[[str], int], cell: str) -> int | str:
    try:
        return look(cell)
    except HeedError as error:
        return str(error)


def place_of(cell: str) -> Path | np.ndarray[Any, Any]:
    """What a decoder is given: the path of a file, or the pixels of an image within one."""
    which = member(cell)
    return Path(cell) if which is None else pixels(which)


def name_of(cell: str) -> str:
    """A file for people."""
    which: Member | None = member(cell)
    return cell if which is None else str(which)


def balance(names: Sequence[str]) -> str:
    """How many examples each class has."""
    counts = Counter(names).most_common()
    if len(counts) <= ANY_CLASS:
        return ", ".join(f"{name} {count:,}" for name, count in counts)
    (most, often), (least, seldom) = counts[0], counts[-1]
    return f"{len(counts):,} classes, from {seldom:,} ({least}) to {often:,} ({most})"
