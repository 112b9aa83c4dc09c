"""How a text is corrupted, for an encoder-decoder to restore it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import ceil
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np

from ...core.config import Config, Flag, Fraction, OneOf, Positive, Share
from ...pipelines.base import Ids

MASK = "<mask>"
SENTINEL = "<extra_id_{}>"  # as T5's vocabulary has them


class Restored(NamedTuple):
    """A corrupted text, and what is to be generated from it; neither has a begin or an end token yet."""

    source: Ids
    target: Ids


class Noise(Config):
    """A way to corrupt texts."""

    @abstractmethod
    def room(self, context: int) -> int:
        """The most tokens of a text that is at most so long once it is corrupted, its end token included."""

    @abstractmethod
    def special(self, context: int) -> tuple[str, ...]:
        """The special tokens that stand for what is missing."""

    @abstractmethod
    def corrupted(self, tokens: Ids, inner: Ids, special: Sequence[int], draw: np.random.Generator) -> Restored:
        """A text of two tokens at least; `inner`: where its sentences begin, but for the first."""


class SpanCorruption(Noise):
    """Spans are left out, each with a token in its place that no other span has; the target is what was left out.

        the <extra_id_0> sat on <extra_id_1> .    →    <extra_id_0> cat <extra_id_1> the mat

    Raffel et al. 2020, sec. 3.1.4, with the counts of the authors' code: round(n · density) tokens are left out, in
    round( that / length ) spans; both those and what is between them are random partitions, and the text begins with
    something that stays.
    """

    kind: Literal["spans"] = "spans"
    density: Fraction = 0.15  # share of tokens that are left out
    length: Positive = 3.0  # of a span, on average

    def room(self, context: int) -> int:
        size = max(2, context - 1)
        while self._source(size + 1) <= context:
            size += 1
        return size

    def special(self, context: int) -> tuple[str, ...]:
        return tuple(SENTINEL.format(number) for number in range(self.counts(self.room(context))[1]))

    def counts(self, length: int) -> tuple[int, int]:
        """Tokens that are left out of so many, and in how many spans."""
        out = min(max(round(length * self.density), 1), length - 1)
        return out, min(max(round(out / self.length), 1), length - out)

    def corrupted(self, tokens: Ids, inner: Ids, special: Sequence[int], draw: np.random.Generator) -> Restored:
        out, spans = self.counts(len(tokens))
        kept, missing = _partition(len(tokens) - out, spans, draw), _partition(out, spans, draw)
        cuts = np.cumsum(np.stack([kept, missing], -1).ravel())[:-1]  # kept, missing, kept, missing ...
        parts, marks = np.split(tokens, cuts), [np.array([mark], np.int32) for mark in special[:spans]]
        source = [part for pair in zip(parts[::2], marks, strict=True) for part in pair]
        target = [part for pair in zip(marks, parts[1::2], strict=True) for part in pair]
        return Restored(np.concatenate(source), np.concatenate(target))

    def _source(self, length: int) -> int:
        """Tokens of a corrupted text of so many, its end token included."""
        out, spans = self.counts(length)
        return length - out + spans + 1


class Infilling(Noise):
    """Spans of any length, none too, are replaced by one <mask> each; the target is the whole text.

        sat on <mask> . the <mask> cat <mask>     →    the cat sat on the mat .

    Lewis et al. 2020 (BART): lengths are drawn from a Poisson distribution until `rate` of the tokens are covered, the
    last span being cut to that; with `sentences` the order of the sentences is drawn, too.
    """

    kind: Literal["infill"] = "infill"
    rate: Share = 0.3  # share of tokens that are covered
    length: Positive = 3.0  # of a span, on average
    sentences: Flag = True  # sentences stand in a random order

    def room(self, context: int) -> int:
        return max(2, context - 1)

    def special(self, context: int) -> tuple[str, ...]:
        return (MASK,)

    def corrupted(self, tokens: Ids, inner: Ids, special: Sequence[int], draw: np.random.Generator) -> Restored:
        mixed = tokens
        if self.sentences and len(inner):
            parts = np.split(tokens, inner)
            mixed = np.concatenate([parts[place] for place in draw.permutation(len(parts))])
        lengths = self.lengths(len(tokens), draw)
        before = np.sort(draw.integers(len(tokens) - int(lengths.sum()) + 1, size=len(lengths)))  # tokens that stay
        begin = before + np.cumsum(lengths) - lengths
        covered = np.zeros(len(mixed), bool)
        for first, length in zip(begin.tolist(), lengths.tolist(), strict=True):
            covered[first : first + length] = True
        return Restored(np.insert(mixed[~covered], before, special[0]).astype(np.int32), tokens)

    def lengths(self, size: int, draw: np.random.Generator) -> Ids:
        """Of the spans that cover `rate` of so many tokens, just so; there are no more spans than covered tokens."""
        budget = ceil(size * self.rate)
        if not budget:
            return np.zeros(0, np.int32)
        drawn = draw.poisson(self.length, size=budget)
        while drawn.sum() < budget:
            drawn = np.append(drawn, draw.poisson(self.length, size=budget))
        ends = np.cumsum(drawn)
        last = int(np.argmax(ends >= budget))
        lengths = drawn[: last + 1].copy()
        lengths[last] -= ends[last] - budget
        empty = np.flatnonzero(lengths == 0)[: max(0, len(lengths) - budget)]
        return np.delete(lengths, empty).astype(np.int32)


def _partition(items: int, parts: int, draw: np.random.Generator) -> Ids:
    """So many items in so many parts, none empty; every way to do so is as likely as any other."""
    cuts = np.sort(draw.choice(items - 1, size=parts - 1, replace=False)) + 1 if parts > 1 else np.zeros(0, int)
    return np.diff(np.concatenate([[0], cuts, [items]])).astype(np.int32)


NOISES: tuple[type[Noise], ...] = (SpanCorruption, Infilling)
AnyNoise: TypeAlias = Annotated[Noise, OneOf(lambda: NOISES)]
