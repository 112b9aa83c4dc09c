"""What the tests of files share: a way to write one, and to read it or see it refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest

from heed.core.errors import InputError
from heed.data.dates import Day, Language, writer
from heed.data.files import Files

PAIR = ("source", "target")
TEXT = ("text",)
Write = Callable[[str, "str | bytes"], str]


def rows_of(source: Files, columns: tuple[str, ...] = PAIR) -> list[tuple[str, ...]]:
    return list(source.split("test", columns))


def refused(source: Files, columns: tuple[str, ...] = PAIR) -> str:
    """The words in which the test split is refused."""
    with pytest.raises(InputError) as caught:
        source.split("test", columns)
    return str(caught.value)


def texts_of(day: date, language: Language) -> dict[str, str]:
    """A date in every format of a language, by pattern."""
    return {form.pattern: writer(language.code, form)(Day.of(day)) for form in language.formats}
