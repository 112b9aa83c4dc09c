"""Dates as people write them, in many languages, to ISO 8601: `3 mai 2024` becomes `2024-05-03`.

The names of months and weekdays are those of the Unicode CLDR, read through Babel; the formats are CLDR patterns, the
official ones and others that are natural in the language. A text never says which language it is in and still has one
meaning only, because all formats keep three rules: numbers alone are year-month-day if the first has four digits and
day-month-year otherwise; a year of two digits comes last and means 1970 to 2069; no month name means two months in two
languages.

Training is endless: example i is computed from the seed and i. A tenth of all dates is never trained on, and neither
are two or three formats of each language, made of parts that the other formats know:

    train   the other dates, the other formats, some of them in small or capital letters or with wide spaces
    valid   kept dates, the formats of training: does it read dates it has not seen?
    test    kept dates, kept formats, no text that a format of training could have written: does it read new formats?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from pydantic import field_validator

from ..core.config import Seed, Share, Size, Text, nearest
from ..core.errors import InputError, MissingExtra
from .base import Example, Examples, Name, Source

if TYPE_CHECKING:
    from babel import Locale

COLUMNS = ("source", "target")
FIRST, LAST = date(1970, 1, 1), date(2069, 12, 31)  # a hundred years, so that two digits name one of them
KEPT_DATES = 10  # one date in so many is never trained on
VARIETY_STEPS = 1024  # the share of careless writing is counted in these

Numerals: TypeAlias = Callable[[str], str]  # how the digits of a number are written
Field: TypeAlias = tuple[int, Mapping[int, str]]  # which field of a day, and the texts of all its values


class Format(NamedTuple):
    """How a date is written: a CLDR pattern, and how its numbers are written."""

    pattern: str
    numerals: Numerals


class Day(NamedTuple):
    """A date: all that a pattern may ask for, and what the answer is."""

    fields: tuple[int, int, int, int]  # year, month, day, weekday from 0 for Monday
    iso: str

    @classmethod
    def of(cls, when: date) -> Day:
        return cls((when.year, when.month, when.day, when.weekday()), when.isoformat())


@dataclass(frozen=True)
class Language:
    """A language and its formats: those of training, and those kept for the test."""

    code: str  # of the CLDR
    name: str
    seen: tuple[Format, ...]
    kept: tuple[Format, ...]
    capitals: bool = True  # whether str.upper writes it as people do; not so for Greek accents and the Turkish i

    @property
    def formats(self) -> tuple[Format, ...]:
        return self.seen + self.kept


def _ascii(number: str) -> str:
    return number


def _fullwidth(number: str) -> str:
    """As broad as a Chinese character: ２０２４."""
    return number.translate({ord("0") + digit: chr(0xFF10 + digit) for digit in range(10)})


def _han(number: str) -> str:
    """In Chinese characters: a year digit by digit, 二〇二四; a month or a day by tens, 二十三."""
    digits = "〇一二三四五六七八九"
    if len(number) > 2:
        return "".join(digits[int(digit)] for digit in number)
    tens, ones = divmod(int(number), 10)
    return (digits[tens] if tens > 1 else "") + ("十" if tens else "") + (digits[ones] if ones else "")


def _in(numerals: Numerals, *patterns: str) -> tuple[Format, ...]:
    return tuple(Format(pattern, numerals) for pattern in patterns)


def _are(*patterns: str) -> tuple[Format, ...]:
    return _in(_ascii, *patterns)


# fmt: off
LANGUAGES = (
    Language("en_GB", "English",
        seen=_are("EEEE, d MMMM y", "d MMMM y", "d MMM y", "E, d MMM y", "dd/MM/y", "E, dd/MM/y", "MMMM d, y",
                  "d/M/yy", "d MMM yy", "E, MMM d, y", "EEEE, dd/MM/y", "d MMM y (EEEE)"),
        kept=_are("E d MMMM y", "EEEE, MMMM d, y", "d-MMM-yy")),
    Language("de", "German",
        seen=_are("EEEE, d. MMMM y", "d. MMMM y", "dd.MM.y", "dd.MM.yy", "E, d. MMM y", "d.M.y", "E, d.M.y",
                  "d. MMM yy", "EEEE, d. MMM y", "dd. MMMM y"),
        kept=_are("EEEE, dd.MM.y", "E d. MMMM yy", "d. MMMM y (EEEE)")),
    Language("fr", "French",
        seen=_are("EEEE d MMMM y", "d MMMM y", "d MMM y", "dd/MM/y", "E d MMM y", "E dd/MM/y", "dd/MM/yy",
                  "'le' d MMMM y", "EEEE d MMM y"),
        kept=_are("EEEE dd/MM/y", "'le' EEEE d MMMM y", "d MMM yy")),
    Language("es", "Spanish",
        seen=_are("EEEE, d 'de' MMMM 'de' y", "d 'de' MMMM 'de' y", "d MMM y", "d/M/yy", "E, d MMM y", "d/M/y",
                  "E, d/M/y", "d MMMM y", "EEEE d MMM y", "d-MMM-y"),
        kept=_are("E, d 'de' MMMM 'de' y", "EEEE, d/M/y", "d-MMM-yy")),
    Language("it", "Italian",
        seen=_are("EEEE d MMMM y", "d MMMM y", "d MMM y", "dd/MM/yy", "E d MMM y", "dd/MM/y", "E dd/MM/y", "d/M/y",
                  "EEEE d MMM y", "EEEE dd/MM/y"),
        kept=_are("E d MMMM y", "EEEE d/M/yy", "d MMMM yy")),
    Language("pt", "Portuguese",
        seen=_are("EEEE, d 'de' MMMM 'de' y", "d 'de' MMMM 'de' y", "d 'de' MMM 'de' y", "dd/MM/y",
                  "E, d 'de' MMM 'de' y", "E, dd/MM/y", "dd/MM/yy", "dd MMM y", "d MMMM y"),
        kept=_are("E, d 'de' MMMM 'de' y", "EEEE, dd/MM/y", "dd/MMM/y")),
    Language("nl", "Dutch",
        seen=_are("EEEE d MMMM y", "d MMMM y", "d MMM y", "dd-MM-y", "E d MMM y", "d-M-y", "E d-M-y", "dd-MM-yy",
                  "d MMMM y (E)", "EEEE d-M-y"),
        kept=_are("E dd-MM-yy", "EEEE d MMM yy", "d MMM y (EEEE)")),
    Language("sv", "Swedish",
        seen=_are("EEEE d MMMM y", "d MMMM y", "d MMM y", "y-MM-dd", "E d MMM y", "E, y-MM-dd", "d/M y",
                  "'den' d MMMM y", "E d/M y", "EEEE, y-MM-dd"),
        kept=_are("EEEE 'den' d MMMM y", "EEEE d/M y", "E 'den' d MMM y")),
    Language("fi", "Finnish",
        seen=_are("cccc d. MMMM y", "d. MMMM y", "d.M.y", "E d.M.y", "E d. MMMM y", "dd.MM.y", "d.M.yy",
                  "EEEE d. MMMM y", "d. MMMM y (E)", "EEEE d.M.y"),
        kept=_are("cccc d.M.yy", "E dd.MM.yy", "d. MMMM y (cccc)")),
    Language("pl", "Polish",
        seen=_are("EEEE, d MMMM y", "d MMMM y", "d MMM y", "d.MM.y", "E, d MMM y", "E, d.MM.y", "dd.MM.yy",
                  "d MMMM y 'r'.", "EEEE, d MMMM y 'r'.", "dd.MM.y 'r'.", "d MMMM y (EEEE)"),
        kept=_are("EEEE, d.MM.y", "E, d MMMM y 'r'.", "EEEE, d MMM y")),
    Language("cs", "Czech",
        seen=_are("EEEE d. MMMM y", "d. MMMM y", "d. M. y", "dd.MM.yy", "E d. M. y", "E d. MMMM y", "dd.MM.y",
                  "'dne' d. M. y", "EEEE, dd. MM. y", "d. MMMM y (E)"),
        kept=_are("EEEE d. M. y", "'dne' d. MMMM y", "d. M. y (EEEE)")),
    Language("ru", "Russian",
        seen=_are("EEEE, d MMMM y 'г'.", "d MMMM y 'г'.", "d MMM y 'г'.", "dd.MM.y", "E, d MMM y 'г'.",
                  "ccc, dd.MM.y 'г'.", "d MMMM y", "dd.MM.yy", "d MMM y", "EEEE, d MMMM y", "EEEE, dd.MM.y"),
        kept=_are("E, d MMMM y", "EEEE, dd.MM.y 'г'.", "d MMM yy 'г'.")),
    Language("el", "Greek", capitals=False,
        seen=_are("EEEE d MMMM y", "d MMMM y", "d MMM y", "d/M/yy", "E d MMM y", "d/M/y", "E d/M/y", "dd/MM/y",
                  "EEEE, d MMM y"),
        kept=_are("EEEE d/M/y", "E, d MMMM y", "d MMM yy")),
    Language("hu", "Hungarian",
        seen=_are("y. MMMM d., EEEE", "y. MMMM d.", "y. MMM d.", "y. MM. dd.", "y. MMM d., E", "y. MM. dd., E",
                  "y.MM.dd.", "y. MMMM d. (E)", "y. MMM d. EEEE", "y. MMMM d. (EEEE)"),
        kept=_are("y. MMMM d., E", "y. MM. dd., EEEE", "y. MMM d. (EEEE)")),
    Language("tr", "Turkish", capitals=False,
        seen=_are("d MMMM y EEEE", "d MMMM y", "d MMM y", "d.MM.y", "dd.MM.y", "d MMM y E", "d.M.y E", "dd/MM/y",
                  "d MMM y EEEE"),
        kept=_are("d MMMM y E", "d.M.y EEEE", "d MMMM y, EEEE")),
    Language("zh", "Chinese",
        seen=(*_are("y年M月d日EEEE", "y年M月d日", "y/M/d", "y年M月d日E", "y/M/dE", "y-MM-dd", "y年MM月dd日",
                    "y.M.d", "y-MM-dd（E）", "y年M月d日 EEEE"),
              *_in(_fullwidth, "y年M月d日"), *_in(_han, "y年M月d日", "y年M月d日E")),
        kept=(*_are("y年M月d日（EEEE）", "y/M/d EEEE"), *_in(_han, "y年M月d日EEEE"))),
    Language("ja", "Japanese",
        seen=(*_are("y年M月d日EEEE", "y年M月d日", "y/MM/dd", "y年M月d日(E)", "y/M/d", "y/M/d(E)", "y年MM月dd日(E)",
                    "y.MM.dd", "y-MM-dd EEEE"),
              *_in(_fullwidth, "y年M月d日", "y年M月d日(E)"), *_in(_han, "y年M月d日")),
        kept=(*_are("y年M月d日(EEEE)", "y/M/d EEEE"), *_in(_fullwidth, "y年M月d日EEEE"))),
    Language("ko", "Korean",
        seen=_are("y년 MMMM d일 EEEE", "y년 MMMM d일", "y. M. d.", "y년 MMM d일 (E)", "y. M. d. (E)", "y.MM.dd",
                  "y-MM-dd", "y년 MM월 dd일", "y.MM.dd (E)"),
        kept=_are("y. M. d. EEEE", "y년 MMM d일 (EEEE)", "y-MM-dd (E)")),
)
# fmt: on
BY_CODE = {language.code: language for language in LANGUAGES}


class Dates(Source):
    """The source. `languages` are codes of `LANGUAGES`; a round of training has `round` examples."""

    kind: Literal["dates"] = "dates"
    languages: tuple[Text, ...] = tuple(BY_CODE)  # codes of the languages that dates are written in
    round: Size = 65_536  # examples of one round of training
    held: Size = 2_000  # examples in valid, and in test
    variety: Share = 0.1  # how much of training is written in small or capital letters or with wide spaces
    seed: Seed = 0

    @field_validator("languages")
    @classmethod
    def _known(cls, codes: tuple[str, ...]) -> tuple[str, ...]:
        for code in codes:
            if code not in BY_CODE:
                raise ValueError(f"no dates in {code!r}{nearest(code, BY_CODE)}")
        if not codes or len(set(codes)) < len(codes):
            raise ValueError(f"{list(codes)} must name at least one language, and each once")
        return codes

    def splits(self) -> tuple[Name, ...]:
        return ("train", "valid", "test")

    def split(self, name: Name, columns: tuple[str, ...]) -> Examples:
        for column in columns:
            if column not in COLUMNS:
                raise InputError(f"dates have no column {column!r}; they have {' and '.join(COLUMNS)}")
        places = tuple(COLUMNS.index(column) for column in columns)
        return _Endless(self, places) if name == "train" else _Held(self, name, places)


class Writer:
    """A format of a language, ready to write days: for each part of its pattern the texts to choose from."""

    def __init__(self, language: Language, form: Format) -> None:
        self.language = language
        self.parts = tuple(_parts(language.code, form))

    def __call__(self, day: Day) -> str:
        """Babel's format_date, by looking up."""
        fields = day.fields
        return "".join([part if isinstance(part, str) else part[1][fields[part[0]]] for part in self.parts])


