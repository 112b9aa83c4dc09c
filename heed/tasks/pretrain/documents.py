"""Encoded texts, end to end, and the windows that objectives are drawn over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from ...core.errors import InputError, counted
from ...pipelines.base import Ids
from ...text import Tokenizer

AT_ONCE = 1000  # texts that are encoded together

# After a mark that ends a sentence, and before a line break: what follows takes its white space along, so that the
# tokens of the sentences are those of the text.
_ENDS = re.compile(r"""[.!?…]+["'”’»)\]]*(?=\s)|[。！？]+[”’」』）]*|(?<=\S)(?=\n)""")

Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


def sentences(text: str) -> list[str]:
    """A text in sentences, by their final marks and by line breaks; together they are the text."""
    cuts = [0, *dict.fromkeys(found.end() for found in _ENDS.finditer(text)), len(text)]
    parts = [text[begin:end] for begin, end in pairwise(cuts) if begin < end]
    return parts if not parts or parts[-1].strip() else [*parts[:-2], "".join(parts[-2:])]


@dataclass(frozen=True, eq=False)
class Documents:
    """Texts one behind the other; each is a document, of which windows are cut, never across two."""

    tokens: Ids
    bounds: Ids  # where each document begins, and the end of the last
    starts: Ids  # where sentences begin
    begins: Flags | None  # whether a word begins at each token; None: nobody asked

    @classmethod
    def of(cls, texts: Iterable[str], tokenizer: Tokenizer, *, cut: bool = False, words: bool = False) -> Documents:
        """Encoded; with `cut` by sentences, with `words` by words, too."""
        pieces, sizes, starts, begins, at = list[Ids](), [0], list[int](), list[bool](), 0
        for some in _in_groups(texts):
            parts = [sentences(text) if cut else [text] for text in some]
            encoded = iter(tokenizer.encode_all([part for each in parts for part in each]))
            for each in parts:
                own = [np.array(next(encoded), np.int32) for _ in each]
                starts += [at + int(end) - len(ids) for ids, end in zip(own, _ends(own), strict=True) if len(ids)]
                document = np.concatenate(own) if own else np.zeros(0, np.int32)
                if not len(document):  # all of it is unknown, and nothing stands for that
                    continue
                begins += tokenizer.words(document) if words else []
                at += len(document)
                pieces.append(document)
                sizes.append(at)
        tokens = np.concatenate(pieces) if pieces else np.zeros(0, np.int32)
        known = np.array(begins, bool) if words else None
        return cls(tokens, np.array(sizes, np.int32), np.array(starts, np.int32), known)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def report(self, room: int) -> str:
        """How much there is."""
        return f"{counted(len(self.tokens), 'token')} of {counted(len(self), 'text')} in windows of at most {room}"

    def windows(self, room: int, first: int = 0) -> list[tuple[int, int]]:
        """Begin and end of windows of at most so many tokens; in documents that are longer, the first has `first`."""
        found = list[tuple[int, int]]()
        for begin, end in pairwise(self.bounds.tolist()):
            cuts = [begin, *range(begin + (first or room), end, room), end] if end - begin > room else [begin, end]
            found += [(left, right) for left, right in pairwise(cuts) if left < right]
        return found

    def inner(self, begin: int, end: int) -> Ids:
        """Where sentences begin within these tokens, but not at the first."""
        low, high = np.searchsorted(self.starts, (begin + 1, end))
        return self.starts[low:high]

    def pairs(self, room: int, draw: np.random.Generator) -> Iterator[tuple[slice, slice, bool]]:
        """Two stretches of at most `room` tokens together, and whether the second follows the first: it does in half.

        Devlin et al. 2019, sec. 3.1. Otherwise it is one of another document (elsewhere in the only one there is), and
        what would have followed begins the next pair. Both are whole sentences, where there are several and short ones.
        """
        for number in range(len(self)):
            at, end = int(self.bounds[number]), int(self.bounds[number + 1])
            while end - at > 1:
                stop = min(at + room, end)
                inner = self.inner(at, stop + 1)
                stop = int(inner[-1]) if stop < end and len(inner) else stop
                inner = inner[inner < stop]
                middle = int(draw.choice(inner)) if len(inner) else at + 1 + int(draw.integers(max(1, stop - at - 1)))
                if stop - at < 2:  # a sentence of one token
                    at = stop
                    continue
                follows = bool(draw.random() < 0.5)
                yield (
                    slice(at, middle),
                    slice(middle, stop) if follows else self._other(number, at, middle, stop, draw),
                    follows,
                )
                at = middle if len(inner) and not follows else stop

    def _other(self, number: int, at: int, middle: int, stop: int, draw: np.random.Generator) -> slice:
        """About as many tokens as from `middle` to `stop`, from where they are not."""
        length = stop - middle
        if len(self) > 1:
            chosen = int(draw.integers(len(self) - 1))
            chosen += chosen >= number
            begin, end = int(self.bounds[chosen]), int(self.bounds[chosen + 1])
            if end - begin <= length:
                return slice(begin, end)
            first = begin + int(draw.integers(end - begin - length + 1))
        else:
            before, after = max(0, at - length + 1), max(0, len(self.tokens) - length - stop + 1)
            if not before + after:
                raise InputError(
                    "the text is too short to tell its next sentence from another one; give more text, a smaller "
                    "task.context, or task.next_sentence=false"
                )
            first = int(draw.integers(before + after))
            first = first if first < before else stop + first - before
            begin = 0 if first < at else stop
        nearest = self.starts[np.searchsorted(self.starts, first, "right") - 1]
        first = max(int(nearest), begin)
        return slice(first, first + length)


def _ends(parts: Sequence[Ids]) -> Ids:
    return np.cumsum([len(part) for part in parts])


def _in_groups(texts: Iterable[str]) -> Iterator[list[str]]:
    group = list[str]()
    for text in texts:
        if text.strip():
            group.append(text)
        if len(group) == AT_ONCE:
            yield group
            group = []
    if group:
        yield group
