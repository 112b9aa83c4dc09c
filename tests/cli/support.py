"""The command line as a person uses it, in this process."""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest

from heed.cli import main


class Told(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class Shell:
    """Types commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = monkeypatch, capsys

    def __call__(self, *words: object, code: int = 0) -> Told:
        self._patch.setattr(sys, "argv", ["heed", *map(str, words)])
        self._capture.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        told = Told(int(stop.value.code or 0), *self._capture.readouterr())
        assert told.code == code, told
        return told
