"""Fixtures of the command line."""

from __future__ import annotations

import pytest

from tests.cli.support import Shell


@pytest.fixture
def heed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("COLUMNS", "120")
    return Shell(monkeypatch, capsys)
