"""Targets in processes of their own: what one does to its process, no other meets, and the answer always comes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from heed.check.reports.report import Verdict
from heed.check.reports.survey import Result
from heed.check.trees import job
from heed.check.trees.find import Target, expanded
from heed.check.trees.job import Options
from heed.check.trees.pool import Worker, each

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there a worker is started for every target")
HOSTILE = """
import os, signal, sys, time
print("at import")


def attention(query, key, value):
    print("at call", flush=True)
    os.write(1, b"beside Python")
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value


def attention_that_crashes(query, key, value):
    os.kill(os.getpid(), signal.SIGSEGV)


def attention_that_leaves(query, key, value):
    os._exit(0)


def attention_that_changes_all(query, key, value):
    import torch
    torch.softmax = torch.Tensor.softmax = None
    os.chdir("/")
    sys.path.clear()
    raise RuntimeError("and then this")


def attention_at_the_end(query, key, value):
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value
"""


def test_whatever_a_target_does_the_others_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "hostile.py"
    path.write_text(HOSTILE)
    targets = expanded([str(path)]).targets
    assert len(targets) == 5
    found = {result.target.rpartition(":")[2]: result for result in each(targets, Options(), jobs=1)}
    assert found["attention"].verdict is Verdict.FINE
    assert found["attention_at_the_end"].verdict is Verdict.FINE
    assert "ended by SIGSEGV" in found["attention_that_crashes"].problem
    assert "leaves the process" in found["attention_that_leaves"].problem
    assert found["attention_that_changes_all"].code > 0
    assert found["attention_that_crashes"].place == (str(path), targets[1].place[1])  # type: ignore[index]


DEAF = """
import signal, time


def attention(q, k, v):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    while True:
        time.sleep(1)
"""


def test_a_target_that_does_not_hear_of_its_time_limit_is_ended(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(DEAF)
    (result,) = each([Target(f"{tmp_path / 'deaf.py'}:attention")], Options(timeout=0.5))
    assert "was not done after 0.5 s and did not stop" in result.problem


SLOW = """
import os, time


def attention(q, k, v):
    with open({mark!r}, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(100)
"""


def test_a_worker_that_is_closed_ends_its_target(tmp_path: Path) -> None:
    path, mark = tmp_path / "slow.py", tmp_path / "pid"
    path.write_text(SLOW.format(mark=str(mark)))
    worker, answers = Worker(), list[Result]()
    asking = Thread(target=lambda: answers.append(worker.ask(Target(f"{path}:attention"), Options())))
    asking.start()
    child = int(waited(mark))
    worker.close()
    asking.join(timeout=30)
    (answer,) = answers
    assert answer.code == 2
    for _ in range(100):
        if not lives(child):
            break
        time.sleep(0.1)
    assert not lives(child)


def waited(path: Path) -> str:
    """What a process writes to a file, as soon as it has."""
    for _ in range(600):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.1)
    pytest.fail(f"{path} was not written")


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_that_ends_is_started_again(tmp_path: Path) -> None:
    worker = Worker()
    try:
        assert worker.ask(Target("torch.nn:LayerNorm"), Options()).verdict is Verdict.FINE
        assert worker._process is not None
        worker._process.kill()
        worker._process.wait()
        assert worker.ask(Target("torch.nn:LayerNorm"), Options()).verdict is Verdict.FINE
    finally:
        worker.close()


def test_no_file_of_the_folder_passes_for_a_module_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "heed", "select", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    worker = Worker()
    try:
        assert worker.ask(Target("torch.nn:LayerNorm"), Options()).verdict is Verdict.FINE
    finally:
        worker.close()


# --- one target, in this process ---


def test_trouble_of_heed_itself_clears_nothing_and_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(target: object, **spec: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(job, "check", broken)
    result = job.checked("a.py:A", "a.py:A", Options())
    assert (result.code, result.verdict, result.slugs) == (2, Verdict.UNCHECKED, [])
    assert result.problem.startswith("heed itself failed with KeyError: 'no such thing' at ")
    assert " at heed/check/trees/job.py:" in result.problem
    assert "--adapter FILE.py:fn" in result.problem
    assert "\n" not in result.problem
    assert result.traceback.startswith("Traceback")


def test_the_options_reach_the_check(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def call(target, x):\n    return target(x, x, x)[0]\n")
    options = Options(
        init={"embed_dim": 8, "num_heads": 2},
        adapter=f"{tmp_path / 'mine.py'}:call",
        only=["rows", "repeat"],
        skip=["repeat"],
        seed=3,
        strict=True,
    )
    result = job.checked("torch.nn:MultiheadAttention", "mine", options)
    assert result.report is not None
    assert (result.target, result.report.target, result.report.seed, result.report.strict) == ("mine", "mine", 3, True)
    assert [outcome.probe for outcome in result.report.outcomes] == ["rows"]
