"""The plugin for pytest: a fixture, and one test for every target of `--heed`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WRONG = """
def attend(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if mask is not None:
        scores.masked_fill(mask == 0, float("-inf"))
    return scores.softmax(-1) @ value
"""
RIGHT = """
def attend(query, key, value):
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value
"""
CRASHES = "import os\n\n\ndef attend(query, key, value):\n    os._exit(3)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    for name, text in (("wrong", WRONG), ("right", RIGHT), ("crashes", CRASHES)):
        (tmp_path / "code" / f"{name}.py").write_text(text)
    return tmp_path


def ran(folder: Path, *words: str, code: int) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_attention_of_a_folder_is_a_test_of_its_own(folder: Path) -> None:
    told = ran(folder, "--heed", "code", "--heed", "torch.nn:LayerNorm", code=1)
    assert "2 failed, 2 passed" in told
    assert "code/wrong.py:attend: wrong: mask-ignored" in told
    assert "code/crashes.py:attend could not be checked: code/crashes.py:attend leaves the process" in told
    assert "Traceback" not in told


def test_a_baseline_accepts_findings(folder: Path) -> None:
    accepted = {"code/wrong.py:attend": ["mask-ignored"], "code/crashes.py:attend": ["unchecked"]}
    (folder / "known.json").write_text(json.dumps({"version": 1, "accepted": accepted}))
    told = ran(folder, "--heed", "code", "--heed-baseline", "known.json", "-rs", code=0)
    assert "2 passed, 1 skipped" in told
    assert "which the baseline accepts" in told


def test_strict_holds_for_targets_and_for_the_fixture(folder: Path) -> None:
    (folder / "test_it.py").write_text(
        "import torch\n\n\ndef test_it(heed_check):\n"
        "    heed_check(torch.nn.MultiheadAttention, only=['dead-row', 'rows'])\n"
    )
    assert "1 passed" in ran(folder, "test_it.py", code=0)
    told = ran(folder, "test_it.py", "--heed-strict", "--heed", "torch.nn:MultiheadAttention", code=1)
    assert "2 failed" in told
    assert "wrong: dead-row-nan" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--heed", "gone.py"], "there is no file gone.py"),
        (["--heed", "empty"], "nothing attention-like was found in empty"),
        (["--heed", "code", "--heed-baseline", "gone.json"], "there is no baseline gone.json"),
    ],
)
def test_what_cannot_be_meant_is_an_error_of_usage(folder: Path, words: list[str], message: str) -> None:
    (folder / "empty").mkdir()
    (folder / "empty" / "plain.py").write_text("x = 1\n")
    told = ran(folder, *words, code=4)
    assert message in told
    assert "INTERNALERROR" not in told
