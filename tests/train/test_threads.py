"""The number of threads of a training: recorded, kept by a resume, told where it changes; waiting changes no bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from heed.runs import Run
from heed.show.progress import Silent
from heed.threads import teams
from heed.threads.meter import Meter, Reading, Wanted
from heed.threads.waiting import WAITING
from heed.train import resume
from heed.train.checkpoint import found
from tests.train.support import resumed, same_run, trained


class Heard(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Nobody has set a number; there are so many cores, of which torch's default is one thread each."""
    for name in teams.NUMBERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(WAITING, "late", False)

    def cores(count: int) -> None:
        torch.set_num_threads(count)
        monkeypatch.setattr(teams, "bound_to", lambda: count)
        monkeypatch.setattr(teams, "available", lambda: count)

    cores(2)
    return cores


def recorded(path: Path) -> list[int]:
    return [json.loads((place / "progress.json").read_text())["threads"] for place in found(Run.open(path))]


def test_a_resume_keeps_the_number_that_the_run_began_with(tmp_path: Path, free: Callable[[int], None]) -> None:
    trained(tmp_path / "whole")
    trained(tmp_path / "cut", "training.steps=3")
    free(5)  # another machine, or another quota
    resumed(tmp_path / "cut", "training.steps=6")
    assert recorded(tmp_path / "whole") == recorded(tmp_path / "cut") == [2, 2]
    same_run(tmp_path / "whole", tmp_path / "cut")
    assert torch.get_num_threads() == 5, "what it was before"


def test_a_number_of_the_recipe_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path / "own", "training.threads=1")
    assert recorded(tmp_path / "own") == [1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    trained(tmp_path / "environment")
    assert recorded(tmp_path / "environment") == [2, 2]


def test_another_number_is_told(tmp_path: Path) -> None:
    trained(tmp_path / "run", "training.steps=3")
    heard = Heard()
    resume(tmp_path / "run", ["training.steps=6", "training.threads=1"], heard)
    assert any("1 thread, 2 before" in line and "training.threads=2" in line for line in heard.lines)
    assert recorded(tmp_path / "run") == [2, 1]


def test_a_machine_that_gets_busy_and_quiet_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path / "quiet")
    seconds = iter(range(1000))
    seen: list[bool] = []

    def read() -> Reading:
        now = next(seconds)
        return Reading(now, own=2.0 * now if now % 4 < 2 else 0.0, counted=2.0 * now)

    meter = Meter(read, lambda: Wanted(0.0, 9.0), lambda: 2, lambda: 2, lambda: float(len(seen)))
    look = teams.Adapting.look

    def looked(self: teams.Adapting) -> None:
        self._meter = meter
        look(self)
        seen.append(self.crowded)

    monkeypatch.setattr(WAITING, "theirs", False)
    monkeypatch.setattr(teams.Adapting, "look", looked)
    trained(tmp_path / "busy")
    assert {True, False} == set(seen), "it was both"
    same_run(tmp_path / "quiet", tmp_path / "busy")
