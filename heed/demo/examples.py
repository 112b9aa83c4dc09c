"""Examples to show: one per language, by turns in a format of training and in one that was kept out of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from ..data.base import Examples, Name
from ..data.dates import BY_CODE, COLUMNS, Dates, Day, Language, writer

TURNS: tuple[Name, ...] = ("valid", "test")


@dataclass(frozen=True)
class Sample:
    """A date as people write it."""

    language: str
    text: str
    wanted: str
    kept: bool  # whether its format was kept out of training


def samples(source: Dates) -> list[Sample]:
    """For each language the first example of its turn that is not all numbers, if there is one."""
    splits = {name: source.split(name, COLUMNS) for name in TURNS}
    found = []
    for number, code in enumerate(source.languages):
        name = TURNS[number % len(TURNS)]
        pair = _first(splits[name], BY_CODE[code], kept=name == "test")
        if pair is not None:
            found.append(Sample(BY_CODE[code].name, *pair, kept=name == "test"))
    return found


def _first(examples: Examples, language: Language, *, kept: bool) -> tuple[str, str] | None:
    """An example that a format of this language could have written."""
    writers = [writer(language.code, form) for form in (language.kept if kept else language.seen)]
    for text, iso in examples:
        day = Day.of(date.fromisoformat(iso))
        if any(map(str.isalpha, text)) and any(write(day) == text for write in writers):
            return text, iso
    return None
