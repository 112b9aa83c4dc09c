"""Strangers' code, right and wrong: what runs, what is caught and mended, and that nothing right is accused."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from heed.check.bugs import BUGS
from heed.check.reports.report import Fix
from tests.check.strangers import CORPUS, Found, Stranger, applied, asked, problem, read, strangers, table

STRANGERS = {one.target: one for one in strangers()}
STYLES = 60
pytestmark = pytest.mark.timeout(2000)  # whoever comes first waits for all targets; each has a limit of its own
KNOWN: dict[str, str] = tomllib.loads((CORPUS / "misses.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """All targets, asked once, whichever worker comes first."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with open(folder / "strangers.lock", "w", encoding="utf-8") as lock:
        flock(lock, LOCK_EX)
        kept = folder / "strangers.jsonl"
        if not kept.exists():
            lines = [json.dumps(asdict(one)) for one in asked(list(STRANGERS))]
            kept.write_text("\n".join(lines), encoding="utf-8")
        return {one.target: one for one in map(read, kept.read_text(encoding="utf-8").splitlines())}


@pytest.mark.parametrize("target", STRANGERS)
def test_it_is_seen_for_what_it_is(target: str, found: dict[str, Found]) -> None:
    stranger, one = STRANGERS[target], found[target]
    assert problem(stranger, one) in {None, KNOWN.get(target)}, f"{stranger}\n{one}"


def share(held: Sequence[bool]) -> float:
    return sum(held) / len(held)


def test_the_rates(found: dict[str, Found]) -> None:
    pairs = [(stranger, found[target]) for target, stranger in STRANGERS.items()]
    print(table(pairs))
    problems = {stranger.target: problem(stranger, one) for stranger, one in pairs}
    real = [one for one in STRANGERS.values() if one.verdict != "not-attention"]
    wrong = [one for one in real if one.verdict == "wrong"]
    accused = [one for one in problems.values() if one in ("false finding", "taken for attention")]
    assert share([problems[one.target] != "does not run" for one in real]) >= 0.95
    assert accused == []
    assert share([problems[one.target] not in ("does not run", "not caught") for one in wrong]) >= 0.95
    assert share([problems[one.target] is None for one in wrong]) >= 0.90
    named = [one for one in wrong if problems[one.target] in (None, "not mended")]
    assert share([problems[one.target] is None for one in named]) >= 0.95  # what is named right is mended


def test_it_is_a_corpus() -> None:
    files = {target.partition(":")[0] for target in STRANGERS}
    there = {path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*") if path.suffix in (".py", ".ipynb")}
    assert len(files) >= STYLES
    assert len([one for one in STRANGERS.values() if one.verdict == "wrong"]) >= 50
    assert files <= there
    unused = {path for path in there - files if "/" not in path}  # packages have files that are no targets
    assert not unused, unused


def test_every_bug_is_among_them() -> None:
    named = {slug for one in STRANGERS.values() for slug in one.slugs}
    assert named == set(BUGS)


RIGHT, BUGGY = Stranger("a", "fine", ""), Stranger("a", "wrong", "", ("overflow", "raises"), fix=True)
NOTHING = Stranger("a", "not-attention", "")


@pytest.mark.parametrize(
    ("stranger", "found", "told"),
    [
        (RIGHT, Found("a", "unusual"), None),
        (RIGHT, Found("a", "wrong", ("overflow",)), "false finding"),
        (RIGHT, Found("a", "unchecked"), "does not run"),
        (BUGGY, Found("a", "wrong", ("overflow",), mended=True), None),
        (BUGGY, Found("a", "wrong", ("overflow",), mended=False), "not mended"),
        (BUGGY, Found("a", "wrong", ("overflow",)), "not mended"),
        (BUGGY, Found("a", "wrong", ("overflow", "head-mixing"), mended=True), "misnamed"),
        (BUGGY, Found("a", "unusual"), "not caught"),
        (BUGGY, Found("a", "refused"), "does not run"),
        (NOTHING, Found("a", "refused"), None),
        (NOTHING, Found("a", "fine"), "taken for attention"),
    ],
)
def test_problems_are_told(stranger: Stranger, found: Found, told: str | None) -> None:
    assert problem(stranger, found) == told


def test_a_fix_is_applied_at_its_line_only() -> None:
    text = "a = 1\na = 1\na = 1\n"
    assert applied(Fix("a.py", 2, "= 1\na", "= 2\nb", ""), text) == "a = 1\na = 2\nb = 1\n"
    assert applied(Fix("a.py", 1, "a", "b", ""), text) == "b = 1\na = 1\na = 1\n"
    with pytest.raises(AssertionError, match=r"a.py:1 does not hold 'b'"):
        applied(Fix("a.py", 1, "b", "c", ""), "a\nb")


def test_what_ends_its_process_takes_nobody_with_it(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos.kill(os.getpid(), 9)\n", encoding="utf-8")
    deadly, norm = f"{tmp_path}/deadly.py:A", "norms_wrong.py:RMSNorm"
    found = asked([deadly, deadly, norm])  # the first and the last share a process
    assert [one.verdict for one in found] == ["crashed", "crashed", "wrong"]
    assert "ended with -9" in found[0].words
