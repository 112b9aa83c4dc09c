"""A training that was stopped, however rudely, goes on as if it had not been: to the last bit."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed.core.errors import ConfigError, RunError
from heed.runs import Run, load
from heed.runs.evaluate import evaluate
from heed.show.progress import Silent
from heed.train import checkpoint
from tests.train.support import metrics, recipe, resumed, same_run, trained

AVERAGES = {
    "none": (),
    "ema": ("training.average.kind=ema", "training.average.decay=0.9"),
    "tail": ("training.average.kind=tail", "training.average.share=0.9", "training.average.every=2"),
}


def stop_after(monkeypatch: pytest.MonkeyPatch, saves: int, how: Callable[[], None]) -> None:
    """So many files of checkpoints are written, then something happens."""
    real, written = save_file, [0]

    def save(tensors: dict[str, Tensor], path: Path) -> None:
        written[0] += 1
        if written[0] > saves:
            how()
        real(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", save)


@pytest.mark.parametrize("average", AVERAGES)
def test_stopped_and_resumed_is_never_stopped(average: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = (*AVERAGES[average], "training.accumulate=2", "training.log=2")  # half a report is remembered too
    trained(tmp_path / "whole", *changes)
    with monkeypatch.context() as patch:  # the disk is full at the second checkpoint, after step 6
        stop_after(patch, len(checkpoint.PARTS) + 1, lambda: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
        with pytest.raises(RunError, match="could not be written.*no space"):
            trained(tmp_path / "cut", *changes)
    assert [path.name for path in checkpoint.found(Run(tmp_path / "cut"))] == ["00000003"]
    outcome = resumed(tmp_path / "cut")
    assert outcome.finished
    assert outcome.progress.step == 6
    assert same_run(tmp_path / "whole", tmp_path / "cut")


KILLED = """
import os, signal, sys
from heed.train import checkpoint
from tests.train.support import trained
from pathlib import Path
real, files = checkpoint.save_file, []
def save(tensors, path):
    files.append(path)
    if len(files) == 6:  # in the middle of the second checkpoint, with a file half written
        path.write_bytes(b"half a file")
        os.kill(os.getpid(), signal.SIGKILL)
    real(tensors, path)
checkpoint.save_file = save
trained(Path(sys.argv[1]))
"""


def test_killed_while_saving(tmp_path: Path) -> None:
    trained(tmp_path / "whole")
    process = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "cut"], check=False, env=one_thread())
    assert process.returncode == -signal.SIGKILL
    assert list((tmp_path / "cut" / "state").glob(".00000006.*.new"))  # being written; nobody takes it for whole
    resumed(tmp_path / "cut")
    assert same_run(tmp_path / "whole", tmp_path / "cut")
    assert not list((tmp_path / "cut" / "state").glob(".*"))


def test_a_polite_stop_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.train.support import recipe; from heed.train import train;"
        "from heed.show.progress import Reporter; from rich.console import Console;"
        "train(recipe('training.steps=100000', 'training.log=1'), Path(sys.argv[1]), Reporter())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "cut"], stderr=subprocess.PIPE, text=True, env=one_thread()
    )
    written = tmp_path / "cut" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not written.exists() or len(written.read_text().splitlines()) < 4:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0  # of Python; the command says 130
    assert f"heed train --resume {tmp_path / 'cut'}" in told
    (place,) = checkpoint.found(Run(tmp_path / "cut"))[-1:]
    steps = int(place.name) + 2
    resumed(tmp_path / "cut", f"training.steps={steps}", "training.schedule.kind=constant")
    assert [step for step, _ in metrics(tmp_path / "cut", "loss")] == list(range(1, steps + 1))
    assert load(tmp_path / "cut").translate(["x"])


def test_metrics_beyond_the_checkpoint_are_told_again(tmp_path: Path) -> None:
    trained(tmp_path / "run", "training.steps=3")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    (tmp_path / "run" / "metrics.jsonl").write_text(lines + '{"step": 4, "loss": 1}\n{"step": 5, "lo')
    resumed(tmp_path / "run", "training.steps=5")
    assert [step for step, _ in metrics(tmp_path / "run", "loss")] == [1, 2, 3, 4, 5]
    assert metrics(tmp_path / "run", "loss")[3][1] != 1


def test_a_tail_starts_anew_when_there_are_more_steps(tmp_path: Path) -> None:
    """The mean is over the last steps of the longer training, not over two tails."""
    tail = ("training.average.kind=tail", "training.average.share=0.4", "training.average.every=3")
    trained(tmp_path / "run", *tail, "training.schedule.kind=constant")
    resumed(tmp_path / "run", "training.steps=20")
    last = load_file(tmp_path / "run" / "state" / "00000020" / "average.safetensors")
    trained(tmp_path / "whole", *tail, "training.schedule.kind=constant", "training.steps=20")
    whole = load_file(tmp_path / "whole" / "state" / "00000020" / "average.safetensors")
    assert all(torch.equal(last[name], whole[name]) for name in whole)


def test_scores_of_other_weights_are_forgotten(tmp_path: Path) -> None:
    run = trained(tmp_path / "run").run
    evaluate(run, reporter=Silent())
    assert run.evaluated.keys() == {"valid", "test"}
    resumed(tmp_path / "run", "training.steps=7")
    assert not run.evaluated
    assert "None yet" in (run.path / "README.md").read_text()


def test_what_cannot_go_on_says_why(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained(run, "training.save=2")
    with pytest.raises(ConfigError, match="model cannot be changed in a run that goes on"):
        resumed(run, "model.encoder.width=32", "model.decoder.width=32")
    with pytest.raises(ConfigError, match="training.average cannot be changed"):
        resumed(run, "training.average.kind=ema")


def test_a_new_run_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match="already exists and is not empty.*--resume"):
        trained(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_recipe_round_trip(tmp_path: Path) -> None:
    outcome = trained(tmp_path / "run", "training.steps=1")
    assert outcome.run.recipe.training == recipe("training.steps=1").training
    assert outcome.run.shape == outcome.run.recipe.model


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}
