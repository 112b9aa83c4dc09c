"""Tests here train the same tiny models again and again."""

from __future__ import annotations

import pytest

from heed.runs.card import laws
from heed.train import start
from tests.train.laws import once


@pytest.fixture(autouse=True)
def laws_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "laws", once(laws))
