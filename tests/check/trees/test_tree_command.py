"""`heed check` on folders, files and several targets: one table, files for machines, baselines, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from heed.check.trees import job
from heed.cli import app

RIGHT = """
import torch
print("at import")


def attend(query, key, value):
    print("at call")
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value
"""
WRONG = """
def attend(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if mask is not None:
        scores.masked_fill(mask == 0, float("-inf"))
    return scores.softmax(-1) @ value
"""
ODD = """
from torch import nn


class Attention(nn.Module):
    def __init__(self, oddity):
        super().__init__()
        raise ValueError("this is no oddity")

    def forward(self, x):
        return x
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an attention that is right, one that is wrong, and one that nobody can build."""
    (tmp_path / "code").mkdir()
    for name, text in (("right", RIGHT), ("wrong", WRONG), ("odd", ODD)):
        (tmp_path / "code" / f"{name}.py").write_text(text)
    (tmp_path / "code" / "plain.py").write_text("raise SystemExit('this has nothing to check, and is not imported')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def heed(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["check", *words])
    assert done.exit_code == code, done.output
    return done


def told(done: Result) -> dict[str, Any]:
    return {one["target"]: one for one in json.loads(done.stdout)["results"]}


def test_a_folder_is_one_table_and_files_for_machines(tree: Path) -> None:
    done = heed("code", "--junit", "o.xml", "--sarif", "o.sarif", "--html", "o.html", "--quiet", code=1)
    assert done.stdout.startswith("3 targets: 1 wrong, 1 could not be checked, 1 nothing wrong")
    assert "code/wrong.py:attend" in done.stdout
    assert "this is no oddity" in " ".join(done.stdout.split())
    suite = ET.fromstring((tree / "o.xml").read_text())
    assert [(case.get("classname"), [part.tag for part in case]) for case in suite] == [
        ("code/odd.py", ["error"]),
        ("code/right.py", []),
        ("code/wrong.py", ["failure"]),
    ]
    (run,) = json.loads((tree / "o.sarif").read_text())["runs"]
    (found,) = run["results"]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "code/wrong.py"
    assert (tree / "o.html").read_text().count("<details") == 3


def test_json_is_all_that_goes_to_the_standard_output(tree: Path) -> None:
    command = [sys.executable, "-m", "heed", "check", "code", "torch.nn:LayerNorm", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [one["verdict"] for one in found["results"]] == [
        "could not be checked",
        "nothing wrong",
        "wrong",
        "nothing wrong",
    ]
    assert not found["ok"]


LOUD = """
import atexit, os, sys
print("at import")
atexit.register(lambda: os.write(1, b"at the end"))


def attend(query, key, value):
    print("in Python", flush=True)
    sys.__stdout__.write("around it")
    os.write(1, b"below it")
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value
"""


@pytest.mark.parametrize(("name", "code"), [("attend", 0), ("nothing", 2)])
def test_json_of_one_target_is_valid_whatever_the_target_prints(tree: Path, name: str, code: int) -> None:
    (tree / "loud.py").write_text(LOUD)
    command = [sys.executable, "-m", "heed", "check", f"loud.py:{name}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    assert found["target"] == f"loud.py:{name}"
    assert found["ok"] is (code == 0)
    if code:
        assert "has no 'nothing'" in found["problem"]
        assert "has no 'nothing'" in done.stderr


def test_a_baseline_accepts_what_is_there_and_nothing_new(tree: Path) -> None:
    done = heed("code", "--write-baseline", "--quiet", "--json")
    assert {name: one["ok"] or one["known"] for name, one in told(done).items()} == dict.fromkeys(told(done), True)
    assert json.loads((tree / "heed-baseline.json").read_text())["accepted"] == {
        "code/odd.py:Attention": ["unchecked"],
        "code/wrong.py:attend": ["mask-ignored"],
    }
    (tree / "code" / "wrong.py").write_text("# a line more\n" + WRONG)
    done = heed("code/wrong.py", "--baseline", "heed-baseline.json", "--quiet")
    assert "mask-ignored (accepted)" in done.stdout
    (tree / "code" / "wrong.py").write_text(WRONG.replace("query @", "query.mul_(2) @"))
    heed("code/wrong.py:attend", "--baseline", "heed-baseline.json", code=1)
    (tree / "code" / "wrong.py").write_text(RIGHT)
    done = heed("code/wrong.py:attend", "--baseline", "heed-baseline.json")
    assert "code/wrong.py:attend: mask-ignored" in done.stdout, "it is told that the entry is stale"
    heed("code/wrong.py", "--write-baseline", "--quiet")
    assert "code/wrong.py:attend" not in (tree / "heed-baseline.json").read_text()


def test_a_baseline_that_is_not_there_is_told_before_anything_runs(tree: Path) -> None:
    done = CliRunner().invoke(app, ["check", "code", "--baseline", "gone.json"])
    assert done.exit_code == 1
    assert "there is no baseline gone.json; --write-baseline makes one" in str(done.exception)


def test_strict_counts_what_is_unusual(tree: Path) -> None:
    target = "torch.nn:MultiheadAttention"
    fast = ["--only", "dead-row", "--only", "rows"]
    assert "nothing wrong, but unusual: dead-row-nan" in heed(target, *fast).stdout
    assert "wrong: dead-row-nan" in heed(target, "--strict", *fast, code=1).stdout
    done = heed(target, "code/right.py", "--strict", "--json", "--quiet", *fast, code=1)
    assert told(done)[target]["verdict"] == "wrong"


def test_nothing_to_check_is_said_and_fails_unless_that_is_allowed(tree: Path) -> None:
    done = heed("code/plain.py", code=2)
    assert "nothing attention-like was found" in done.stdout
    heed("code/plain.py", "--allow-none")


def test_what_is_for_one_target_is_refused_for_many(tree: Path) -> None:
    for words in (["--init", '{"a": 1}'], ["--adapter", "a.py:b"]):
        done = heed("code", *words, code=2)
        assert "are for one target" in done.output


def test_all_lists_the_probes() -> None:
    quick = ["torch.nn:LayerNorm", "--all"]
    assert len(heed(*quick).stdout.splitlines()) > len(heed(*quick[:1]).stdout.splitlines())
    assert "✓" in heed(*quick).stdout
    assert "✓" not in heed(*quick[:1]).stdout


def test_trouble_of_heed_itself_is_one_line_and_a_traceback_only_if_asked_for(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "locate", lambda name: {}[name])
    words = ["code/right.py:attend", "--adapter", "code/right.py:attend"]
    done = heed(*words, code=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("heed: heed itself failed with KeyError: 'code/right.py:attend'")
    assert "--adapter" in line
    verbose = heed(*words, "--verbose", code=2).stderr
    assert verbose.startswith("Traceback")
    assert verbose.endswith(done.stderr)


def test_ctrl_c_tells_what_was_found_until_then(tree: Path) -> None:
    mark = tree / "started"
    slow = (
        f"import time\n\n\ndef attend(query, key, value):\n    open({str(mark)!r}, 'w').close()\n    time.sleep(100)\n"
    )
    (tree / "code" / "zzz.py").write_text(slow)
    command = [sys.executable, "-m", "heed", "check", "code/right.py", "code/zzz.py", "--jobs", "1"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(600):
        if mark.exists():
            break
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=280)
    assert run.returncode == 130, err
    assert out.splitlines()[0].startswith("1 target: 1 nothing wrong")
    assert "interrupted: 1 target not reached" in " ".join(out.split())
    assert "Traceback" not in err


def test_folders_of_models_are_recognised_among_other_targets() -> None:
    golden = Path(__file__).parents[2] / "golden" / "gpt2" / "lm"
    found = told(heed(str(golden), "torch.nn:LayerNorm", "--json", "--quiet"))
    assert list(found) == [str(golden), "torch.nn:LayerNorm"]
    assert found[str(golden)]["kind"] == "a model over token ids"
