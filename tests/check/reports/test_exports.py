"""Files for other tools: JUnit, SARIF and HTML, of one target and of many."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from heed.check.reports import exports
from heed.check.reports.page import page, pages
from heed.check.reports.report import nearby
from heed.check.reports.sarif import repository, sarif
from heed.check.reports.survey import Result, Survey
from tests.check.reports.made import FIX, HELD, LEAK, MOOT, ODD, report


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder within a repository."""
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "src"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def run_of(*results: Result) -> Any:
    (run,) = json.loads(sarif(results))["runs"]
    return run


def place_of(result: Any) -> Any:
    return result["locations"][0]["physicalLocation"]


def test_paths_in_sarif_are_seen_from_the_root_of_the_repository(here: Path) -> None:
    leak = report(LEAK, target="model.py:Attention", place=(str(here / "model.py"), 4))
    run = run_of(Result.of(leak))
    (found,) = run["results"]
    assert place_of(found) == {
        "artifactLocation": {"uri": "src/model.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 4},
    }
    assert run["originalUriBaseIds"]["%SRCROOT%"]["uri"] == f"{here.parent.as_uri()}/"
    assert (found["ruleId"], found["level"]) == ("future-leak", "error")
    assert run["tool"]["driver"]["rules"][found["ruleIndex"]]["id"] == "future-leak"


def test_a_fix_gives_the_line_of_its_expression(here: Path) -> None:
    fix = replace(FIX, file=str(here / "model.py"))
    leak = report(LEAK, place=(str(here / "model.py"), 4), fixes={"future-leak": fix})
    (found,) = run_of(Result.of(leak))["results"]
    assert place_of(found)["region"] == {"startLine": 13}
    assert "+ ones.tril()" in found["message"]["text"]


def test_what_lies_elsewhere_is_named_whole(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("site-packages") / "theirs.py"
    (found,) = run_of(Result.of(report(LEAK, place=(str(elsewhere), 1))))["results"]
    assert place_of(found)["artifactLocation"] == {"uri": elsewhere.as_uri()}


@pytest.mark.usefixtures("here")
def test_many_targets_are_one_run_and_each_rule_is_told_once() -> None:
    one, other = report(LEAK, ODD, target="a.py:A"), report(LEAK, target="b.py:B", accepted=["future-leak"])
    missed = Result("c.py:C", problem="cannot be built", place=("c.py", 2))
    run = run_of(Result.of(one), Result.of(other), missed)
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["dead-row-nan", "future-leak"]
    assert [(r["ruleId"], r["level"], "suppressions" in r) for r in run["results"]] == [
        ("future-leak", "error", False),
        ("dead-row-nan", "note", False),
        ("future-leak", "error", True),
    ]
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    (told,) = invocation["toolExecutionNotifications"]
    assert told["message"]["text"] == "c.py:C: cannot be built"
    assert place_of(told)["region"] == {"startLine": 2}


def test_an_alarm_is_known_again_when_lines_move_and_wherever_it_is_asked_for(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mark(target: str, line: int) -> Any:
        (found,) = run_of(Result.of(report(LEAK, target=target, place=("model.py", line))))["results"]
        return found["partialFingerprints"]

    assert mark("model.py:A", 3) == mark("model.py:A", 30)
    assert mark("model.py:A", 3) != mark("model.py:B", 3)
    within = mark("model.py:A", 3)
    monkeypatch.chdir(here.parent)
    assert mark("src/model.py:A", 3) == within


def test_strict_is_an_error_in_sarif() -> None:
    (found,) = run_of(Result.of(report(ODD, strict=True)))["results"]
    assert found["level"] == "error"


def test_a_folder_without_a_repository_is_its_own_root(tmp_path: Path) -> None:
    assert repository(tmp_path) == tmp_path


def test_junit_of_many_has_a_case_for_each() -> None:
    survey = Survey(
        [
            Result.of(report(HELD, target="a.py:A")),
            Result.of(report(LEAK, target="b.py:B", place=("b.py", 7))),
            Result("c.py:C", problem="cannot be built\x00"),
            Result("d.py:D", problem="cannot be built", known=True),
            Result.of(report(LEAK, target="e.py:E", accepted=["future-leak"])),
        ]
    )
    suite = ET.fromstring(exports.junit_of(survey))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    told = {case.get("name"): [part.tag for part in case] for case in suite}
    assert told == {"A": [], "B": ["failure"], "C": ["error"], "D": ["skipped"], "E": ["system-out"]}
    (failure,) = suite.iter("failure")
    assert failure.get("type") == "future-leak"
    assert "token 0 moves with token 1" in str(failure.text)
    assert [(case.get("file"), case.get("line")) for case in suite if case.get("file")] == [("b.py", "7")]


def test_junit_of_one_has_a_case_for_each_probe() -> None:
    suite = ET.fromstring(exports.junit(report(HELD, LEAK, MOOT)))
    told = {case.get("name"): [part.tag for part in case] for case in suite}
    assert told == {"rows": [], "future": ["failure"], "cache": ["skipped"]}


def test_a_page_shows_the_fix_for_this_code_and_escapes_what_strangers_write() -> None:
    fix = replace(FIX, before="a<b", words="because <i>")
    text = page(report(LEAK, target="<script>.py:A", fixes={"future-leak": fix}, unchecked=["the <mask>"]))
    assert "<script>" not in text
    for part in ("a&lt;b", "because &lt;i&gt;", "model.py:13", "the &lt;mask&gt;"):
        assert part in text


def test_a_page_of_many_has_a_table_and_folded_details() -> None:
    survey = Survey(
        [
            Result.of(report(HELD, target="a.py:A")),
            Result.of(report(LEAK, target="b.py:B")),
            Result("c.py:<C>", problem="cannot be <built>"),
        ],
        stale=[("d.py:D", "wrong-scale")],
    )
    text = pages(survey)
    assert text.count("<details") == len(survey.results)
    assert text.count('<details id="t1" open>') == 1, "what is wrong is open"
    assert text.count(" open>") == 1
    for number in range(len(survey.results)):
        assert f'href="#t{number}"' in text
        assert f'id="t{number}"' in text
    assert "c.py:&lt;C&gt;" in text
    assert "cannot be &lt;built&gt;" in text
    assert "d.py:D: wrong-scale" in text
    assert "http" not in text


def test_a_path_is_seen_from_a_folder_only_if_it_lies_below_it(tmp_path: Path) -> None:
    assert nearby(str(tmp_path / "a" / "b.py"), tmp_path) == "a/b.py"
    assert nearby(str(tmp_path / "b.py"), tmp_path / "a") == (tmp_path / "b.py").as_posix()
