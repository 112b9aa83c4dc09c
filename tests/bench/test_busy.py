"""The subject `busy`: processes that end with it, quotas, turns and ratios, with entrants that only pretend."""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from heed.bench import busy, crowd
from heed.bench.busy import BusyReport, Cell, Entrant, Table
from heed.bench.contest import SPINNING, Process
from heed.bench.crowd import Condition, limited
from heed.bench.ours import Heed
from heed.bench.shapes import configured, write
from heed.bench.work import Work
from heed.threads.waiting import POLICY
from tests.bench.support import Fake, Missing

WORK = Work("train", "small", "fp32", 2, 4, threads=1)
PRETEND = """
import json, os, sys
print(json.dumps({"ready": {}}), flush=True)
for line in sys.stdin:
    assert line.split() == ["go", "3.0", "1.0"], line
    rate = 3.0 if os.environ["GOMP_SPINCOUNT"] == "10000" else 1.0
    print(json.dumps({"rate": rate * float(os.environ.get("OMP_NUM_THREADS", 2)), "cores": 0.5}), flush=True)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    for _ in range(100):
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


def children() -> list[int]:
    return [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def test_a_crowd_runs_and_ends_with_the_block() -> None:
    before = {*children()}
    with crowd.crowd(2):
        pids = {*children()} - before
        assert len(pids) == 2
    assert not any(map(alive, pids))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_crowd_ends_with_whoever_made_it(how: signal.Signals) -> None:
    script = (
        "import os, time\nfrom pathlib import Path\nfrom heed.bench.crowd import crowd\nwith crowd(1):\n"
        "    print(Path(f'/proc/self/task/{os.getpid()}/children').read_text(), flush=True)\n    time.sleep(60)"
    )
    bench = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert bench.stdout is not None
    pid = int(bench.stdout.readline())
    assert alive(pid)
    bench.send_signal(how)
    bench.wait()
    bench.stdout.close()
    assert gone(pid)


def test_where_no_group_may_be_made_a_process_is_stopped_half_of_the_time(tmp_path: Path) -> None:
    loop = subprocess.Popen([sys.executable, "-c", crowd.LOOP])
    try:
        with limited(0.5, tmp_path) as (how, join):
            join(loop.pid)
            assert len(os.sched_getaffinity(loop.pid)) == 1
            states = set()
            for _ in range(200):
                states.add(Path(f"/proc/{loop.pid}/stat").read_text().split()[2])
                time.sleep(0.005)
        assert how == "stopped and continued"
        assert "T" in states
        assert states - {"T"}
        time.sleep(0.05)
        assert Path(f"/proc/{loop.pid}/stat").read_text().split()[2] != "T", "it goes on afterwards"
    finally:
        loop.kill()
        loop.wait()


def test_everyone_takes_turns_under_every_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    entrants = (
        Entrant("heed", Fake(), POLICY),
        Entrant("heed-one-thread", Fake(), POLICY, 1),
        Entrant("torch", Fake(), SPINNING),
        Entrant("llama.cpp", Missing(), SPINNING),
        Entrant("transformers", Fake(), SPINNING),
    )
    monkeypatch.setitem(busy.ENTRANTS, "train", entrants)
    monkeypatch.setattr(busy, "REST", 0.0)

    def pretend(command: list[str], threads: int | None, waits: dict[str, str]) -> Process:
        return Process([sys.executable, "-c", PRETEND], threads, waits)

    monkeypatch.setattr(busy, "Process", pretend)
    table = busy.measure(WORK, None, 2, lambda text: None)
    assert [*table.cells] == ["heed", "heed-one-thread", "torch"], "transformers only if it is named"
    assert all([*cells] == [one.title for one in busy.CONDITIONS] for cells in table.cells.values())
    assert all(len(cell.rates) == 2 for cells in table.cells.values() for cell in cells.values())
    assert "pip install" in table.absent["llama.cpp"]
    assert table.ratio("heed", "torch", Condition(4)) == 3.0
    assert table.ratio("heed", "heed-one-thread", Condition(quota=0.5)) == 2.0
    report = BusyReport([table], {"cpu": "some"})
    told = json.loads(json.dumps(report.plain()))["tables"][0]
    assert told["ratios"]["beside 4"] == {"heed-one-thread": 2.0, "torch": 3.0, "fair share": 1.0}
    page = io.StringIO()
    report.show(Console(file=page, width=200))
    assert "beside 4: heed is 2.00 × heed-one-thread, 3.00 × torch; of a core 100% of idle" in page.getvalue()


def test_a_fair_share_is_of_a_core_that_is_received() -> None:
    table = Table(WORK, {"heed": {"beside 0": Cell([100.0], [2.0]), "beside 4": Cell([20.0], [0.5])}})
    assert table.fair("heed", Condition(4)) == pytest.approx(0.8)
    assert table.fair("heed", Condition(1)) is None
    assert table.ratio("heed", "torch", Condition(4)) is None


def test_a_training_keeps_its_threads_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that nobody holds would end at once, and give the threads back."""
    monkeypatch.setattr("heed.threads.teams.standard", lambda: 3)
    before = torch.get_num_threads()
    write(configured("small", trained=True), tmp_path / "checkpoint", weighs=False)
    prepared = Heed().prepare(replace(WORK, folder=str(tmp_path / "checkpoint")))
    gc.collect()
    assert torch.get_num_threads() == 3
    del prepared
    gc.collect()
    assert torch.get_num_threads() == before
