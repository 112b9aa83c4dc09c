"""The report in a terminal: the verdict first, findings as seen, where and fix, and nothing that nobody asked for."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from heed.check.reports import render, table
from heed.check.reports.survey import Result, Survey
from tests.check.reports.made import FIX, HELD, LEAK, MOOT, ODD, report


def lines(found: object, **how: bool) -> list[str]:
    console = Console(file=StringIO(), width=100, no_color=True)
    if isinstance(found, Survey):
        table.show(found, console, **how)
    else:
        render.show(found, console, **how)  # type: ignore[arg-type]
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def after(told: list[str], word: str) -> str:
    """What stands beside a word."""
    (line,) = [line for line in told if line.strip().startswith(word)]
    return line.strip().removeprefix(word).strip()


@pytest.mark.parametrize(
    ("found", "first"),
    [
        (report(HELD, LEAK), "model.py:Attention: wrong: future-leak · 2 probes, 1.2 s"),
        (report(HELD, MOOT, swept=["a"]), "model.py:Attention: nothing wrong · 1 probe, 1 other setting, 1.2 s"),
        (report(ODD), "model.py:Attention: nothing wrong, but unusual: dead-row-nan · 1 probe, 1.2 s"),
        (report(MOOT), "model.py:Attention: could not be checked: no probe applied · 0 probes, 1.2 s"),
        (
            report(HELD, unchecked=["the scale"]),
            "model.py:Attention: nothing wrong in what was checked; not all could be · 1 probe, 1.2 s",
        ),
        (
            report(HELD, LEAK, accepted=["future-leak"]),
            "model.py:Attention: nothing wrong (accepted: future-leak) · 2 probes, 1.2 s",
        ),
    ],
)
def test_the_first_line_is_the_verdict(found: object, first: str) -> None:
    assert lines(found)[0] == first


def test_a_finding_with_a_place_in_the_code_says_where_and_what_instead() -> None:
    here = replace(FIX, file=str(Path("models/model.py").resolve()))
    told = lines(report(LEAK, fixes={"future-leak": here}, place=("model.py", 3)))
    assert after(told, "seen") == "token 0 moves with token 1"
    assert after(told, "where") == "models/model.py:13  ones.tril(diagonal=1)"
    assert after(told, "fix") == "keep the diagonal and nothing above it"
    assert "- ones.tril(diagonal=1)" in "\n".join(told)
    assert "+ ones.tril()" in "\n".join(told)
    assert "such as" not in "\n".join(told), "the general example is not shown beside the one for this code"


def test_what_else_it_may_be_is_told() -> None:
    (leak,) = report(LEAK).likely
    both = replace(leak, instead=("mask-inverted: give it an empty mask",))
    assert after(lines(report(LEAK, likely=[both])), "or") == "mask-inverted: give it an empty mask"


def test_without_one_it_shows_the_target_and_an_example() -> None:
    told = lines(report(LEAK, place=("model.py", 3)))
    assert after(told, "where") == "model.py:3"
    assert after(told, "such as").startswith("- ")


def test_the_order_is_findings_then_not_checked_then_what_was_guessed() -> None:
    whole = report(
        HELD, LEAK, ODD, unchecked=["the cache"], notes=["width=24 is a guess"], conventions=[("scale", "1/√d")]
    )
    told = lines(whole)
    places = [
        next(i for i, line in enumerate(told) if word in line)
        for word in (
            "future-leak ·",
            "dead-row-nan ·",
            "not checked",
            "taken for",
            "width=24 is a guess",
            "scale: 1/√d",
        )
    ]
    assert places == sorted(places)


def test_probes_are_listed_only_if_asked_for() -> None:
    assert not any("rows are independent" in line for line in lines(report(HELD, MOOT)))
    told = lines(report(HELD, MOOT), probes=True)
    assert any(line.split() == ["✓", "rows", "rows", "are", "independent"] for line in told)
    assert any(line.split()[:2] == ["·", "cache"] for line in told)


def test_many_targets_are_one_table_with_details_of_what_is_wrong() -> None:
    survey = Survey(
        [
            Result.of(report(HELD, target="a.py:Right")),
            Result.of(report(LEAK, target="b.py:Wrong")),
            Result.of(report(ODD, LEAK, target="c.py:Known", accepted=["future-leak"])),
            Result("d.py:Odd", problem="it is unknown what Odd wants"),
        ],
        seconds=9.87,
        notes=["e.py:3: SyntaxError: invalid syntax"],
        stale=[("c.py:Known", "wrong-scale")],
    )
    told = lines(survey)
    assert " ".join(told[:2]).strip() == (
        "4 targets: 1 wrong, 1 could not be checked, 1 nothing wrong, but unusual, 1 nothing wrong · 9.9 s; "
        "1 finding accepted by the baseline"
    )
    rows = {line.split()[0]: line for line in told if line.startswith(("a.py", "b.py", "c.py", "d.py"))}
    assert rows["a.py:Right"].split() == ["a.py:Right", "nothing", "wrong", "1.2"]
    assert "future-leak (accepted)" in rows["c.py:Known"]
    assert "dead-row-nan" in rows["c.py:Known"]
    text = "\n".join(told)
    assert "b.py:Wrong: wrong: future-leak" in text, "details of what is wrong"
    assert "a.py:Right: nothing wrong" not in text, "and of nothing else"
    assert "a.py:Right: nothing wrong" in "\n".join(lines(survey, details=True))
    assert "it is unknown what Odd wants" in text
    assert "  c.py:Known: wrong-scale" in told
    assert "  e.py:3: SyntaxError: invalid syntax" in told


def test_nothing_found_is_said_and_not_cleared() -> None:
    assert lines(Survey([]))[0].startswith("nothing attention-like was found: nothing was checked")


def test_what_was_not_reached_is_counted() -> None:
    (first, *_) = lines(Survey([Result.of(report(HELD))], left=3))
    assert first.endswith("interrupted: 3 targets not reached")