class _Endless(Examples):
    endless = True

    def __init__(self, source: Dates, places: tuple[int, ...]) -> None:
        self._source, self._places = source, places
        self._days, _ = calendar()
        self._writers = [writer(code, form) for code in source.languages for form in BY_CODE[code].seen]
        self._varied = round(source.variety * VARIETY_STEPS)
        self._stream = stream("train", source.seed)

    def __len__(self) -> int:
        return self._source.round

    def __getitem__(self, index: int) -> Example:
        if index < 0:
            raise IndexError(f"example {index}; examples are numbered from 0 on")
        bits = scramble(self._stream + index)
        bits, choice = divmod(bits, len(self._writers))
        bits, when = divmod(bits, len(self._days))
        bits, careless = divmod(bits, VARIETY_STEPS)
        write, day = self._writers[choice], self._days[when]
        text = write(day)
        if careless < self._varied:
            text = vary(text, bits % 3, write.language)
        pair = (text, day.iso)
        return pair if self._places == (0, 1) else tuple(pair[place] for place in self._places)

    def report(self) -> str:
        languages = [BY_CODE[code] for code in self._source.languages]
        every = sum(len(language.formats) for language in languages)
        kept = sum(len(language.kept) for language in languages)
        return f"dates: {len(languages)} languages, {every} formats, {kept} of them kept out of training; endless"


