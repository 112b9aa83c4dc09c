"""How many threads, with readings made up: what was received and what was idle decide, what the user says wins."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from heed.threads import meter as measuring
from heed.threads import teams
from heed.threads.meter import LASTING, SHORTEST, Meter, Reading, Wanted, read, wanted
from heed.threads.openmp import SleepingTeam, runtime
from heed.threads.teams import Adapting, adapting, given, standard, team_size
from heed.threads.waiting import WAITING


class Machine:
    """Cores, of which others take some; a clock that is set forward by hand."""

    def __init__(self, cores: int) -> None:
        self.cores, self.now, self.own, self.idle, self.reads = cores, 100.0, 0.0, 0.0, 0
        self.waiting, self.lately, self.counts, self.bound = 0.0, 99.0, 1.0, cores

    def spend(self, seconds: float, own: float, idle: float) -> None:
        """So long, with so many cores for this process and so many for nobody."""
        self.now, self.own, self.idle = self.now + seconds, self.own + own * seconds, self.idle + idle * seconds

    def read(self) -> Reading:
        self.reads += 1
        return Reading(self.now, self.own, self.idle, self.counts * self.cores * self.now)

    def meter(self) -> Meter:
        return Meter(
            self.read,
            lambda: Wanted(self.lately, self.waiting),
            lambda: self.cores,
            lambda: self.bound,
            lambda: self.now,
        )


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Nobody has set a number of threads, and there are so many cores."""
    for name in teams.NUMBERS:
        monkeypatch.delenv(name, raising=False)

    def cores(count: int, threads: int | None = None) -> None:
        monkeypatch.setattr(teams, "bound_to", lambda: count)
        monkeypatch.setattr(teams, "available", lambda: count)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads or count)

    return cores


@pytest.mark.parametrize(
    ("own", "idle", "expected"),
    [
        (2.0, 0.0, 2),
        (0.67, 0.0, 1),
        (1.33, 0.0, 1),
        (1.6, 0.0, 2),
        (1.0, 1.0, 2),
        (1.0, 0.4, 1),
        (0.0, 0.0, 1),
        (0.1, 1.9, 2),
    ],
)
def test_what_is_received_and_what_is_idle(own: float, idle: float, expected: int) -> None:
    machine = Machine(2)
    machine.waiting = 99.0
    meter = machine.meter()
    for _ in range(2):
        meter.look()
        machine.spend(1.0, own, idle)
    assert meter.look() == expected


def test_it_gets_busy_and_quiet_again() -> None:
    """Fewer at once; more when two readings in a row agree."""
    machine = Machine(4)
    meter, seen = machine.meter(), []
    meter.look()
    for own, idle in [(3.9, 0.1), (1.3, 0.0), (0.9, 0.1), (1.0, 3.0), (1.0, 0.0), (1.0, 2.0), (1.0, 3.0), (4.0, 0.0)]:
        machine.spend(SHORTEST, own, idle)
        seen.append(meter.look())
    assert seen == [4, 1, 1, 1, 1, 1, 3, 4]


def test_readings_lie_apart() -> None:
    machine = Machine(2)
    meter = machine.meter()
    for _ in range(100):
        meter.look()
        machine.spend(SHORTEST / 8, 0.0, 0.0)
    assert machine.reads == 13, "one at once, one whenever a tenth of a second has passed"


def test_reading_takes_a_small_part_of_the_time() -> None:
    """Where there are hundreds of cores it takes milliseconds."""
    machine = Machine(2)

    def slow() -> Reading:
        machine.spend(0.006, 2.0, 0.0)
        return machine.read()

    meter = Meter(slow, Wanted, lambda: 2, lambda: 2, lambda: machine.now)
    for _ in range(1000):
        meter.look()
        machine.spend(0.01, 2.0, 0.0)
    assert 3 <= machine.reads <= 6


def test_quotas_are_read_now_and_then() -> None:
    machine = Machine(4)
    meter = machine.meter()
    machine.waiting = 0.0
    assert meter.look() == 4
    machine.cores = 2
    machine.spend(LASTING / 2, 4.0, 0.0)
    assert meter.look() == 4
    machine.spend(LASTING / 2, 4.0, 0.0)
    assert meter.look() == 2


def test_at_first_those_who_want_a_core_count() -> None:
    """By the load or by the moment, whichever is less."""
    machine = Machine(4)
    machine.waiting = 2.4
    assert machine.meter().look() == 2
    machine.waiting, machine.lately = 99.0, 1.2
    assert machine.meter().look() == 3
    machine.lately = 99.0
    assert machine.meter().look() == 1


def test_a_quota_is_of_a_larger_machine() -> None:
    """Others on other cores of it take nothing away."""
    machine = Machine(2)
    machine.bound, machine.waiting = 64, 30.0
    assert machine.meter().look() == 2


def test_after_a_pause_those_who_want_a_core_at_that_moment_count() -> None:
    """What others took in the meantime says nothing if they have ended."""
    machine = Machine(2)
    meter = machine.meter()
    machine.waiting = 2.0
    assert meter.look() == 1
    machine.spend(4.0, 0.2, 0.1)
    assert meter.look() == 1
    machine.spend(4.0, 0.2, 0.1)
    machine.waiting = 0.0
    assert meter.look() == 2, "at once"
    machine.spend(4.0, 0.0, 2.0)
    machine.waiting = 1.0
    assert meter.look() == 2, "a moment alone may be an odd one"


