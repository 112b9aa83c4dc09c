"""One step of training, written out in plain torch, and what each process draws and takes."""

from __future__ import annotations

from copy import deepcopy
from math import sqrt
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from heed.core.errors import RunError
from heed.runs.folder import WEIGHTS, Run
from heed.runs.training import AdamW, Training
from heed.show.progress import Silent
from heed.tasks import Feed
from heed.train import loop
from heed.train.loop import Trainer
from heed.train.optim import adamw
from heed.train.parallel import Group
from heed.train.start import _corpora
from tests.train.support import recipe, trained

CPU = torch.device("cpu")
# An eps of 1 keeps Adam from being blind to the scale of a gradient: then clipping and denominators show.
PLAIN = ("training.optimizer.eps=1.0", "training.optimizer.lr=0.1", "training.optimizer.decay=0.1", "model.dropout=0.0")


def trainer_of(folder: Path, *changes: str, rank: int = 0) -> Trainer:
    """At its first step."""
    run = Run.open(trained(folder, "training.steps=1", *changes).path)
    run.configure(recipe("training.steps=4", *changes))
    run = Run.open(folder)
    corpora = _corpora(run.recipe, run.tokenizer, Silent())
    return Trainer(run, corpora["train"], None, Group(CPU, rank), Silent())


@pytest.mark.parametrize("clip", [0.05, 1e9])
def test_steps_are_what_they_say(clip: float, tmp_path: Path) -> None:
    """The gradient of the mean over tokens, clipped; Adam with decoupled decay of matrices, by the schedule's rate."""
    trainer = trainer_of(tmp_path / "run", f"training.clip={clip}", "task.smoothing=0.0", *PLAIN)
    trainer.model.double()
    settings = trainer.settings
    model, how = deepcopy(trainer.model).train(), settings.optimizer
    feed = Feed(trainer._train, trainer.task.cost, settings.batch, settings.seed)
    first = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    second = deepcopy(first)
    norms = []
    for step in range(1, 5):
        batch = trainer.task.batch(next(feed))
        mean = trainer.task.loss(model, batch).total / batch.tokens
        gradients = dict(zip(first, torch.autograd.grad(mean, list(model.parameters())), strict=True))
        norms.append(sqrt(sum(float(gradient.square().sum()) for gradient in gradients.values())))
        rate = how.lr * settings.schedule.factor(step, 4)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                gradient = gradients[name] * min(1.0, clip / norms[-1])
                first[name] = how.beta1 * first[name] + (1 - how.beta1) * gradient
                second[name] = how.beta2 * second[name] + (1 - how.beta2) * gradient**2
                weight.mul_(1 - rate * how.decay * (weight.dim() >= 2))
                root = (second[name] / (1 - how.beta2**step)).sqrt()
                weight.sub_(rate * first[name] / (1 - how.beta1**step) / (root + how.eps))
        trainer.step()
    assert min(norms) > 0.05
    for name, weight in trainer.model.named_parameters():
        assert torch.allclose(weight, model.get_parameter(name), rtol=0, atol=1e-5), name


def test_each_process_has_the_same_weights_drops_other_channels_and_takes_its_rows(tmp_path: Path) -> None:
    """With one random stream for all, two processes would drop the same channels of different rows."""
    seeds, weights = [], []
    for rank in range(2):
        trainer = trainer_of(tmp_path / str(rank), "training.seed=5", rank=rank)
        seeds.append(torch.initial_seed())
        weights.append([weight.detach().clone() for weight in trainer.model.parameters()])
    assert seeds == [5, 6]
    assert all(torch.equal(one, two) for one, two in zip(*weights, strict=True))
    assert [list(Group(CPU, rank, 3).rows(range(7))) for rank in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_gradient_that_is_not_a_number_ends_a_training_although_the_loss_is_one(tmp_path: Path) -> None:
    """Its weights are ruined: nothing of it may be saved as if it were good."""
    trainer = trainer_of(tmp_path / "run", "training.save=1", "training.evaluate=1")
    before = sorted(path.name for path in (tmp_path / "run" / "state").iterdir())
    next(trainer.model.parameters()).register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(RunError, match="at step 1 the loss is not a number: training has diverged"):
        trainer.fit()
    assert sorted(path.name for path in (tmp_path / "run" / "state").iterdir()) == before


def test_what_is_kept_is_the_average(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path / "run", "training.average.kind=ema")
    for _ in range(2):
        trainer.step()
    trainer._evaluate()
    kept = load_file(tmp_path / "run" / WEIGHTS)
    mean, last = trainer.average.tensors(), dict(trainer.model.named_parameters())
    assert all(torch.equal(kept[name], mean[name]) for name in kept.keys() & mean.keys())
    assert any(not torch.equal(kept[name], last[name]) for name in kept.keys() & mean.keys())


@pytest.mark.parametrize("asked", [True, False])
def test_blocks_are_computed_again_where_that_is_asked_for(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[nn.Module] = []
    monkeypatch.setattr(loop, "recompute", made.append)
    trainer = trainer_of(tmp_path / "run", f"training.recompute={str(asked).lower()}")
    assert made[1:] == [trainer.model] * asked  # the first is that of the training before it


def test_dropout_is_on_in_training(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path / "run")
    trainer.model.eval()  # as an evaluation leaves it
    trainer.step()
    assert trainer.model.training


def test_the_optimizer_has_the_settings_and_leaves_alone_what_is_frozen() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    made = adamw(model, Training(optimizer=AdamW(beta1=0.7, beta2=0.9, eps=1e-3, lr=0.5)))
    assert [(group["betas"], group["eps"], group["lr"]) for group in made.param_groups] == [((0.7, 0.9), 1e-3, 0.5)] * 2
    held = {id(weight) for group in made.param_groups for weight in group["params"]}
    assert held == {id(weight) for weight in model[1].parameters()}
