"""Reports made by hand, for tests of what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heed.check.diagnose import diagnosed
from heed.check.outcome import Clue, Outcome, Sure
from heed.check.reports.report import Fix, Report

LEAK = Outcome.broken(
    "future", "token 0 moves", Clue("future-leak", Sure.LIKELY, "token 0 moves with token 1"), error=0.5, bound=1e-9
)
ODD = Outcome.held("dead-row", "NaN", 0.0, 0.0, Clue("dead-row-nan", Sure.CONVENTION, "NaN where nothing is seen"))
HELD = Outcome.held("rows", "rows are independent")
MOOT = Outcome.moot("cache", "it keeps no cache")
FIX = Fix("model.py", 13, "ones.tril(diagonal=1)", "ones.tril()", "keep the diagonal and nothing above it")


def report(*outcomes: Outcome, target: str = "model.py:Attention", **more: Any) -> Report:
    """A report on these outcomes."""
    made = Report(target, "attention", "called with x", outcomes, diagnosed(outcomes), seconds=1.25)
    return replace(made, **more)