class _Held(Examples):
    def __init__(self, source: Dates, name: Name, places: tuple[int, ...]) -> None:
        self._name = name
        self._kept = name == "test"
        self._formats = [
            writer(code, form)
            for code in source.languages
            for form in (BY_CODE[code].kept if self._kept else BY_CODE[code].seen)
        ]
        self._trained = [writer(code, form) for code in source.languages for form in BY_CODE[code].seen]
        pairs = [self._draw(stream(name, source.seed) + (number << 8)) for number in range(source.held)]
        self._examples = [tuple(pair[place] for place in places) for pair in pairs]

    def _draw(self, start: int) -> Example:
        """A date and a format; the next, if a format of training, in any language, writes that date in the same way."""
        _, days = calendar()
        number = start
        while True:
            bits, choice = divmod(scramble(number), len(self._formats))
            day = days[bits % len(days)]
            text = self._formats[choice](day)
            if not self._kept or text.casefold() not in {write(day).casefold() for write in self._trained}:
                return text, day.iso
            number += 1

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        return self._examples[index]

    def report(self) -> str:
        formats = "formats kept out of training" if self._kept else "formats of training"
        return f"dates, {self._name}: {len(self)} examples, dates kept out of training, {len(self._formats)} {formats}"


@cache
def calendar() -> tuple[tuple[Day, ...], tuple[Day, ...]]:
    """All days of training, and all that are kept out of it: by a hash of the day, whatever the seed."""
    every = [FIRST + timedelta(days=number) for number in range((LAST - FIRST).days + 1)]
    trained = tuple(Day.of(when) for when in every if scramble(when.toordinal()) % KEPT_DATES)
    kept = tuple(Day.of(when) for when in every if not scramble(when.toordinal()) % KEPT_DATES)
    return trained, kept


