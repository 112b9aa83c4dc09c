"""The sanitizers' tool: what it plants is found, and the threads of the kernels race nowhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools import sanitize


@pytest.fixture
def compiler(tmp_path: Path) -> str:
    found = shutil.which("g++")
    if found is None:
        pytest.skip("there is no g++")
    lacking = sanitize.missing(found, tmp_path)
    if lacking:
        pytest.skip(f"g++ lacks {lacking}")
    return found


def test_planted_faults_are_found(compiler: str, tmp_path: Path) -> None:
    assert sanitize.finds_planted_faults(compiler, tmp_path) == list(sanitize.PLANTED)


def test_a_fault_that_is_not_found_ends_it(compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = {"nothing": ("int planted(int n) { return n; }", "heap-buffer-overflow")}
    monkeypatch.setattr(sanitize, "PLANTED", harmless)
    with pytest.raises(SystemExit, match="nothing was planted and not found"):
        sanitize.finds_planted_faults(compiler, tmp_path)


def test_threads_race_only_where_they_should(compiler: str, tmp_path: Path) -> None:
    assert "data race" in sanitize.under_thread(compiler, tmp_path)
