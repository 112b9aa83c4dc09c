"""Files and folders that are there whole or not at all, and what killed processes leave behind."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from heed.core.atomic import STALE, appearing, replacing, unfinished


def half_written(path: Path) -> None:
    path.write_text("half")
    raise ZeroDivisionError


def test_a_writer_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as fresh:
        half_written(fresh)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.json", "old")]


def test_only_what_nobody_writes_any_more_is_cleared_away(tmp_path: Path) -> None:
    """Another process may be writing the same file right now."""
    path, long_ago = tmp_path / "a.json", time.time() - STALE - 60
    writing, killed, other = (tmp_path / f".{name}.new" for name in ("a.json." + "0" * 16, "a.json." + "1" * 16, "b"))
    for file in (writing, killed, other):
        file.write_text("half")
    for file in (killed, other):
        os.utime(file, (long_ago, long_ago))
    assert set(unfinished(tmp_path)) == {writing, killed, other}
    assert set(unfinished(tmp_path, "a.json")) == {writing, killed}
    with replacing(path) as fresh:
        fresh.write_text("new")
    assert {file.name for file in tmp_path.iterdir()} == {"a.json", writing.name, other.name}


def test_a_folder_appears_whole_and_never_over_one_that_holds_something(tmp_path: Path) -> None:
    with appearing(tmp_path / "state") as fresh:
        (fresh / "a").write_text("1")
        assert not (tmp_path / "state").exists()
    with pytest.raises(OSError, match="not empty"), appearing(tmp_path / "state") as fresh:
        (fresh / "a").write_text("2")
    with pytest.raises(ZeroDivisionError), appearing(tmp_path / "other") as fresh:
        half_written(fresh / "a")
    assert [(file.name, (file / "a").read_text()) for file in tmp_path.iterdir()] == [("state", "1")]
    (tmp_path / "empty").mkdir()
    with appearing(tmp_path / "empty") as fresh:
        (fresh / "a").write_text("3")
    assert (tmp_path / "empty" / "a").read_text() == "3"


def test_a_file_is_as_readable_as_the_user_wants_files_to_be(tmp_path: Path) -> None:
    """Some libraries write theirs for the owner alone."""
    before = os.umask(0o022)
    try:
        with replacing(tmp_path / "a") as fresh:
            fresh.write_text("x")
            fresh.chmod(0o600)
        with appearing(tmp_path / "b") as folder:
            (folder / "c").touch(mode=0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "b" / "c").stat().st_mode) == 0o644
