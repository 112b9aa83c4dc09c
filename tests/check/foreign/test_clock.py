"""No verdict hangs on how fast a machine is: tries are counted, and a limit of time leaves out what others took."""

from __future__ import annotations

import os
import time

import pytest

from heed.check.foreign.contain import budget, clock
from heed.check.foreign.contain.budget import Budget
from heed.check.foreign.contain.clock import Clock
from heed.check.foreign.contain.limits import within
from tests.check.strangers import KNOWN, ask, problem, strangers

FASTER = 20
SLOW = (  # targets that take the most tries: of calls, of builds, of fixes
    "context_over_rows.py:BahdanauAttn",
    "reference_llama.py:Attention",
    "numpy_minded.py:attention",
    "soft_penalty.py:AudioSelfAttention",
    "static_cache_short.py:StaticCacheAttention",
    "allen_matrix.py:BilinearAttention",
    "detection_layers.py:TransformerEncoder",
)


@pytest.mark.parametrize("target", SLOW)
def test_a_clock_that_runs_faster_changes_no_verdict(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that is slower by so much, or that has so many others to serve."""
    real = time.process_time
    monkeypatch.setattr(budget, "process_time", lambda: FASTER * real())
    monkeypatch.setattr(clock, "monotonic", lambda: FASTER * real())
    stranger = next(one for one in strangers() if one.target == target)
    assert problem(stranger, ask(target)) == KNOWN.get(target)


def test_a_budget_is_a_number_of_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(budget, "process_time", lambda: now[0])
    tries = Budget(5, seconds=1.0, least=2)
    assert [tries.spent() for _ in range(6)] == [False] * 5 + [True]
    tries = Budget(5, seconds=1.0, least=2)
    now[0] = 2.0
    assert [tries.spent() for _ in range(3)] == [False, False, True]


def test_time_without_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = [100.0], [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    monkeypatch.setattr(clock, "_waited", lambda file: waited[0])
    one = Clock()
    now[0], waited[0] = 130.0, 28.0
    assert one.seconds == 2.0


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the system does not tell it")
def test_it_reads_what_the_system_tells() -> None:
    told = clock._waited("/proc/self/schedstat")
    assert 0.0 <= told < 1e6
    assert clock._waited("/proc/none/schedstat") == 0.0
    assert Clock(os.getpid()).seconds < 60.0


def test_what_sleeps_is_ended_all_the_same() -> None:
    with within(0.05) as deadline:
        time.sleep(30)
    assert deadline.over
