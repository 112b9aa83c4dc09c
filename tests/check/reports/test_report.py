"""A report as a value: what it comes to, and that nothing is lost on the way through JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from heed.check.outcome import Clue, Outcome, Sure
from heed.check.reports.exports import as_json
from heed.check.reports.report import Fix, Line, Report, Verdict
from heed.check.reports.survey import Result, Survey
from tests.check.reports.made import FIX, HELD, LEAK, MOOT, ODD, report

WRONG, FINE, CANNOT = 1, 0, 2


@pytest.mark.parametrize(
    ("found", "verdict", "code"),
    [
        (report(HELD, MOOT), Verdict.FINE, FINE),
        (report(HELD, ODD), Verdict.UNUSUAL, FINE),
        (report(HELD, ODD, strict=True), Verdict.WRONG, WRONG),
        (report(HELD, LEAK), Verdict.WRONG, WRONG),
        (report(MOOT), Verdict.UNCHECKED, CANNOT),
        (report(), Verdict.UNCHECKED, CANNOT),
        (report(HELD, LEAK, accepted=("future-leak",)), Verdict.FINE, FINE),
        (report(LEAK, ODD, accepted=("future-leak",)), Verdict.UNUSUAL, FINE),
        (report(LEAK, ODD, accepted=("dead-row-nan",)), Verdict.WRONG, WRONG),
        (report(ODD, accepted=("dead-row-nan",), strict=True), Verdict.FINE, FINE),
    ],
)
def test_what_it_comes_to(found: Report, verdict: Verdict, code: int) -> None:
    assert found.verdict is verdict
    assert found.ok is (code == FINE)
    assert Result.of(found).code == code


def test_of_many_what_is_wrong_comes_first_then_what_was_not_checked() -> None:
    fine, wrong = Result.of(report(HELD)), Result.of(report(LEAK))
    missed = Result("x.py:A", problem="it cannot be built")
    known = Result("x.py:A", problem="it cannot be built", known=True)
    for results, code in (
        ([], CANNOT),
        ([fine], FINE),
        ([fine, known], FINE),
        ([fine, missed], CANNOT),
        ([missed, wrong, fine], WRONG),
    ):
        assert Survey(results).code == code


def test_nothing_is_lost_on_the_way_through_json() -> None:
    whole = report(
        HELD,
        LEAK,
        ODD,
        MOOT,
        conventions=[("mask", "True = hidden"), ("mask", "1 = seen")],  # two of one name
        seed=3,
        place=("model.py", 7),
        influence=[[1.0, 0.5], [0.25, 1.0]],
        expected=[[1.0, 0.0], [1.0, 1.0]],
        swept=["flash=True"],
        notes=["width was guessed"],
        unchecked=["the cache"],
        fixes={"future-leak": FIX},
        strict=True,
        accepted=["dead-row-nan"],
    )
    (leak, odd) = whole.likely
    whole = replace(whole, likely=[replace(leak, instead=("mask-inverted: see whether",)), odd])
    again = Report.of_data(json.loads(json.dumps(whole.as_data())))
    assert again.as_data() == whole.as_data()
    assert (again.verdict, again.slugs, again.fixes) == (whole.verdict, ["future-leak"], whole.fixes)
    assert again.likely[0].instead == ("mask-inverted: see whether",)
    assert str(again) == str(whole)


def test_what_is_no_number_is_null_for_strict_readers() -> None:
    nan = Outcome.broken("large", "NaN", Clue("overflow", Sure.LIKELY, "NaN"), error=math.nan, bound=math.inf)
    told = json.loads(as_json(report(nan)), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert (told["probes"][0]["error"], told["probes"][0]["bound"]) == (None, None)


def test_what_could_not_be_checked_has_the_same_keys_where_people_look() -> None:
    told = Result("x.py:A", problem="it cannot be built").as_data()
    assert (told["ok"], told["verdict"], told["problem"]) == (False, "could not be checked", "it cannot be built")
    checked = Result.of(report(LEAK)).as_data()
    assert set(told) <= set(checked)
    assert checked["problem"] is None
    empty = Result.of(report(MOOT, unchecked=["the mask"])).as_data()
    assert empty["problem"] == "no probe applied; the mask"


def test_a_fix_points_at_the_first_line_that_changes() -> None:
    fix = Fix("a.py", 3, "a = 1\nb = 2", "a = 1\nb = 3", "")
    assert (fix.spot.line, fix.spot.text) == (4, "b = 2")
    added = Fix("a.py", 3, "a = 1", "a = 1\nb = 3", "")
    assert (added.spot.line, added.spot.text) == (3, "a = 1")


def test_where_there_is_no_fix_there_is_a_line_to_look_at() -> None:
    look = Line("a.py", 7, "w = s.softmax(0)")
    told = replace(report(LEAK), fixes={}, looks={"future-leak": look})
    assert told.spot("future-leak") == look
    assert Report.of_data(told.as_data()).looks == {"future-leak": look}
    assert "a.py:7  look at  w = s.softmax(0)" in str(told)
