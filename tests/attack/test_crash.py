"""Crash chains and bit flips: works of heed's pass, and what loses something is found out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.attack.case import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and limits of processes are Linux's")

BEGIN = """
import json, os, sys, time
from tools.attack.warm import warm
from pathlib import Path
from random import Random
from tools.attack.crash import chain, crash, undisturbed
from tools.attack.materials import materials
from tools.attack.targets import TARGETS
from tools.attack.works import Appears
place, run = Path(sys.argv[1]), materials() / "run" / "plain"
"""
PLANTED = """
class Careless(Appears):
    name = "careless"
    def make(self, target):  # half of it can be seen
        with target.open("wb") as file:
            for _ in range(40):
                file.write(b"x" * 5000)
                file.flush()
                time.sleep(0.002)

class Fickle(Appears):
    name = "fickle"
    def make(self, target):
        target.write_bytes(os.urandom(9))

class Stuck(Appears):
    name = "stuck"
    def make(self, target):
        half = target.with_name("half")
        if half.exists():
            raise KeyError("half")
        half.write_text("half")
        time.sleep(0.2)
        half.rename(target)

class Segfault(Appears):
    name = "segfault"
    def make(self, target):
        if target.with_name("again").exists():
            os.kill(os.getpid(), 11)
        target.with_name("again").write_text("")
        time.sleep(0.2)
        target.with_name("again").unlink()
        target.write_text("whole")

found = {}
for kind in (Careless, Fickle, Stuck, Segfault):
    work = kind(run)
    whole = undisturbed(work, place / f"whole-{work.name}")
    told = [chain(work, whole, place / f"{work.name}-{seed}", Random(seed), ("kill",)).problems for seed in range(12)]
    found[work.name] = sorted({problem.partition(": ")[2] for problems in told for problem in problems})
print(json.dumps(found))
"""
HEALTHY = """
warm([TARGETS["run"]])
print(json.dumps(crash(run, place, 7, 8, 1, lambda words, share: None).plain()))
"""


def ran(script: str, place: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, str(place)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_works_that_lose_something_are_found_out(tmp_path: Path) -> None:
    found = ran(PLANTED, tmp_path)
    assert found["careless"] == ["lost after kill:  is missing or has other bytes"]
    assert any("not the same in the end" in problem or "lost" in problem for problem in found["fickle"])
    assert any("KeyError" in problem for problem in found["stuck"])
    assert any("ends with -11" in problem for problem in found["segfault"])


def test_works_of_heed_survive(tmp_path: Path) -> None:
    found = ran(HEALTHY, tmp_path)
    assert found["problems"] == []
    assert found["chains"]
    assert sum(count for name, count in found["strokes"].items() if "kill" in name) >= 8


def test_an_unlisted_file_is_a_missed_flip(tmp_path: Path) -> None:
    from tests.train.support import trained
    from tools.attack.flips import flips

    run = tmp_path / "run"
    trained(run)
    counts, missed = flips(run, tmp_path / "flipped", 3, 60)
    assert missed == []
    assert sum(count["flips"] for count in counts.values()) == 60
    (run / "notes.txt").write_text("no digest is kept of this")
    counts, missed = flips(run, tmp_path / "flipped", 3, 60)
    assert {line.rpartition(" of ")[2] for line in missed} == {"notes.txt"}
    assert counts["notes.txt"]["noticed"] == 0
