"""What is found out about each mutant, once for all tests."""

from __future__ import annotations

from functools import cache

from heed.check import Report, check
from tests.check.mutants import MUTANTS


@cache
def report_of(name: str) -> Report:
    """The report on a mutant."""
    target, _, known = MUTANTS[name]
    return check(target, **known)
