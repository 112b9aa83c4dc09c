"""What the tests of files share: a way to write one, and to read it or see it refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heed.core.errors import InputError
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
