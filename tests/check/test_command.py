"""`heed check` as a command and as a pytest plugin: exit codes, files, messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from heed.cli import app

WRONG = """
def attend(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if mask is not None:
        scores.masked_fill(mask == 0, float("-inf"))
    return scores.softmax(-1) @ value
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(WRONG)
    return f"{path}:attend"


def test_what_is_wrong_is_exit_code_1_with_files_for_machines(target: str, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("o.xml", "o.sarif", "o.html")}
    given = ["--junit", "o.xml", "--sarif", "o.sarif", "--html", "o.html"]
    options = [str(files.get(word, word)) for word in given]
    done = CliRunner().invoke(app, ["check", target, "--json", *options])
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert [one["slug"] for one in found["likely"] if one["fails"]] == ["mask-ignored"]
    suite = ET.fromstring(files["o.xml"].read_text())
    assert [c.get("name") for c in suite if c.find("failure") is not None] == ["mask"]
    (result,) = json.loads(files["o.sarif"].read_text())["runs"][0]["results"]
    assert result["ruleId"] == "mask-ignored"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("mine.py")
    assert place["region"]["startLine"] == 5  # where the fix belongs
    page = files["o.html"].read_text()
    assert "mask-ignored" in page
    assert "http" not in page.replace("http-equiv", "")


def test_what_is_right_is_exit_code_0() -> None:
    done = CliRunner().invoke(app, ["check", "torch.nn:LayerNorm"])
    assert done.exit_code == 0, done.output
    assert "nothing wrong" in done.output


def test_bad_options() -> None:
    for words in (["--init", "{"], ["--init", "[1]"], ["--scale", "big"]):
        assert CliRunner().invoke(app, ["check", "torch.nn:LayerNorm", *words]).exit_code == 2


def test_a_target_that_hangs_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text("import time\n\n\ndef attend(query, key, value):\n    time.sleep(60)\n")
    command = [sys.executable, "-m", "heed", "check", f"{path}:attend", "--timeout", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "was not done after 1 s" in done.stderr


def test_the_pytest_plugin(target: str, tmp_path: Path) -> None:
    test = tmp_path / "test_mine.py"
    test.write_text("import torch\n\n\ndef test_norm(heed_check):\n    heed_check(torch.nn.LayerNorm)\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(test), "--heed", target],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed, 1 passed" in ran.stdout
    assert "mask-ignored" in ran.stdout


def test_what_leaves_the_process_is_not_cleared(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import os\n\n\ndef attend(query, key, value):\n    os._exit(0)\n")
    done = CliRunner().invoke(app, ["check", f"{path}:attend"])
    assert done.exit_code == 2, done.output
