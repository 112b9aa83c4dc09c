"""The Action for GitHub and the hook for pre-commit: they are whole, and their commands do what they should."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import environment
from tools.dist import ROOT

ACTION: Any = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of somebody, with a space in its name."""
    place = tmp_path / "their project"
    (place / "code").mkdir(parents=True)
    (place / "code" / "wrong.py").write_text(WRONG)
    (place / "right.py").write_text(RIGHT)
    (place / "plain.py").write_text("raise SystemExit('it has no attention, and is not imported')\n")
    return place


def filled(text: str, inputs: dict[str, str]) -> str:
    """What GitHub makes of an expression: what is given, or the default."""
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: inputs.get(m[1], ACTION["inputs"][m[1]]["default"]), text)


def play(name: str, folder: Path, inputs: dict[str, str], path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A step that runs in a shell, as GitHub runs it."""
    step = STEPS[name]
    own = {key: filled(value, inputs) for key, value in step["env"].items()}
    env = {**environment(folder), **own, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    if path is not None:
        env["PATH"] = os.pathsep.join((str(path), env["PATH"]))
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_action_is_whole() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for name, given in ACTION["inputs"].items():
        assert given["description"], name
        assert isinstance(given["default"], str), f"{name}: an input is a text"
    assert all(step.get("shell") == "bash" for step in STEPS.values() if "run" in step)
    used = set(re.findall(r"inputs\.([\w-]+)", yaml.safe_dump(ACTION["runs"])))
    assert used == ACTION["inputs"].keys()


def test_nothing_that_is_given_becomes_a_part_of_a_script() -> None:
    assert not [name for name, step in STEPS.items() if "${{" in step.get("run", "")]


def test_it_finds_what_is_wrong_and_writes_a_file_for_code_scanning(folder: Path) -> None:
    done = play("heed check", folder, {"targets": "code\nright.py", "arguments": "--timeout 60 --quiet"})
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("2 targets: 1 wrong, 1 nothing wrong")
    summary = (folder / "summary.md").read_text()
    assert summary.startswith("```text\n2 targets")
    (run,) = json.loads((folder / "heed.sarif").read_text())["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["mask-ignored"]
    assert {path.name for path in folder.iterdir()} == {"code", "right.py", "plain.py", "summary.md", "heed.sarif"}


def test_it_takes_a_baseline_and_strictness(folder: Path) -> None:
    accepted = {"code/wrong.py:attend": ["mask-ignored"]}
    (folder / "known findings.json").write_text(json.dumps({"version": 1, "accepted": accepted}))
    done = play("heed check", folder, {"baseline": "known findings.json", "sarif": "out.sarif"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "out.sarif").exists()
    more = "--only dead-row --only rows"
    given = {"targets": "torch.nn:MultiheadAttention", "arguments": more}
    assert play("heed check", folder, given).returncode == 0
    assert play("heed check", folder, {**given, "strict": "true"}).returncode == 1


def test_it_installs_what_is_asked_for(folder: Path, tmp_path: Path) -> None:
    """With a python that only writes down what it is told, and has no torch."""
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "python"
    fake.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/told.txt\n[ "$1" != -c ]\n')
    fake.chmod(0o755)

    def told(**inputs: str) -> list[str]:
        (tmp_path / "told.txt").write_text("")
        done = play("Install heed", folder, inputs, tmp_path / "bin")
        assert done.returncode == 0, done.stderr
        return (tmp_path / "told.txt").read_text().splitlines()

    asked, torch, heed = told()
    assert asked == "-c import torch"
    assert torch.startswith("-m pip install torch --index-url ")
    assert heed == "-m pip install heed-attention"
    first, *_, last = told(requirements="needed.txt", version="==0.1.0; echo gone")
    assert first == "-m pip install -r needed.txt"
    assert last == "-m pip install heed-attention==0.1.0; echo gone", "whatever is given is one word"


def hooked(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """The hook on the files that pre-commit would give it."""
    kept = [file for file in files if not re.search(HOOK["exclude"], file)]
    entry = HOOK["entry"].split()
    assert entry[0] == "heed"
    command = [sys.executable, "-m", *entry, *kept]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


def test_the_hook_checks_the_files_of_a_commit(folder: Path) -> None:
    done = hooked(folder, "right.py", "plain.py")
    assert done.returncode == 0, done.stdout + done.stderr
    done = hooked(folder, "code/wrong.py", "plain.py", "tests/helper.py", "test_it.py")
    assert done.returncode == 1
    assert "code/wrong.py:attend: wrong: mask-ignored" in done.stdout
    done = hooked(folder, "plain.py")
    assert done.returncode == 0, "a commit without attention is fine"


def test_the_hook_is_one_that_pre_commit_takes() -> None:
    assert {"id", "name", "entry", "language"} <= HOOK.keys()
    assert HOOK["types"] == ["python"]
    for name in ("tests/a.py", "src/test/a.py", "test_a.py", "src/test_a.py", "conftest.py", "setup.py"):
        assert re.search(HOOK["exclude"], name), name
    for name in ("latest/a.py", "attest.py", "src/contest_setup.py"):
        assert not re.search(HOOK["exclude"], name), name


def test_the_hook_under_pre_commit_itself(folder: Path, tmp_path: Path) -> None:
    if shutil.which("pre-commit") is None or shutil.which("git") is None:
        pytest.skip("pre-commit and git are not both installed")
    hooks, bin_ = tmp_path / "hooks", tmp_path / "bin"
    hooks.mkdir()
    bin_.mkdir()
    (hooks / ".pre-commit-hooks.yaml").write_text(yaml.safe_dump([HOOK]))
    (bin_ / "heed").write_text(f'#!/bin/sh\nexec {sys.executable} -m heed "$@"\n')
    (bin_ / "heed").chmod(0o755)
    env = environment(folder) | {"PRE_COMMIT_HOME": str(tmp_path / "home")}
    env["PATH"] = os.pathsep.join((str(bin_), env["PATH"]))

    def run(*words: str, place: Path = folder) -> subprocess.CompletedProcess[str]:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org") if words[0] == "git" else ()
        words = (words[0], *who, *words[1:])
        return subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, check=False)

    run("git", "init", "-q", place=hooks), run("git", "add", ".", place=hooks)
    assert run("git", "commit", "-qm", "hooks", place=hooks).returncode == 0
    revision = run("git", "rev-parse", "HEAD", place=hooks).stdout.strip()
    config = {"repos": [{"repo": str(hooks), "rev": revision, "hooks": [{"id": HOOK["id"]}]}]}
    (folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    run("git", "init", "-q"), run("git", "add", ".")
    done = run("pre-commit", "run", "--all-files")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "code/wrong.py:attend: wrong: mask-ignored" in done.stdout
    (folder / "code" / "wrong.py").write_text(RIGHT)
    run("git", "add", ".")
    done = run("pre-commit", "run", "--all-files")
    assert done.returncode == 0, done.stdout + done.stderr
