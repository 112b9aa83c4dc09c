"""What a step does: denominators, schedules, averages, several processes, and when training ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from heed.core.errors import ConfigError, InputError, MissingExtra, RunError
from heed.runs import Recipe, Run, find, load
from heed.runs.training import AdamW, Constant, Cosine, Ema, InverseSqrt, Linear, Tail, Training
from heed.show.progress import Silent
from heed.train import train
from heed.train.average import Average
from heed.train.optim import adamw
from tests.train.support import language_model, metrics, trained


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("pieces", [2, 3, 1000])
def test_splitting_a_batch_changes_nothing(pieces: int, tmp_path: Path) -> None:
    """The sum of two means is not the mean of all: what counts is the number of tokens of the whole step."""
    for name, count in (("one", 1), ("cut", pieces)):
        trained(tmp_path / name, f"training.accumulate={count}", "model.dropout=0.0")
    one, cut = (load_file(tmp_path / name / "state" / "00000006" / "model.safetensors") for name in ("one", "cut"))
    assert max(float((one[name] - cut[name]).abs().max()) for name in one) < 1e-10  # Adam divides small by small
    for whole, split in zip(metrics(tmp_path / "one", "loss"), metrics(tmp_path / "cut", "loss"), strict=True):
        assert whole == pytest.approx(split, rel=1e-5)  # as written, with six digits


def test_two_processes_train_like_one(tmp_path: Path) -> None:
    """Each takes its rows of every batch; sums in another order differ in the last digits of float32."""
    code = (
        "import sys; from pathlib import Path; from tests.train.support import trained;"
        "trained(Path(sys.argv[1]), 'model.dropout=0.0', 'training.accumulate=2')"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run([*launch, str(tmp_path / "two")], check=True, env=environment, capture_output=True, timeout=120)
    trained(tmp_path / "one", "model.dropout=0.0")
    for what in ("loss", "valid_loss"):
        one, two = metrics(tmp_path / "one", what), metrics(tmp_path / "two", what)
        assert [step for step, _ in one] == [step for step, _ in two]
        assert [loss for _, loss in one] == pytest.approx([loss for _, loss in two], rel=1e-5)
    assert Run(tmp_path / "two").tokenizer.size == Run(tmp_path / "one").tokenizer.size
    assert load(tmp_path / "two").translate(["x"]) == load(tmp_path / "one").translate(["x"])


def test_schedules() -> None:
    assert [Constant(warmup=4).factor(step, 100) for step in (1, 2, 4, 50)] == [0.25, 0.5, 1.0, 1.0]
    cosine = Cosine(warmup=10, floor=0.1)
    assert cosine.factor(10, 110) == 1.0
    assert cosine.factor(60, 109) == pytest.approx(0.55)  # half of the way to the step after the last
    assert cosine.factor(110, 109) == pytest.approx(0.1)
    line = Linear(warmup=10, floor=0.2)
    assert [line.factor(step, 109) for step in (5, 10, 60, 110)] == pytest.approx([0.5, 1.0, 0.6, 0.2])
    root = InverseSqrt(warmup=400)
    assert root.factor(400, 10_000) == 1.0
    assert root.factor(1600, 10_000) == pytest.approx(0.5)
    assert Cosine(warmup=0).factor(1, 1) == pytest.approx(0.5)  # a training of one step learns
    assert Cosine(warmup=200).factor(100, 100) == 0.5  # a warm-up longer than the training only rises


def test_vectors_do_not_decay() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    groups = adamw(model, Training(optimizer=AdamW(decay=0.1))).param_groups
    decay = {id(weight): group["weight_decay"] for group in groups for weight in group["params"]}
    assert {name: decay[id(weight)] for name, weight in model.named_parameters()} == {
        "0.weight": 0.1,
        "0.bias": 0.0,
        "1.weight": 0.0,
        "1.bias": 0.0,
    }


def test_ema_is_the_exponential_mean_and_is_lent_only() -> None:
    model = nn.Linear(2, 2).double()
    average, mean = Average(model, Ema(decay=0.5), steps=9), deepcopy(model.weight.detach())
    for taken in range(5):
        with torch.no_grad():
            model.weight.add_(1.0)
        decay = min(0.5, (1 + taken) / (10 + taken))
        mean = decay * mean + (1 - decay) * model.weight.detach()
        average.update(taken + 1)
    own = model.weight.detach().clone()
    with average.applied():
        assert torch.allclose(model.weight, mean, rtol=1e-14)
    assert torch.equal(model.weight, own)


def test_tail_is_the_mean_of_the_last_steps() -> None:
    model = nn.Linear(2, 2).double()
    average, seen = Average(model, Tail(share=0.5, every=2), steps=9), []
    for step in range(1, 10):
        with torch.no_grad():
            model.weight.mul_(1.1)
        average.update(step)
        if step in (7, 9):  # of the last 4 steps every second one, the very last among them
            seen.append(model.weight.detach().clone())
    with average.applied():
        assert torch.allclose(model.weight, torch.stack(seen).mean(0), rtol=1e-14)


def test_patience_ends_a_training_and_the_best_weights_are_kept(tmp_path: Path) -> None:
    """At this learning rate nothing gets better, so the second evaluation without progress is the last."""
    slow = ("training.optimizer.lr=1e-30", "training.optimizer.decay=0.0", "training.steps=100")
    outcome = trained(tmp_path / "run", *slow, "training.evaluate=2", "training.patience=2")
    assert outcome.progress.step == 6
    assert outcome.progress.best_step == 2
    assert outcome.progress.best == pytest.approx(metrics(tmp_path / "run", "valid_loss")[0][1], rel=1e-5)
    assert outcome.finished


@pytest.mark.parametrize("keep", ["best", "last"])
def test_which_weights_are_kept(keep: str, tmp_path: Path) -> None:
    """A learning rate that ruins the model: the best weights are those of the first evaluation."""
    ruin = ("training.optimizer.lr=5.0", "training.schedule.kind=constant", "training.clip=1e9")
    trained(tmp_path / "run", *ruin, "training.evaluate=2", f"training.keep={keep}")
    kept = load_file(tmp_path / "run" / "model.safetensors")
    last = load_file(tmp_path / "run" / "state" / "00000006" / "model.safetensors")
    losses = [loss for _, loss in metrics(tmp_path / "run", "valid_loss")]
    assert losses[-1] > min(losses)
    assert all(torch.equal(kept[name], last[name]) for name in kept) == (keep == "last")


def test_a_diverged_training_stops_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="training has diverged.*lower training.optimizer.lr"):
        trained(tmp_path / "run", "training.optimizer.lr=1e30", "training.schedule.warmup=0", "training.steps=50")


def test_half_precision_trains_alike(tmp_path: Path) -> None:
    """bfloat16 carries 8 bits: a loss near 5 is right to a few parts in 256."""
    for precision in ("float32", "bfloat16"):
        trained(tmp_path / precision, f"training.precision={precision}", "model.dropout=0.0")
    full, half = (metrics(tmp_path / name, "loss") for name in ("float32", "bfloat16"))
    assert [loss for _, loss in half] == pytest.approx([loss for _, loss in full], rel=2**-6)
    assert half != full


def test_tensorboard(tmp_path: Path) -> None:
    """An extra: where it is not installed, the error says how to get it before anything is made."""
    board = ("training.tensorboard=true", "training.steps=2")
    if find_spec("tensorboard") is None:
        with pytest.raises(MissingExtra, match=r'pip install "heed-attention\[tensorboard\]"'):
            trained(tmp_path / "run", *board)
        assert not (tmp_path / "run").exists()
    else:
        trained(tmp_path / "run", *board)
        assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_settings_that_contradict_the_data(tmp_path: Path) -> None:
    settings = ("model.kind=decoder", "model.width=8", "model.depth=1")
    plan = Recipe.read(find("dates"), settings)
    with pytest.raises(ConfigError, match="must encode a source, then decode .* Decoder does not"):
        train(plan, tmp_path / "run", Silent())
    with pytest.raises(InputError, match="dates"):
        train(Recipe.read(find("dates"), [*settings, "task.kind=causal"]), tmp_path / "other", Silent())


def test_a_language_model_trains(tmp_path: Path) -> None:
    outcome = train(language_model("training.steps=12", "training.optimizer.lr=0.01"), tmp_path / "run", Silent())
    losses = [loss for _, loss in metrics(tmp_path / "run", "valid_loss")]
    assert losses[-1] < losses[0]
    assert outcome.progress.best == pytest.approx(losses[-1], rel=1e-5)


def test_half_precision_with_smooth_labels(tmp_path: Path) -> None:
    smooth = ("task.smoothing=0.1", "model.dropout=0.0", "training.steps=2")
    for precision in ("float32", "bfloat16"):
        trained(tmp_path / precision, f"training.precision={precision}", *smooth)
    full, half = (metrics(tmp_path / name, "loss") for name in ("float32", "bfloat16"))
    assert [loss for _, loss in half] == pytest.approx([loss for _, loss in full], rel=2**-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the compiler itself
def test_compiled_training_is_the_same(tmp_path: Path) -> None:
    """Fused operations round differently in the last digits of float32."""
    for flag in ("false", "true"):
        trained(tmp_path / flag, f"training.compile={flag}", "model.dropout=0.0")
    plain, compiled = (metrics(tmp_path / flag, "loss") for flag in ("false", "true"))
    assert [loss for _, loss in plain] == pytest.approx([loss for _, loss in compiled], rel=1e-4)
