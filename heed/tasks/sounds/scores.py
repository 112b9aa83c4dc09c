"""Error rates of transcripts, as jiwer counts them, in percent; and which transcripts are the worst."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self
from unicodedata import normalize

from ...core.errors import MissingExtra
from ..media.judged import Shown
from ..metrics import Metrics

MISTAKES = 48  # that are kept, the worst first
TOLD = 5  # of them that people are told at once


class Misheard(NamedTuple):
    """What was heard where something else was said."""

    cell: str  # where the sound lies
    wanted: str
    found: str
    errors: int  # characters


class Heard(Shown):
    """Error rates of transcripts, and the worst of them."""

    mistakes: tuple[Misheard, ...] = ()

    @classmethod
    def of(cls, cells: Sequence[str], found: Sequence[str], wanted: Sequence[str]) -> Self:
        heard = cls(error_rates(found, wanted))
        heard.mistakes = tuple(worst(cells, found, wanted)[:MISTAKES])
        return heard

    def with_metrics(self, before: Metrics, after: Metrics) -> Self:
        """With these metrics around its own."""
        own = dict(self)
        self.clear()
        self.update({**before, **own, **after})
        return self

    def table(self) -> str:
        told = [f"  {Path(one.cell).name}: {one.wanted!r} heard as {one.found!r}" for one in self.mistakes[:TOLD]]
        return "\n".join(["the worst transcripts:", *told]) if told else ""


def error_rates(found: Sequence[str], wanted: Sequence[str]) -> Metrics:
    """(substitutions + insertions + deletions) / words or characters of what was said, over all transcripts."""
    jiwer = must_have_jiwer()
    found, wanted = ([" ".join(normalize("NFC", text).split()) for text in texts] for texts in (found, wanted))
    words, characters = jiwer.process_words(wanted, found), jiwer.process_characters(wanted, found)
    equal = sum(a == b for a, b in zip(found, wanted, strict=True))
    return {
        "wer": 100 * float(words.wer),
        "cer": 100 * float(characters.cer),
        "exact": 100 * equal / len(wanted),
        "words": words.hits + words.substitutions + words.deletions,
        "characters": characters.hits + characters.substitutions + characters.deletions,
    }


def worst(cells: Sequence[str], found: Sequence[str], wanted: Sequence[str]) -> list[Misheard]:
    """All that are wrong, those with most errors first; of equals the shorter one."""
    jiwer, wrong = must_have_jiwer(), list[Misheard]()
    for cell, one, said in zip(cells, found, wanted, strict=True):
        told = jiwer.process_characters(said, one)
        errors = told.substitutions + told.insertions + told.deletions
        if errors:
            wrong.append(Misheard(cell, said, one, errors))
    return sorted(wrong, key=lambda one: (-one.errors, len(one.wanted)))


def must_have_jiwer() -> Any:
    """The library; a word about how to install it, before hours of decoding and not after them."""
    try:
        import jiwer
    except ImportError:
        raise MissingExtra.of("jiwer", "audio") from None
    return jiwer
