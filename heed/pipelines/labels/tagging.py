"""Labels of words, and the entities that they spell by the schemes of IOB2 and IOBES."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from ...core.errors import InputError
from ...text.alignment import Spanned, joined
from ..results import Prediction, Response

Scheme: TypeAlias = Literal["iob2", "iobes"]

OUTSIDE = "O"
_IOB2, _IOBES = re.compile(r"O|[BI]-.+"), re.compile(r"O|[BIES]-.+")


def scheme_of(labels: Iterable[str]) -> Scheme | None:
    """The scheme that labels look like; None if they are no parts of entities, such as parts of speech."""
    names = list(labels)
    if not any(name.startswith(("B-", "S-")) for name in names):
        return None
    if all(map(_IOB2.fullmatch, names)):
        return "iob2"
    return "iobes" if all(map(_IOBES.fullmatch, names)) else None


class Chunk(NamedTuple):
    """Some words in a row, of one type."""

    type: str
    first: int
    end: int  # the word after the last


def chunks(labels: Sequence[str], scheme: Scheme) -> Iterator[Chunk]:
    """The entities that labels spell, strictly: what does not begin and go on as the scheme says is none."""
    begun: Chunk | None = None
    for place, label in enumerate([*labels, OUTSIDE]):
        mark, _, kind = label.partition("-")
        goes_on = begun is not None and mark in "IE" and kind == begun.type and label != OUTSIDE
        if begun is not None and goes_on:
            begun = begun._replace(end=place + 1)
            if mark == "E":
                yield begun
                begun = None
            continue
        if begun is not None and scheme == "iob2":
            yield begun
        begun = Chunk(kind, place, place + 1) if mark == "B" else None
        if mark == "S":
            yield Chunk(kind, place, place + 1)


@dataclass(frozen=True)
class Entity:
    """Words that name something: their text, its type, where they stand, and the mean probability of their labels."""

    text: str
    label: str
    start: int  # the first character, in the text
    end: int  # the one after the last
    words: tuple[int, int]  # the first word, and the one after the last
    probability: float

    def data(self) -> dict[str, Any]:
        """For machines."""
        place = {"start": self.start, "end": self.end, "words": list(self.words)}
        return {"text": self.text, "label": self.label, **place, "p": self.probability}


class TaggedWords(list[tuple[str, Prediction]]):
    """The words of a text, each with its most probable label; where labels are parts of entities, those, too.

    `text`: what the places of `entities` are about. Words that came in a list stand in it one after the other.
    """

    def __init__(self, given: Spanned, labels: Sequence[Prediction], scheme: Scheme | None) -> None:
        super().__init__(zip(given.words, labels, strict=True))
        self.text, self.spans, self.scheme = given.text, given.spans, scheme

    @property
    def labels(self) -> list[str]:
        return [found.label for _, found in self]

    @property
    def entities(self) -> list[Entity]:
        """What the labels spell, strictly."""
        if self.scheme is None:
            return []
        return [self._entity(chunk) for chunk in chunks(self.labels, self.scheme)]

    def _entity(self, chunk: Chunk) -> Entity:
        begin, end = self.spans[chunk.first][0], self.spans[chunk.end - 1][1]
        each = [found.probability for _, found in self[chunk.first : chunk.end]]
        return Entity(self.text[begin:end], chunk.type, begin, end, (chunk.first, chunk.end), sum(each) / len(each))

    def told(self) -> Response:
        """For people: a word and its label on a line."""
        lines = "\n".join(f"{word}\t{found.label}\t{found.told().strip()}" for word, found in self)
        data: Mapping[str, Any] = {"words": [{"word": word, **found.data()} for word, found in self]}
        return Response(lines, data if self.scheme is None else {**data, "entities": [e.data() for e in self.entities]})


def sentences(words: object) -> tuple[bool, list[Spanned]]:
    """Whether it is one sentence, and all of them: words in a list, or lists of words."""
    if not isinstance(words, list | tuple):
        raise InputError(f"words are a list of texts, or of such lists, not {type(words).__name__}")
    one = all(isinstance(word, str) for word in words) and bool(words)
    if not one and not all(isinstance(some, list | tuple) for some in words):
        raise InputError("words are a list of texts, or of such lists, and not both")
    return one, [joined(words)] if one else [joined(some) for some in words]
