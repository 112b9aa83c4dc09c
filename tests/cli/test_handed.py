"""What commands hand on: files as splits, sizes as bytes, lines by number; and the exit code that they end with."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from heed.cli import run as running
from heed.cli.chat import Chat
from heed.cli.info import size
from heed.runs.convert import Converted
from heed.train.checkpoint import Progress
from tests.cli.support import Shell

CALL = importlib.import_module("heed.train.call")  # the package has a function of this name


def outcome(finished: bool) -> Any:
    return SimpleNamespace(leads=True, finished=finished, run=SimpleNamespace(path=Path("runs/x")), progress=Progress())


@pytest.mark.parametrize(("finished", "code"), [(True, 0), (False, 130)])
def test_a_stopped_training_ends_as_ctrl_c_ends_programs(
    heed: Shell, monkeypatch: pytest.MonkeyPatch, finished: bool, code: int
) -> None:
    monkeypatch.setattr(CALL, "call", lambda *given, **more: outcome(finished))
    assert ("is ready" in heed("train", "dates", code=code).out) == finished


def test_files_of_a_training_are_for_training(heed: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heard: list[Any] = []

    def call(recipe: str, files: Any, **more: Any) -> Any:
        heard.append(files)
        return outcome(finished=True)

    monkeypatch.setattr(CALL, "call", call)
    for name in ("notes.txt", "more.txt"):
        (tmp_path / name).write_text("some text")
    heed("train", "characters", "--data", tmp_path / "notes.txt", "--data", f"valid={tmp_path / 'more.txt'}")
    assert heard == [{"valid": [str(tmp_path / "more.txt")], "train": [str(tmp_path / "notes.txt")]}]


def test_a_shard_is_told_in_gigabytes(heed: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heard: list[int] = []

    def convert(*given: Any, shard: int, **more: Any) -> Converted:
        heard.append(shard)
        raise typer.BadParameter("enough")

    monkeypatch.setattr("heed.runs.convert.convert", convert)
    (tmp_path / "model").mkdir()
    heed("convert", tmp_path / "model", tmp_path / "out", "--shard", "0.5", code=2)
    assert heard == [1 << 29]


def test_bytes_for_people() -> None:
    told = [size(count) for count in (1, 999, 1000, 1023, 1500, 10**6, 2_500_000_000)]
    assert told == ["1 byte", "999 bytes", "1 kB", "1.02 kB", "1.5 kB", "1 MB", "2.5 GB"]


def test_a_line_is_named_by_its_number_in_the_whole_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CHUNK", 4)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\nsix\nb\xffd\nten\n")))
    lines = running._lines()
    assert [next(lines) for _ in range(3)] == [["one"], ["two"], ["six"]]
    with pytest.raises(typer.BadParameter, match="line 4 of the input is not UTF-8 at byte 2"):
        next(lines)


def test_what_could_not_be_answered_was_not_said() -> None:
    class Failing:
        def chatting(self, messages: list[dict[str, str]], config: object) -> Iterator[str]:
            yield "no"
            raise RuntimeError("out of memory")

    pipeline: Any = Failing()
    config: Any = None
    chat = Chat(pipeline, config, "be brief")
    with pytest.raises(RuntimeError, match="out of memory"):
        chat.answer("hello", lambda piece: None)
    assert chat.messages == [{"role": "system", "content": "be brief"}]


def test_what_is_asked_about_is_told_as_the_other_settings_make_it(heed: Shell) -> None:
    asked = heed("train", "characters", "--set", "model.mixer.kind=mamba", "--set", "model.mixer=?").out
    assert "model.mixer = mamba" in asked
