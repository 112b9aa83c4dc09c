"""Every mutant is caught under its name; every correct attention passes."""

from __future__ import annotations

from typing import Any

import pytest

from heed.check import check
from tests.check.mutant_reports import report_of
from tests.check.mutants import CORRECT, MUTANTS
from tests.check.test_branches import ASK, BRANCHES, failing


@pytest.mark.parametrize("name", MUTANTS)
def test_the_bug_is_named(name: str) -> None:
    assert MUTANTS[name][1] in report_of(name).slugs, str(report_of(name))


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 50
    assert len(CORRECT) >= 20


ALONE: dict[str, str | tuple[str, str]] = {  # for each probe a mutant, or a branch, that it finds and no other does
    "layout": "block: tokens first",
    "rows": ("rows", "counted"),
    "prefix": ("prefix", "length, beside itself"),
    "future": "both: the switch is forgotten",
    "gradient": ("gradient", "alone"),
    "past": ("past", "nothing before"),
    "extent": "windowed: one too many",
    "mask": "block: no triangle beside padding",
    "alone": ("alone", "louder"),
    "padding": "placed: places from the end",
    "dead-row": "classic: NaN replaced",
    "large": "cloned: small mask constant",
    "same": "turned: values, too",
    "order": "aside: heads merged by view",
    "repeat": "fused: dropout in eval",
    "pure": "function: queries scaled in place",
    "gradients": ("gradients", "reached"),
    "precision": ("precision", "rounded"),
    "looking": "shown: no triangle where weights are shown",
    "cache": "storing: top-left triangle",
    "written-out": "classic: scale after the softmax",
    "scale": "classic: scale inverted",
    "shift": "falling: upwards",
    "source": "cloned: keys for values",
}
BEFORE = {"order": {"same", "written-out"}}  # it speaks only where they have seen tokens mixed up


@pytest.mark.parametrize("probe", ASK)
def test_every_probe_has_a_fault_that_it_alone_finds(probe: str) -> None:
    """A probe that has none here is one without which nothing would be missed."""
    fault = ALONE[probe]
    if isinstance(fault, str):
        found = {outcome.probe for outcome in report_of(fault).failed} & ASK.keys()
    else:
        target, declared, _, _ = BRANCHES[fault[0]][fault[1]]
        found = failing(target, **declared)
    assert found - BEFORE.get(probe, set()) == {probe}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", CORRECT)
def test_what_is_right_is_left_alone(name: str, seed: int) -> None:
    target, known = CORRECT[name]
    report = check(target, seed=seed, **known)
    assert report.ok, str(report)


def test_a_declared_property_is_held_against_it() -> None:
    known: dict[str, Any] = {"causal": True}
    assert "future-leak" in check(MUTANTS["classic: no scale, declared"][0].__mro__[1], **known).slugs
