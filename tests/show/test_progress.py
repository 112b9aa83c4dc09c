"""Plain lines about a long work: how far it is, and how long it will take."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from heed.show import progress
from heed.show.progress import QUIET, Reporter, clock


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599, "59:59"), (3600, "1:00:00"), (36061, "10:01:01")],
)
def test_a_clock_carries_minutes_into_hours(seconds: float, words: str) -> None:
    assert clock(seconds) == words


def test_lines_come_now_and_then_and_at_the_end_and_count_from_where_the_work_went_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    reporter = Reporter(Console(file=(told := io.StringIO()), width=200))
    with reporter.counting("training", 100, done=60):  # sixty were made before: they say nothing of the speed
        for step, wait in ((61, 1.0), (70, QUIET), (71, 1.0), (100, 1.0)):
            now[0] += wait
            reporter.at(step, "loss 2.0")
    assert told.getvalue().splitlines() == [
        "training: 70 of 100 · loss 2.0 · 0:33 left",  # eleven seconds for ten steps
        "training: 100 of 100 · loss 2.0 · 0:00 left",
    ]
