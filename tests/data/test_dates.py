"""Dates: written as Babel writes them, with one meaning, and with formats and dates that training never sees."""

from __future__ import annotations

import builtins
import re
import time
import unicodedata
from collections import Counter
from datetime import date
from functools import cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from babel import Locale
from babel.dates import format_date

from heed.core.errors import ConfigError, InputError, MissingExtra
from heed.data import dates
from heed.data.base import Examples, Name
from heed.data.dates import LANGUAGES, Dates, Day, Language, calendar, vary, writer
from tests.data.support import texts_of

BOTH = ("source", "target")
NAMES: tuple[Name, ...] = ("train", "valid", "test")
HAN = "〇一二三四五六七八九"
# Every day of leap and of common years that start on different weekdays, and dates from end to end.
SAMPLE = [*islice(calendar()[0], 0, None, 97), *islice(calendar()[1], 0, None, 29)]


def split(name: Name, **fields: Any) -> Examples:
    return Dates(**fields).split(name, BOTH)


# --- as Babel writes them ---


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_every_format_is_written_as_babel_writes_it(language: Language) -> None:
    for form in language.formats:
        for day in SAMPLE[::4]:
            assert writer(language.code, form)(day) == babel(language, form, date.fromisoformat(day.iso))


def babel(language: Language, form: dates.Format, when: date) -> str:
    text = format_date(when, form.pattern, locale=language.code)
    return re.sub(r"\d+", lambda number: form.numerals(number[0]), text)


@pytest.mark.parametrize(
    ("number", "han", "fullwidth"),
    [
        ("2024", "二〇二四", "２０２４"),
        ("10", "十", "１０"),
        ("20", "二十", "２０"),
        ("31", "三十一", "３１"),
        ("5", "五", "５"),
    ],
)
def test_numerals(number: str, han: str, fullwidth: str) -> None:
    assert dates._han(number) == han
    assert dates._fullwidth(number) == fullwidth


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_the_official_formats_are_among_them(language: Language) -> None:
    formats = Locale.parse(language.code).date_formats
    official = {str(formats[name].pattern).replace("\u202f", " ") for name in ("full", "long", "medium", "short")}
    # Korean writes a year of two digits first: 03. 05. 04. could not be told from a day.
    assert official - {"yy. M. d."} <= {form.pattern for form in language.formats}


def test_a_field_that_is_not_of_a_date_is_told() -> None:
    with pytest.raises(InputError, match="no field HH in a date"):
        writer("de", dates.Format("HH", str))


# --- one meaning ---


@cache
def months() -> dict[str, set[int]]:
    """What a word can mean, in any of the languages, as a month."""
    meanings: dict[str, set[int]] = {}
    for language in LANGUAGES:
        for sizes in Locale.parse(language.code).months.values():
            for size in ("wide", "abbreviated"):
                for month, name in sizes[size].items():
                    meanings.setdefault(plain(name).rstrip("."), set()).add(month)
    return meanings


