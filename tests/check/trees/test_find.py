"""From folders, files and packages to targets, without importing anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from heed.check import CannotCheck
from heed.check.trees.find import HUGE, expanded, is_tree

CODE = "raise SystemExit('imported')\n\n\ndef attention(q, k, v):\n    return mix(q, k, v)\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plant(root: Path, *names: str, text: str = CODE) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def found(*words: str) -> list[str]:
    return [target.name for target in expanded(words).targets]


def test_a_folder_without_its_tests_environments_and_builds(here: Path) -> None:
    kept = ("a.py", "deep/er/b.py", "deep/latest.py")
    left = ("tests/c.py", "test_d.py", "e_test.py", "conftest.py", ".git/f.py", "build/g.py", "node_modules/h.py")
    plant(here, *kept, *left, "mine/lib/i.py", "mine/pyvenv.cfg", "thing.egg-info/j.py")
    assert found(".") == ["a.py:attention", "deep/latest.py:attention", "deep/er/b.py:attention"]
    assert found("deep") == ["deep/latest.py:attention", "deep/er/b.py:attention"]
    assert found("tests/c.py") == ["tests/c.py:attention"], "what is named is read"
    assert found("tests") == ["tests/c.py:attention"]


def test_targets_tell_where_they_are(here: Path) -> None:
    plant(here, "a.py")
    (target,) = expanded(["a.py"]).targets
    assert target.place == ("a.py", 4)


def test_packages_are_read_under_their_dotted_names(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(here, "lib/theirs/__init__.py", "lib/theirs/deep/mod.py", "lib/alone.py")
    monkeypatch.setattr(sys, "path", [*sys.path, str(here / "lib")])
    assert found("theirs") == ["theirs:attention", "theirs.deep.mod:attention"]
    assert found("theirs.deep.mod") == ["theirs.deep.mod:attention"]
    assert found("theirs.deep") == ["theirs.deep.mod:attention"]
    assert found("alone") == ["alone:attention"]
    assert not {"theirs", "alone"} & sys.modules.keys()


def test_several_words_each_target_once(here: Path) -> None:
    plant(here, "a.py", "b.py")
    assert found("b.py", ".", "torch.nn:Linear") == ["b.py:attention", "a.py:attention", "torch.nn:Linear"]


def test_what_cannot_be_read_is_told(here: Path) -> None:
    plant(here, "broken.py", text="def attention(:\n")
    plant(here, "old.py", text="print 'attention'\n")
    plant(here, "null.py", text="attention\0")
    plant(here, "huge.py", text="#" * (HUGE + 1))
    (here / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + CODE.encode())
    (here / "bytes.py").write_bytes(b"# attention \xff\xfe\n")
    told = expanded(["."])
    assert [target.name for target in told.targets] == ["latin.py:attention"]
    assert any(note.startswith("broken.py:1: SyntaxError") for note in told.notes)
    assert any(note == f"huge.py: larger than {HUGE >> 20} MiB" for note in told.notes)
    assert {note.split(":")[0] for note in told.notes} == {"broken.py", "old.py", "null.py", "huge.py", "bytes.py"}


def test_what_is_not_covered_is_told_and_no_target(here: Path) -> None:
    plant(
        here,
        "theirs.py",
        text="import keras\n\n\nclass Attention(keras.Layer):\n    def call(self, x):\n        return x\n",
    )
    told = expanded(["."])
    assert (list(told.targets), list(told.notes)) == ([], ["theirs.py:4: Attention is not written with PyTorch"])


def test_a_file_that_is_not_there(here: Path) -> None:
    with pytest.raises(CannotCheck, match="there is no file gone.py"):
        expanded(["gone.py"])


def test_what_is_a_tree(here: Path) -> None:
    plant(here, "a.py", "code/b.py", "model/modeling.py", "plain/notes.txt", "settings/c.py")
    plant(here, "model/config.json", "model/model.safetensors", "run/config.json", "settings/config.json", text="{}")
    for word in ("a.py", "gone.py", "code", "settings", "torch", "torch.nn", "book.ipynb"):
        assert is_tree(word), word
    for word in ("a.py:attention", "torch.nn:Linear", "model", "run", "plain", "gone", "-", "no.such.module"):
        assert not is_tree(word), word