def test_a_system_that_counts_nothing_is_not_believed() -> None:
    machine = Machine(2)
    machine.counts = 0.0
    meter = machine.meter()
    meter.look()
    machine.spend(1.0, 0.5, 0.0)
    assert meter.look() == 2


def test_readings_are_of_the_cores_that_the_process_is_bound_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    rows = ["cpu  9 9 9 9 9 9 9 9 0 0"]
    rows += [f"cpu{core} {second} 0 {second} {10 * (core + 1) * second} {second} 0 0 {second} 0 0" for core in range(3)]
    stat.write_text("\n".join([*rows, "intr 5 6"]), encoding="ascii")
    monkeypatch.setattr(measuring, "affinity", lambda: frozenset({0, 2}))
    found = read(stat)
    assert (found.idle, found.counted) == (42.0, 48.0)
    assert read(tmp_path / "none").counted == 0.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.50 2.00 1.00 9/200 77", Wanted(3.5, 8.0)),
        ("9.00 2.00 1.00 2/200 77", Wanted(9.0, 1.0)),
        ("9 9 9 0/2 7", Wanted(9.0, 0.0)),
        ("odd", Wanted()),
    ],
)
def test_others_by_the_load_and_by_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: Wanted
) -> None:
    monkeypatch.setattr(measuring, "bound_to", lambda: 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    (tmp_path / "loadavg").write_text(text, encoding="ascii")
    assert wanted(tmp_path / "loadavg") == expected
    assert wanted(tmp_path / "none") == Wanted()
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert wanted(tmp_path / "loadavg") == Wanted(expected.lately / 2, expected.now / 2), "on half of the cores"


def test_who_runs_for_a_moment_more_wants_no_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "bound_to", lambda: 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    moments = iter((4, 2, 3, 9, 9))

    def passes(_: float = 0.0) -> None:
        (tmp_path / "loadavg").write_text(f"5.00 2.00 1.00 {next(moments)}/200 77", encoding="ascii")

    passes()
    monkeypatch.setattr(time, "sleep", passes)
    assert wanted(tmp_path / "loadavg") == Wanted(5.0, 1.0)


def test_a_number_that_the_user_has_set_wins(free: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    full = Machine(8)
    full.waiting = 99.0
    free(8)
    assert (given(), standard(), team_size(full.meter())) == (None, 8, 1)
    free(8, threads=4)  # torch's default where cores run two threads each
    assert (given(), standard(), team_size(full.meter())) == (None, 4, 1)
    free(8, threads=3)  # torch.set_num_threads(3)
    assert (given(), standard(), team_size(full.meter())) == (3, 3, 3)
    free(8, threads=12)
    assert (given(), team_size(full.meter())) == (12, 12)
    free(8)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert (given(), team_size(full.meter())) == (8, 8)


def test_a_quota_lowers_the_number(free: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    free(8)
    monkeypatch.setattr(teams, "available", lambda: 2)
    assert standard() == 2


def test_work_sleeps_soon_while_cores_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(2)
    monkeypatch.setattr(WAITING, "theirs", False)
    work, seen = Adapting(2, machine.meter()), []
    work.look()
    for own, idle in [(2.0, 0.0), (0.7, 0.0), (0.7, 0.0), (2.0, 0.0), (2.0, 0.0)]:
        machine.spend(1.0, own, idle)
        work.look()
        seen.append(work.crowded)
    work.end()
    assert seen == [False, True, True, True, False]


def test_where_the_user_has_said_how_to_wait_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(2)
    machine.waiting = 99.0
    monkeypatch.setattr(WAITING, "theirs", True)
    work = Adapting(2, machine.meter())
    work.look()
    assert not work.crowded


def test_the_number_of_threads_is_what_it_was_afterwards() -> None:
    before = torch.get_num_threads()
    with adapting(before + 1, Machine(9).meter()) as work:
        assert torch.get_num_threads() == before + 1
    assert not work.crowded
    assert torch.get_num_threads() == before


SPINNING = """
import os, time, torch
from heed.threads.openmp import SleepingTeam
torch.set_num_threads(2)
x = torch.ones(1 << 20)
def spun():
    x.add_(1)
    begin = time.process_time(); time.sleep(0.2)
    return time.process_time() - begin
def threads():
    return len(os.listdir("/proc/self/task"))
spun(); before, count = spun(), threads()
team = SleepingTeam(beside=2)
spun(); held, more = spun(), threads()
team.end()
spun()
print(before, held, spun(), more > count, threads() == count)
"""


@pytest.mark.skipif(runtime() is None, reason="not torch with the runtime of GNU")
def test_a_team_that_sleeps_makes_others_sleep_soon() -> None:
    own = {**os.environ, "OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "300000000"}  # seconds
    done = subprocess.run([sys.executable, "-c", SPINNING], check=True, capture_output=True, text=True, env=own)
    before, held, after, more, same = done.stdout.split()
    assert float(held) < 0.02 < min(float(before), float(after))
    assert (more, same) == ("True", "True")


def test_a_team_can_end_twice() -> None:
    team = SleepingTeam(beside=1)
    team.end()
    team.end()
    assert not team._holder.is_alive()
