"""Experts in training: the loop adds what keeps them in even use, over the tokens of every call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from heed.models import Decoder
from heed.parts.feedforward import FeedForward
from heed.parts.feedforward.experts import Experts, balance, routed
from heed.show.progress import Silent
from heed.tasks import Batch, Causal
from heed.train import train
from heed.train.loop import Objective
from tests.train.support import language_model, metrics

SETTINGS = (
    *("model.width=12", "model.depth=2", "model.feedforward.kind=experts", "model.feedforward.experts=4"),
    *("training.steps=20", "training.evaluate=20", "training.save=20", "training.optimizer.lr=0.01"),
)
ROWS = [np.arange(3, 12, dtype=np.int32), np.arange(5, 9, dtype=np.int32)]


def model(weight: float, other: float = 0.0) -> Decoder:
    torch.manual_seed(0)
    small = FeedForward.Config(hidden=6)
    experts = tuple(Experts.Config(experts=n, active=1, expert=small, balance=w) for n, w in ((4, weight), (3, other)))
    return Decoder.Config(vocabulary=13, width=12, depth=2, feedforward=experts).build().double()


def test_every_layer_adds_its_own() -> None:
    """Σ_layers balance · E Σ_e f_e·p_e times the tokens of the call: once the loss is divided by them, the paper's."""
    made, batch = model(0.3, 0.7), Batch.shifted(ROWS)
    total, nats, _ = Objective(Causal(), made)(batch)
    with routed(made) as seen:
        plain = Causal().loss(made, batch)
    first, second = (balance([said]) for said in seen)
    assert torch.equal(nats, plain.nats)
    wanted = plain.total + batch.tokens * (0.3 * first + 0.7 * second)
    assert torch.allclose(total, wanted, rtol=1e-12)
    assert batch.tokens == 8 + 3
    other, *_ = Objective(Causal(), model(0.0))(batch)
    assert torch.equal(other, plain.total)


def test_routers_hear_of_it() -> None:
    grown = {}
    for weight in (0.0, 0.5):
        made = model(weight)
        Objective(Causal(), made)(Batch.shifted(ROWS))[0].backward()
        first, second = (block.feedforward.get_submodule("routes.scores").weight.grad for block in made.stack.layers)
        grown[weight] = (first, second)
    assert not torch.allclose(grown[0.0][0], grown[0.5][0])  # type: ignore[arg-type]
    silent, *_ = Objective(Causal(), model(0.5))(Batch.shifted(ROWS).silent())
    assert not bool(silent)  # a process without rows takes part with nothing


def usage(path: Path, *changes: str) -> tuple[float, float]:
    """How unevenly experts are used after a training (1 = evenly), and the loss that was reported last."""
    run = train(language_model(*SETTINGS, *changes), path, Silent()).run
    made = run.model()
    corpus = run.recipe.task.corpus(run.recipe.data.split("valid", ("text",)), run.tokenizer)
    with routed(made) as seen, torch.no_grad():
        Causal().loss(made, run.recipe.task.batch(corpus.once()[:30]))
    return float(sum(float(balance([said])) for said in seen)) / 4, metrics(path, "loss")[-1][1]


def test_training_evens_them_out(tmp_path: Path) -> None:
    """The same training with and without: what is reported is the plain loss in both."""
    uneven, _ = usage(tmp_path / "without")
    even, loss = usage(tmp_path / "with", "model.feedforward.balance=1.0")
    assert even < uneven
    assert even < 1.1
    assert loss < 6.0  # of 260 tokens, some of which never occur: no term is added to what is reported
