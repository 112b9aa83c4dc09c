"""The rules that tests keep: children run this checkout, each test checks something, and none hangs in silence."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.children import ROOT, environment, names_checkout

TELL = "import heed; print(heed.__file__)"
CHECKS = frozenset({"raises", "warns", "fail", "assert_close", "assert_allclose", "assert_array_equal"})
# Tests without a check of their own, and what fails in them.
UNCHECKED = {
    "tests/test_docs.py::test_code_blocks_run": "the blocks of documents hold their own",
}


@pytest.mark.parametrize("given", [None, environment()], ids=["inherited", "own"])
@pytest.mark.parametrize("command", [["-c", TELL], ["-m", "heed", "--version"]], ids=["code", "module"])
def test_a_child_runs_this_checkout(command: list[str], given: dict[str, str] | None, tmp_path: Path) -> None:
    words = [sys.executable, *command] if command[0] == "-c" else [sys.executable, "-X", "importtime", *command]
    done = subprocess.run(words, env=given, cwd=tmp_path, capture_output=True, text=True, check=True)
    if command[0] == "-c":
        assert Path(done.stdout.strip()).parent == ROOT / "heed"
    assert done.stdout


@pytest.mark.parametrize("given", [{"PATH": "/bin"}, {"PYTHONPATH": "/elsewhere"}, {"PYTHONPATH": ""}])
def test_no_child_may_run_another_heed(given: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match=r"env=tests\.children\.environment\(\)"):
        subprocess.run([sys.executable, "-c", TELL], env=given, check=False)
    with pytest.raises(AssertionError, match="installed"):
        subprocess.run([sys.executable, "-I", "-m", "heed", "list"], env=given, check=False)
    alone = subprocess.run([sys.executable, "-I", "-S", "-c", "print(1)"], env=given, capture_output=True, check=True)
    assert alone.stdout.strip() == b"1"


def test_a_link_to_the_checkout_is_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "heed").symlink_to(ROOT / "heed")
    assert names_checkout({"PYTHONPATH": f"/elsewhere{os.pathsep}{tmp_path}"})
    assert names_checkout({b"PYTHONPATH": os.fsencode(tmp_path)})
    assert not names_checkout({"PYTHONPATH": str(tmp_path / "heed")})


# --- each test checks something ---


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def names(file: Path) -> dict[str, tuple[Path, ast.AST]]:
    """The functions and classes that a name of a test file stands for, its own and those of other files of tests."""
    found: dict[str, tuple[Path, ast.AST]] = {}
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests."):
            other = ROOT / f"{node.module.replace('.', '/')}.py"
            theirs = names(other) if other.is_file() else {}
            found |= {alias.asname or alias.name: theirs[alias.name] for alias in node.names if alias.name in theirs}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = file, node
    return found


def checks(file: Path, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether something in it can fail on purpose: an assertion, or a function of the tests that has one."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assert | ast.Raise):
            return True
        word = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
        if word in CHECKS:
            return True
        other, called = names(file).get(word, (file, node))
        if called is not node and called not in seen and checks(other, called, seen | {node}):
            return True
    return False


def all_tests(file: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def test_every_test_checks_something() -> None:
    """That nothing is raised is little: a value says whether the right thing happened."""
    idle = {
        f"{file.relative_to(ROOT).as_posix()}::{test.name}"
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for test in all_tests(file)
        if not checks(file, test)
    }
    assert idle == set(UNCHECKED)


def test_a_test_that_checks_nothing_is_found(tmp_path: Path) -> None:
    code = """
def helper(x):
    assert x

def loop(x):
    return loop(x - 1)

def test_idle():
    loop(1)
    str(2)

def test_by_a_helper():
    [helper(x) for x in (1, 2)]

def test_by_itself():
    assert loop
"""
    (tmp_path / "test_some.py").write_text(code)
    file = tmp_path / "test_some.py"
    assert [test.name for test in all_tests(file) if not checks(file, test)] == ["test_idle"]


# --- none hangs in silence ---

HANGS = """
import time
import pytest

def test_before():
    assert True

def test_that_hangs():
    time.sleep(60)

@pytest.mark.slow
def test_that_is_slow():
    time.sleep(1.5)

def test_after():
    assert True
"""


@pytest.mark.parametrize("workers", ["-pno:xdist", "-n1"])
def test_a_test_that_hangs_is_ended_and_named(workers: str, tmp_path: Path) -> None:
    """With the settings of this project but for the seconds: slow tests have a limit of their own."""
    (tmp_path / "test_some.py").write_text(HANGS)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_collection_modifyitems\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\nmarkers = slow\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rf", workers, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert "FAILED test_some.py::test_that_hangs - Failed: Timeout (>1.0s)" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 3 passed" in done.stdout


def test_there_is_a_limit(pytestconfig: pytest.Config) -> None:
    assert 60 <= float(pytestconfig.getini("timeout")) <= 600
