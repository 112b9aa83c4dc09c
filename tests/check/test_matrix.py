"""Every mutant is caught under its name; every correct attention passes."""

from __future__ import annotations

from typing import Any

import pytest

from heed.check import check
from heed.check.probes import PROBES
from tests.check.mutant_reports import report_of
from tests.check.mutants import CORRECT, MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_the_bug_is_named(name: str) -> None:
    assert MUTANTS[name][1] in report_of(name).slugs, str(report_of(name))


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 50
    assert len(CORRECT) >= 20


JUSTIFIED = {  # for each probe a mutant that it finds, and at most two others do
    "layout": "block: tokens first",
    "rows": "aside: a mean over the rows",
    "prefix": "fused: a mean over blocks",
    "future": "both: the switch is forgotten",
    "gradient": "fused: a mean over blocks",
    "past": "distances: weights without effect",
    "extent": "windowed: one too many",
    "mask": "block: no triangle beside padding",
    "alone": "cloned: scaled by the number of all tokens",
    "padding": "placed: places from the end",
    "dead-row": "classic: NaN replaced",
    "large": "cloned: small mask constant",
    "same": "distances: softmax over queries",
    "order": "aside: heads merged by view",
    "repeat": "fused: dropout in eval",
    "pure": "function: queries scaled in place",
    "gradients": "distances: weights without effect",
    "precision": "einsum: sum instead of softmax",
    "looking": "shown: no triangle where weights are shown",
    "cache": "storing: top-left triangle",
    "written-out": "classic: scale after the softmax",
    "scale": "classic: scale inverted",
    "shift": "falling: upwards",
    "source": "cloned: keys for values",
}


@pytest.mark.parametrize("probe", [probe.name for probe in PROBES])
def test_every_probe_is_justified(probe: str) -> None:
    found = {outcome.probe for outcome in report_of(JUSTIFIED[probe]).failed} & {probe.name for probe in PROBES}
    assert probe in found
    assert len(found) <= 3, found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", CORRECT)
def test_what_is_right_is_left_alone(name: str, seed: int) -> None:
    target, known = CORRECT[name]
    report = check(target, seed=seed, **known)
    assert report.ok, str(report)


def test_a_declared_property_is_held_against_it() -> None:
    known: dict[str, Any] = {"causal": True}
    assert "future-leak" in check(MUTANTS["classic: no scale, declared"][0].__mro__[1], **known).slugs
