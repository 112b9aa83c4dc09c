"""A run folder is new or a run's, and every file that has a digest is there and is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from heed.core.errors import RunError
from heed.runs import Run, digests
from heed.runs.lock import LOCK


def test_a_new_run_takes_nothing_but_its_lock_for_empty(tmp_path: Path) -> None:
    for free in (tmp_path / "absent", tmp_path):
        Run.must_be_new(free)
    (tmp_path / LOCK).write_text("")
    Run.must_be_new(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    for taken in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(RunError, match="already exists"):
            Run.must_be_new(taken)


def test_a_file_with_a_digest_is_missed_and_damage_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    digests.record(tmp_path, ["a.txt"])
    sums = digests.listed(tmp_path)
    assert sums is not None
    assert digests.problem(tmp_path, "a.txt", sums) is None
    assert digests.problem(tmp_path, "b.txt", sums) is None  # the list does not speak of it
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert digests.problem(tmp_path, "a.txt", sums, grows=True) is None
    assert "is damaged" in str(digests.problem(tmp_path, "a.txt", sums))
    (tmp_path / "a.txt").unlink()
    for grows in (False, True):
        assert "is missing, but SHA256SUMS lists it" in str(digests.problem(tmp_path, "a.txt", sums, grows=grows))