def plain(text: str) -> str:
    """Without letter case and without the width of digits; Greek accents joined to their letters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", text).casefold())


def read(text: str) -> str:
    """The ISO form, found without knowing the language or the format: so no text can have two meanings."""
    text = re.sub(f"[{HAN}十]+(?=[年月日])", lambda number: from_han(number[0]), plain(text))
    numbers = list(re.finditer(r"\d+", text))
    values = [int(number[0]) for number in numbers]
    years_first = len(numbers[0][0]) == 4
    if len(numbers) == 3:
        year, month, day = values if years_first else reversed(values)
    else:
        first, last = numbers
        between, before = (words(part) for part in (text[first.end() : last.start()], text[: first.start()]))
        (month,) = between or before
        year, day = values if years_first else reversed(values)
        assert year >= 1970 or not before or between, "a month before the day needs a year of four digits"
    if year < 100:
        year += 1900 if year >= 70 else 2000
    return f"{year}-{month:02}-{day:02}"


def words(text: str) -> set[int]:
    found = [months().get(word, set()) for word in re.findall(r"[^\W\d]+", text)]
    return {month for meanings in found for month in meanings}


def from_han(number: str) -> str:
    if "十" not in number:
        return "".join(str(HAN.index(digit)) for digit in number)
    tens, ones = number.split("十")
    return str(10 * (HAN.index(tens) if tens else 1) + (HAN.index(ones) if ones else 0))


def test_no_name_of_a_month_means_two_months() -> None:
    assert len(months()) > 300
    assert not {name: meanings for name, meanings in months().items() if len(meanings) > 1}


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_a_reader_that_does_not_know_the_language_finds_the_date(language: Language) -> None:
    for form in language.formats:
        write = writer(language.code, form)
        for day in SAMPLE:
            assert read(write(day)) == day.iso, form.pattern


def test_such_a_reader_understands_careless_writing_too() -> None:
    train = split("train", variety=0.999)
    for source, target in islice(train, 5000):
        assert read(source) == target


def test_numbers_alone_mean_one_date_on_all_days() -> None:
    """Every format without names, on every day of the hundred years; one table for all languages."""
    meaning: dict[str, str] = {}
    patterns = {form for language in LANGUAGES for form in language.formats if not re.search("[Ec]|MMM", form.pattern)}
    assert len(patterns) > 15
    for form in patterns:
        assert re.search("y.*M.*d|d.*M.*y", form.pattern), "year-month-day or day-month-year"
        assert "yy" not in form.pattern or form.pattern.startswith("d"), "a year of two digits comes last"
        write = dates.Writer(LANGUAGES[0], form)
        for days in calendar():
            for day in days:
                assert meaning.setdefault(write(day), day.iso) == day.iso


def test_a_large_sample_of_all_splits_has_no_two_meanings() -> None:
    meaning: dict[str, str] = {}
    for examples in (split("train"), split("train", seed=1, variety=0.9), split("valid"), split("test")):
        for source, target in examples:
            assert meaning.setdefault(source, target) == target
    assert len(meaning) > 100_000


# --- endless and the same for everybody ---


def test_an_example_depends_on_the_seed_and_its_number_only() -> None:
    one, other = split("train"), split("train")
    numbers = [7, 0, 10**12, 65_536, 7]
    assert [one[number] for number in numbers] == [other[number] for number in reversed(numbers)][::-1]
    assert [split("train", seed=1)[number] for number in numbers] != [one[number] for number in numbers]
    assert one.endless
    assert len(split("train", round=5)) == len(list(split("train", round=5))) == 5


def test_this_is_the_first_example() -> None:
    """Pinned: a run that is resumed next year must see what it would have seen today."""
    assert [split("train")[number] for number in (0, 1, 10**9)] == [
        ("2057年5月29日(火)", "2057-05-29"),
        ("2051년 11월 21일", "2051-11-21"),
        ("27-jul-2054", "2054-07-27"),
    ]


def test_all_formats_and_many_dates_come_up_in_a_round() -> None:
    train = split("train", variety=0.0)
    examples = list(train)
    assert len({target for _, target in examples}) > 0.8 * len(calendar()[0])
    assert Counter(examples).most_common(1)[0][1] < 10  # the numeric formats that several languages share
    seen = {source for source, _ in examples}
    for language in LANGUAGES:
        for form in language.seen:
            write = writer(language.code, form)
            assert any(write(day) in seen for day in calendar()[0])


def test_an_example_is_quick() -> None:
    train = split("train")
    best = min(seconds(train, start) for start in range(0, 50_000, 10_000))
    assert best / 10_000 < 60e-6  # about 6 millionths of a second on an idle core


def seconds(train: Examples, start: int) -> float:
    begin = time.perf_counter()
    for number in range(start, start + 10_000):
        train[number]
    return time.perf_counter() - begin


# --- what is kept out ---


def test_a_tenth_of_the_dates_is_kept_out_of_training() -> None:
    trained, kept = calendar()
    assert not set(trained) & set(kept)
    assert len(trained) + len(kept) == 36_525
    assert 0.09 < len(kept) / 36_525 < 0.11
    days = {day.iso for day in kept}
    for seed in (0, 1):
        assert all(target not in days for _, target in islice(split("train", seed=seed), 20_000))
        for name in NAMES[1:]:
            assert all(target in days for _, target in split(name, seed=seed))


def test_valid_has_formats_of_training_only() -> None:
    seen = [writer(language.code, form) for language in LANGUAGES for form in language.seen]
    day_of = {day.iso: day for day in calendar()[1]}
    for source, target in split("valid", held=300):
        assert source in {write(day_of[target]) for write in seen}


@pytest.mark.parametrize("seed", [0, 1])
def test_no_text_of_the_test_can_be_written_by_training(seed: int) -> None:
    """Not in any language: since a text has one meaning, looking at its own date is enough."""
    seen = [(language, writer(language.code, form)) for language in LANGUAGES for form in language.seen]
    kept = [writer(language.code, form) for language in LANGUAGES for form in language.kept]
    day_of = {day.iso: day for day in calendar()[1]}
    for source, target in split("test", held=400, seed=seed):
        day = day_of[target]
        assert source in {write(day) for write in kept}
        ways = {vary(write(day), way, language) for language, write in seen for way in range(3)}
        assert source not in ways | {write(day) for _, write in seen}


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_kept_formats_are_new_to_their_language_but_their_parts_are_not(language: Language) -> None:
    assert len(language.formats) >= 8
    assert 2 <= len(language.kept) <= 3
    fields = {field for form in language.seen for field in parts(form.pattern)}
    assert {field for form in language.kept for field in parts(form.pattern)} - fields <= {"yy"}
    shapes = {re.sub("d+", "d", form.pattern) for form in language.seen if form.numerals is dates._ascii}
    for form in language.kept:
        assert form.numerals is not dates._ascii or re.sub("d+", "d", form.pattern) not in shapes
        always = sum(writer(language.code, form)(day) in trained(language, day) for day in SAMPLE[:200])
        assert always < 20, form.pattern  # May is May in long and in short


def trained(language: Language, day: Day) -> set[str]:
    return {writer(language.code, form)(day) for form in language.seen}


def parts(pattern: str) -> list[str]:
    """The fields of a pattern, one digit or two being no matter, and its words."""
    return [re.sub("^(dd?|MM?)$", lambda found: found[0][0], part) for part in re.findall(r"'\w+'|[A-Za-z]+", pattern)]


def test_test_and_valid_are_balanced_over_languages_and_have_their_size() -> None:
    for name in NAMES[1:]:
        examples = split(name)
        assert not examples.endless
        assert len(examples) == len(list(examples)) == 2000
        assert len(set(examples)) > 1950
    scripts = Counter(unicodedata.name(letter).split()[0] for source, _ in split("test") for letter in source)
    assert {"LATIN", "GREEK", "CYRILLIC", "CJK", "HANGUL", "DIGIT", "FULLWIDTH"} <= set(scripts)


# --- manners ---


def test_reports_say_what_there_is() -> None:
    everything = sum(len(language.formats) for language in LANGUAGES)
    kept = sum(len(language.kept) for language in LANGUAGES)
    assert len(LANGUAGES) >= 14
    assert split("train").report() == (
        f"dates: {len(LANGUAGES)} languages, {everything} formats, {kept} of them kept out of training; endless"
    )
    assert "6 formats kept out of training" in split("test", languages=("de", "zh")).report()


def test_few_languages_can_be_chosen_and_a_wrong_one_is_told() -> None:
    assert all(re.fullmatch(r"[ -~äÄ]+", source) for source, _ in split("train", languages=("de",), round=500))
    with pytest.raises(ConfigError, match="no dates in 'en'; known: cs, de, el, en_GB"):
        Dates(languages=("en",))
    for codes in ((), ("de", "de")):
        with pytest.raises(ConfigError, match="at least one language, and each once"):
            Dates(languages=codes)


def test_columns_come_as_they_are_asked_for() -> None:
    for name in NAMES:
        source, target = Dates(held=3).split(name, BOTH)[2]
        assert Dates(held=3).split(name, ("target", "source"))[2] == (target, source)
        assert Dates(held=3).split(name, ("target",))[2] == (target,)
    with pytest.raises(InputError, match="dates have no column 'text'; they have source and target"):
        Dates().split("train", ("text",))


def test_numbers_below_zero_or_beyond_the_end_are_errors() -> None:
    for examples, index in ((split("train"), -1), (split("test", held=3), -1), (split("test", held=3), 3)):
        with pytest.raises(IndexError):
            examples[index]


def test_without_babel_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = builtins.__import__

    def poor(name: str, *arguments: Any) -> ModuleType:
        if name.startswith("babel"):
            raise ImportError(name)
        return genuine(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", poor)
    with pytest.raises(MissingExtra, match=r'pip install "heed-attention\[train\]"'):
        dates.Writer(LANGUAGES[0], LANGUAGES[0].seen[0])


def test_the_configuration_survives_a_file(tmp_path: Path) -> None:
    source = Dates(languages=("fr", "ja"), seed=3)
    source.write(tmp_path / "data.toml")
    assert Dates.read(tmp_path / "data.toml") == source
    assert source.splits() == NAMES


def test_a_look_at_a_date() -> None:
    french = next(language for language in LANGUAGES if language.code == "fr")
    assert texts_of(date(2024, 5, 3), french)["EEEE d MMMM y"] == "vendredi 3 mai 2024"