@cache
def writer(code: str, form: Format) -> Writer:
    """The writer of a format, made once."""
    return Writer(BY_CODE[code], form)


def _parts(code: str, form: Format) -> Iterator[str | Field]:
    """The parts of a pattern: a fixed text, or a field and the texts of all its values."""
    try:
        from babel import Locale
        from babel.dates import tokenize_pattern
    except ImportError:
        raise MissingExtra.of("babel", "train") from None
    locale = Locale.parse(code)
    for _, token in tokenize_pattern(form.pattern):
        yield token if isinstance(token, str) else _field(locale, *token, form.numerals)


def _field(locale: Locale, letter: str, width: int, numerals: Numerals) -> Field:
    """A field of a CLDR pattern (Unicode technical standard 35, part 4): y, M, d are numbers; MMM, E, c are names."""
    size = "wide" if width == 4 else "abbreviated"
    years = range(FIRST.year, LAST.year + 1)
    match letter, width:
        case "y", 2:
            return 0, {year: numerals(f"{year % 100:02}") for year in years}
        case "y", 1:
            return 0, {year: numerals(str(year)) for year in years}
        case "M", (1 | 2):
            return 1, {month: numerals(str(month).zfill(width)) for month in range(1, 13)}
        case "M", (3 | 4):
            return 1, dict(locale.months["format"][size])
        case "d", (1 | 2):
            return 2, {day: numerals(str(day).zfill(width)) for day in range(1, 32)}
        case "E", (1 | 4):
            return 3, dict(locale.days["format"][size])
        case "c", (3 | 4):
            return 3, dict(locale.days["stand-alone"][size])
    raise InputError(f"no field {letter * width} in a date; use y, yy, M to MMMM, d, dd, E, EEEE, ccc or cccc")


def vary(text: str, way: int, language: Language) -> str:
    """The text as a hasty hand writes it: in small letters, in capital letters, or with wide spaces."""
    if way == 0:
        return text.lower()
    if way == 1 and language.capitals:
        return text.upper()
    return text.replace(" ", "  ")


def stream(name: Name, seed: int) -> int:
    """Where the random numbers of a split begin: far apart for all splits and seeds."""
    return scramble(scramble(seed + 1) + ("train", "valid", "test").index(name))


def scramble(number: int) -> int:
    """64 random-looking bits for each number: the finisher of SplitMix64 (Steele, Lea & Flood 2014)."""
    bits = (number * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return bits ^ (bits >> 31)
