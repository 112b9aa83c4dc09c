"""CRATE reads handwritten digits: how many rightly, and what its layers do to the tokens before and after training.

scikit-learn's 1,797 images of 8 × 8 pixels, a fifth of them held out; sixteen patches and a mark, four layers of width
128, thirty rounds on one processor (half a minute). The coding rate of every layer's tokens and the share of their
channels that is not zero are measured on what was held out, and drawn into docs/crate.svg.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from benchmarks.measure import Figure, apart
from benchmarks.report import Row, Target
from heed.models import VisionEncoder
from heed.models.architectures.crate import CrateSize, LayerStats, crate, layerwise
from heed.show.svg import Chart, Even, below, chart

SIZE = CrateSize(width=128, depth=4, heads=4)
PATCH, SIDE = (2, 2), (8, 8)
ROUNDS, BATCH, RATE, DECAY = 30, 64, 3e-3, 0.05
RIGHT = Target(0.95, of="heed", floor=True)
DRAWING = Path(__file__).parents[1] / "docs" / "crate.svg"


@dataclass(frozen=True)
class Digits:
    """Images and what they show, for training and held out."""

    images: Tensor  # [B, 1, 8, 8] from 0 to 1
    labels: Tensor
    unseen: Tensor
    answers: Tensor

    @classmethod
    def load(cls) -> Digits:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise SystemExit("the digits come with scikit-learn: pip install scikit-learn") from None
        found = load_digits()
        images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
        labels = torch.tensor(found.target, dtype=torch.long)
        order, fifth = torch.randperm(len(images), generator=torch.Generator().manual_seed(0)), len(images) // 5
        held, kept = order[:fifth], order[fifth:]
        return cls(images[kept], labels[kept], images[held], labels[held])


@dataclass(frozen=True)
class Outcome:
    """How many of the unseen digits are read rightly, and what every layer reaches on them."""

    right: float
    before: list[LayerStats]
    after: list[LayerStats]


def learn(rounds: int = ROUNDS) -> Outcome:
    """A fresh classifier learns the digits."""
    digits = Digits.load()
    torch.manual_seed(0)
    model = crate(SIDE, PATCH, labels=10, size=SIZE, channels=1, pool="mean").build()
    before = layerwise(model.eval(), digits.unseen)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    steps = -(-len(digits.images) // BATCH)
    schedule = OneCycleLR(optimizer, RATE, total_steps=max(1, rounds * steps))
    model.train()
    for _ in range(rounds):
        for some in torch.split(torch.randperm(len(digits.images)), BATCH):
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(logits(model, digits.images[some]), digits.labels[some]))
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        right = logits(model.eval(), digits.unseen).argmax(-1) == digits.answers
    return Outcome(float(right.double().mean()), before, layerwise(model, digits.unseen))


def logits(model: VisionEncoder, images: Tensor) -> Tensor:
    """Of the ten digits. [B, 10]"""
    seen = model.see(images)
    found: Tensor = model.heads["pooled"](seen.parts[0], seen)
    return found


def falls(layers: list[LayerStats]) -> bool:
    """Whether every layer has a lower rate than the one before it."""
    return all(after.rate < before.rate for before, after in pairwise(layers))


def rows(rounds: int | None) -> Iterator[Row]:
    """Digits read rightly; then layer by layer."""
    outcome = apart(_alone)
    DRAWING.write_text(drawn(outcome), encoding="utf-8")
    yield Row("digits held out and read rightly", Figure.exact(round(outcome.right, 4), ""), target=RIGHT)
    for place, (layer, fresh) in enumerate(zip(outcome.after, outcome.before, strict=True), 1):
        what = f"layer {place}: coding rate, nats ({fresh.rate:.1f} before training)"
        if place == 1:
            yield Row(what, _figure(layer.rate, 2))
        else:
            peer = outcome.after[place - 2].rate
            ratio = Figure.exact(layer.rate / peer, "×")
            yield Row(f"{what}; peer: the layer before", _figure(layer.rate, 2), _figure(peer, 2), ratio, Target(1.0))
    for place, (layer, fresh) in enumerate(zip(outcome.after, outcome.before, strict=True), 1):
        what = f"layer {place}: share of channels that are not zero ({fresh.sparsity:.3f} before training)"
        yield Row(what, _figure(layer.sparsity, 3))


def drawn(outcome: Outcome) -> str:
    """Rate and sparsity over the layers, before and after training."""
    stages = {"before training": outcome.before, "after training": outcome.after}
    rate, share = (
        Chart({name: _points(layers, field) for name, layers in stages.items()}, "layer", up, axis=Even)
        for field, up in (("rate", "coding rate, nats"), ("sparsity", "channels not zero"))
    )
    words = "coding rate and sparsity of every layer of a CRATE, before and after training on digits"
    return below([chart(rate, "coding rate by layer"), chart(share, "channels that are not zero, by layer")], words)


def _points(layers: list[LayerStats], field: str) -> list[tuple[float, float]]:
    return [(float(place), layer._asdict()[field]) for place, layer in enumerate(layers, 1)]


def _alone() -> Outcome:
    """On one processor: sums in another order would end in another model."""
    torch.set_num_threads(1)
    return learn()


def _figure(value: float, digits: int) -> Figure:
    return Figure.exact(round(value, digits), "")
