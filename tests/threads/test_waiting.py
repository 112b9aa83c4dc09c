"""The waiting policy: set before torch is loaded, never against the user, told of once where it came too late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest

from heed.threads.waiting import LATE, POLICY, THEIRS, Waiting

TOLD = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {THEIRS!r}}}))"
# What libgomp read: its thread goes on spinning after an operator of torch, and that is CPU time while nothing is done.
SPUN = """
import time
x = torch.ones(1 << 20); torch.set_num_threads(2)
for _ in range(3): x.add_(1)
begin = time.process_time(); time.sleep(0.3); print(time.process_time() - begin)
"""


def child(script: str, **variables: str) -> str:
    """What a process says in which nobody has set anything else."""
    own = {name: value for name, value in os.environ.items() if name not in {*THEIRS, "OMP_NUM_THREADS"}}
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env={**own, **variables}
    )
    return done.stdout.splitlines()[-1]


def test_import_heed_sets_it_without_torch() -> None:
    found = json.loads(child(f"import heed, sys; assert 'torch' not in sys.modules\n{TOLD}"))
    assert found == {"OMP_WAIT_POLICY": None, **POLICY}


@pytest.mark.parametrize("name", THEIRS)
def test_what_the_user_has_set_stays_and_nothing_is_set_beside(name: str) -> None:
    found = json.loads(child(f"import heed\n{TOLD}", **{name: "7"}))
    assert found == {**dict.fromkeys(THEIRS), name: "7"}


def test_the_command_line_sets_it_before_torch() -> None:
    found = json.loads(child(f"import heed.cli\n{TOLD}"))
    assert found == {"OMP_WAIT_POLICY": None, **POLICY}


@pytest.mark.skipif(sys.platform != "linux", reason="other runtimes")
def test_torch_that_comes_later_waits_so() -> None:
    """A spin of 30 million would last longer than the process sleeps; ours is over at once."""
    assert float(child(f"import torch\n{SPUN}", GOMP_SPINCOUNT="300000000")) > 0.05
    assert float(child(f"import heed, torch\n{SPUN}")) < 0.05


def test_too_late_is_told_once_and_only_where_it_matters() -> None:
    waiting, found = Waiting(), dict[str, str]()
    waiting.begin(found, loaded=True)
    assert waiting.late
    assert not found, "nothing would come of it"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        waiting.advise(threads=1)

    def thrice() -> None:
        for _ in range(3):
            waiting.advise(threads=2)

    with pytest.warns(UserWarning, match="import heed first") as told:
        thrice()
    assert [str(warning.message) for warning in told] == [LATE]


@pytest.mark.parametrize("loaded", [False, True])
def test_a_user_is_not_advised(loaded: bool) -> None:
    waiting = Waiting()
    waiting.begin({"OMP_WAIT_POLICY": "ACTIVE"}, loaded)
    assert waiting.theirs
    assert not waiting.late
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        waiting.advise(threads=8)


def test_what_is_inherited_from_a_process_with_heed_is_ours() -> None:
    waiting, found = Waiting(), dict(POLICY)
    waiting.begin(found, loaded=True)
    assert not waiting.theirs
    assert not waiting.late
    assert found == POLICY
