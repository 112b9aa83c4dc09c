"""Every mutant is caught under its name; every correct attention passes."""

from __future__ import annotations

from typing import Any

import pytest

from heed.check import check
from tests.check.mutants import CORRECT, MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_the_bug_is_named(name: str) -> None:
    kind, slug, known = MUTANTS[name]
    report = check(kind, **known)
    assert slug in report.slugs, str(report)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", CORRECT)
def test_what_is_right_is_left_alone(name: str, seed: int) -> None:
    target, known = CORRECT[name]
    report = check(target, seed=seed, **known)
    assert report.ok, str(report)


def test_a_declared_property_is_held_against_it() -> None:
    known: dict[str, Any] = {"causal": True}
    assert "future-leak" in check(MUTANTS["classic: no scale, declared"][0].__mro__[1], **known).slugs
