"""A model card may be published: it names no folder of its author's, and its commands work where the folder is."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heed
from heed.cli import app
from heed.core.laws import Finding
from heed.runs import Run
from heed.runs.card import write_card

TINY = ["model.width=16", "model.depth=1", "task.context=16", "training.save=2", "training.evaluate=2"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of a text that lies in a folder with a telling name."""
    (tmp_path / "secret-home").mkdir()
    (tmp_path / "secret-home" / "diary.txt").write_text("dear diary, all work and no play.\n" * 40)
    data, out = tmp_path / "secret-home" / "diary.txt", tmp_path / "run"
    return heed.train("characters", data=data, steps=2, batch=128, out=out, settings=TINY, quiet=True).path


def test_files_are_named_by_name_size_and_digest(run: Path, tmp_path: Path) -> None:
    card, file = (run / "README.md").read_text(), tmp_path / "secret-home" / "diary.txt"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert f"| train | `diary.txt` | {file.stat().st_size:,} | `{digest}` |" in card
    assert 'header = "auto"' in card
    assert str(tmp_path) not in card
    assert "secret-home" not in card


def test_what_was_learnt_from_stays_when_the_file_is_gone_or_another(run: Path, tmp_path: Path) -> None:
    heed.eval(run, quiet=True)
    before = (run / "README.md").read_text()
    assert "| valid | loss |" in before
    with (tmp_path / "secret-home" / "diary.txt").open("a") as file:
        file.write("one more day, all work and no play.\n" * 9)
    heed.eval(run, quiet=True)
    rows = [line for line in (run / "README.md").read_text().splitlines() if "diary.txt" in line]
    assert rows == [line for line in before.splitlines() if "diary.txt" in line]


def test_findings_are_told_and_stay_when_metrics_come(run: Path) -> None:
    write_card(Run.open(run), [Finding("split", 1e-12, 1e-9, ""), Finding("padding", 0.5, 1e-9, "")])
    heed.eval(run, quiet=True)
    card = (run / "README.md").read_text()
    assert "| split | holds | 1.0e-12 | 1e-09 |" in card
    assert "| padding | FAILS | 5.0e-01 | 1e-09 |" in card
    assert "| valid | loss |" in card


def test_the_commands_of_the_card_work_wherever_the_folder_is(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "elsewhere" / "renamed")
    monkeypatch.chdir(tmp_path / "elsewhere" / "renamed")
    card = Path("README.md").read_text()
    commands = re.findall(r"^heed (.*)$", card.split("## Use")[1].split("## ")[0], re.MULTILINE)
    assert commands == ['run . "..."', "eval ."]
    for words in (["run", ".", "dear", "--max-new-tokens", "3"], ["eval", "."]):
        assert CliRunner().invoke(app, words).exit_code == 0


def test_only_the_configuration_knows_where_the_data_lay(run: Path) -> None:
    """docs/training.md says so: it is what to look at before a run is published."""
    heed.eval(run, quiet=True)
    told = {path.name for path in run.iterdir() if path.is_file() and b"secret-home" in path.read_bytes()}
    assert told == {"config.json"}
    assert json.loads((run / "config.json").read_text())["data"]["train"].endswith("secret-home/diary.txt")
    assert Run.open(run).recipe.base is None
