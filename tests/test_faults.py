"""The planted faults: every entry of the list fits the code of today, and `make mutants` judges rightly."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.test_architecture import ROOT
from tools.faultlist import BadList, Fault, complaints, read
from tools.mutants import Broken, Result, Verdict, _shared, chosen, judged, newer, share, table

CODE = """\
def total(numbers):
    while len(numbers) > 1:
        numbers = [numbers[0] + numbers[1], *numbers[2:]]
    return sum(numbers)
"""
TESTS = """\
from pathlib import Path
import subprocess, sys

from heed.sums import total

def test_total():
    assert total([1, 2, 3]) == 6

def test_a_child_runs_this_copy():
    command = [sys.executable, "-c", "import heed.sums as s; print(s.__file__)"]
    told = subprocess.run(command, capture_output=True, text=True)
    assert Path(told.stdout.strip()) == Path(__file__).parent.parent / "heed/sums.py"
"""


def fault(name: str, old: str, new: str, **more: str) -> Fault:
    return Fault("heed", name, "heed/sums.py", old, new, ("tests/test_sums.py",), **more)


NOTICED = fault("a sign is wrong", "numbers[0] + numbers[1]", "numbers[0] - numbers[1]")
HANGS = fault("nothing gets shorter", "*numbers[2:]", "*numbers[1:]")
MISSED = fault("the bound is another", "> 1", "> 0 and len(numbers) != 1 or False")
CRASHES = fault("the process dies", "return sum(numbers)", "import os; os.abort()")
SAME = fault("the bound is another, as is known", "> 1", ">= 2", equivalent="lengths are whole")
CLAIMED = fault("a wrong claim", "return sum", "return -sum", equivalent="a sign is nothing")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    for name, text in {"heed/__init__.py": "", "heed/sums.py": CODE, "tests/test_sums.py": TESTS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:heed\n")  # the plugin of the heed that is not here
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.py")}
    yield tmp_path
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.py")} == before  # only copies are changed


def test_every_entry_of_the_list_fits_the_code() -> None:
    faults = read(ROOT)
    assert faults
    assert list(complaints(ROOT, faults)) == []


def test_verdicts(project: Path) -> None:
    faults = [NOTICED, HANGS, MISSED, CRASHES, SAME, CLAIMED]
    results = judged(project, faults, jobs=1, limit=10, tell=False, loaded=())
    assert [result.name for result in results] == [fault.name for fault in faults]
    verdicts = [Verdict.NOTICED, Verdict.TIMEOUT, Verdict.UNNOTICED, Verdict.CRASH, Verdict.EQUIVALENT, Verdict.WRONG]
    assert [result.verdict for result in results] == verdicts
    assert results[0].by == "tests/test_sums.py::test_total"
    assert share(results) == 3 / 5
    lines = list(table(results))
    assert lines[1].split() == ["heed", "6", "3", "1", "2", "60%"]
    assert lines[-2:] == [f"{result.verdict}: heed: {result.name}" for result in (results[2], results[5])]


def test_slow_is_not_noticed(project: Path) -> None:
    (project / "tests/test_sums.py").write_text(TESTS + "\ndef test_slow():\n    __import__('time').sleep(5)\n")
    with pytest.raises(Broken, match="without it, its tests take more than 3 s as well"):
        judged(project, [MISSED], jobs=1, limit=3, tell=False, loaded=())
    (project / "tests/test_sums.py").write_text(TESTS)


def test_tests_must_pass_without_a_fault(project: Path) -> None:
    (project / "tests/test_sums.py").write_text(TESTS + "\ndef test_wrong():\n    assert total([1]) == 2\n")
    with pytest.raises(Broken, match="test_wrong"):
        judged(project, [NOTICED], jobs=1, limit=10, tell=False, loaded=())
    (project / "tests/test_sums.py").write_text(TESTS)


def test_a_test_that_pytest_does_not_find_is_no_notice(project: Path) -> None:
    with pytest.raises(Broken, match="not found: .*test_total"):
        judged(project, [replace(NOTICED, tests=("tests/test_sums.py::test_total[2]",))], 1, 10, tell=False, loaded=())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"file": "heed/gone.py"}, "no heed/gone.py"),
        ({"old": "absent"}, "occurs 0 times"),
        ({"old": "numbers"}, "times in heed/sums.py; needed is exactly once"),
        ({"new": "numbers[0] + numbers[1]"}, "nothing would change"),
        ({"new": "numbers[0] +"}, "is no Python"),
        ({"package": "core"}, "belongs into tools/faults/heed.toml"),
        ({"tests": ()}, "no test is named"),
        ({"tests": ("tests/gone.py",)}, "no tests/gone.py"),
        ({"tests": ("tests/test_sums.py::test_gone[a]",)}, "has no test_gone"),
    ],
)
def test_complaints(project: Path, change: dict[str, str], complaint: str) -> None:
    assert list(complaints(project, [NOTICED])) == []
    (told,) = complaints(project, [replace(NOTICED, **change)])  # type: ignore[arg-type]
    assert complaint in told


def test_names_are_unique(project: Path) -> None:
    (told,) = complaints(project, [NOTICED, NOTICED])
    assert NOTICED.name in told


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[fault]\n", "Expected"),
        ("[[faults]]\n", "holds faults"),
        ("[[fault]]\nname = 'a'\n", "lacks"),
        ("[[fault]]\nwhy = 'a'\n", "unknown keys"),
        ("[[fault]]\nname='a'\nfile='b'\nold='c'\nnew='d'\ntests='e'\n", "is a list"),
        ("[[fault]]\nname='a'\nfile='b'\nold=1\nnew='d'\ntests=['e']\n", "must be text"),
    ],
)
def test_a_list_that_cannot_be_read(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "tools/faults").mkdir(parents=True)
    (tmp_path / "tools/faults/heed.toml").write_text(text)
    with pytest.raises(BadList, match=complaint):
        read(tmp_path)


def test_a_sample_is_drawn_by_its_seed_and_leaves_out_equivalent_ones() -> None:
    faults = [replace(NOTICED, name=f"fault {number}") for number in range(30)]
    some = chosen([*faults, SAME], "", 0.1, "a")
    assert len(some) == 3
    assert some == chosen([*faults, SAME], "", 0.1, "a")
    assert any(some != chosen([*faults, SAME], "", 0.1, seed) for seed in "bcd")
    assert not any(SAME in chosen([SAME, NOTICED], "", 0.5, str(seed)) for seed in range(20))
    assert chosen([*faults, SAME], "*as is known", 1.0, "") == [SAME]
    assert chosen([NOTICED, SAME], "heed", 1.0, "") == [NOTICED, SAME]


def test_a_share_of_nothing_is_whole() -> None:
    assert share([]) == share([Result("heed", "a", Verdict.EQUIVALENT, 1.0, "")]) == 1.0


def test_workers_share_the_tests_and_leave_files_whole() -> None:
    tests = [("a.py", "b.py::one"), ("c.py",), ("b.py::two", "a.py")]
    faults = [replace(NOTICED, name=str(number), tests=some) for number, some in enumerate(tests)]
    assert _shared(faults, 1) == [["a.py", "b.py::one", "b.py::two", "c.py"]]
    assert _shared(faults, 2) == [["a.py", "c.py"], ["b.py::one", "b.py::two"]]
    assert _shared(faults, 9) == [["a.py"], ["b.py::one", "b.py::two"], ["c.py"]]


def test_only_faults_that_are_new_since_a_commit(tmp_path: Path) -> None:
    """Or that plant something else; other tests make no other fault."""
    entry = "[[fault]]\nname = {!r}\nfile = 'b'\nold = 'c'\nnew = {!r}\ntests = ['e']\n"
    place = tmp_path / "project" / "tools/faults/heed.toml"
    place.parent.mkdir(parents=True)
    place.write_text(entry.format("kept", "d") + entry.format("changed", "d"), encoding="utf-8")
    git = ("git", "-c", "user.name=a", "-c", "user.email=b", "-C", str(tmp_path / "project"))
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], check=True)
    text = entry.format("kept", "d").replace("'e'", "'f'") + entry.format("changed", "x") + entry.format("more", "d")
    place.write_text(text, encoding="utf-8")
    faults = read(tmp_path / "project")
    (tmp_path / "before").mkdir()
    found = newer(faults, tmp_path / "project", "HEAD", tmp_path / "before")
    assert [fault.name for fault in found] == ["changed", "more"]
    with pytest.raises(BadList, match="--since nowhere"):
        newer(faults, tmp_path / "project", "nowhere", tmp_path)
