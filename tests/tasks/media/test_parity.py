"""Losses beside `transformers` and torch, live: cross-entropy of ViT's head, CLIP's contrastive loss; mixed labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from heed import weights
from heed.pipelines.base import Padded
from heed.tasks import Batch, Images, ImageText
from heed.tasks.media.base import Loaded, Pixels
from tests.weights.live import ids, saved

VIT: dict[str, Any] = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 8,
    "patch_size": 2,
}
TEXT: dict[str, Any] = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 30,
}
CLASSES, BOUND = ("a", "b", "c"), 1e-6


def pictures(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_loss_of_vit_is_that_of_transformers(tmp_path: Path) -> None:
    config = transformers.ViTConfig(**{**VIT, "num_labels": 3})
    model = saved(transformers.ViTForImageClassification(config), tmp_path)
    images, labels = pictures(5), torch.tensor([0, 2, 1, 1, 0])
    theirs = model(pixel_values=images, labels=labels)
    task = Images(labels=CLASSES)
    batch = Batch(Pixels(images, Pixels.of_images([np.zeros(1, np.float32)] * 5).where), labels[:, None].repeat(1, 2))
    ours = task.loss(weights.load(tmp_path).model, batch)
    assert float(ours.nats / 5) == pytest.approx(float(theirs.loss.detach()), abs=BOUND)
    assert float(ours.nats / 5) == pytest.approx(float(F.cross_entropy(theirs.logits.detach(), labels)), abs=BOUND)


def test_the_loss_of_clip_is_that_of_transformers(tmp_path: Path) -> None:
    text = {**TEXT, "max_position_embeddings": 12, "bos_token_id": 28, "eos_token_id": 29}
    config = transformers.CLIPConfig(text_config=text, vision_config=VIT, projection_dim=6)
    model = saved(transformers.CLIPModel(config), tmp_path)
    images, tokens = pictures(4), ids(4, 7, 29)
    tokens[:, -1] = 29
    theirs = model(input_ids=tokens, pixel_values=images, return_loss=True)
    shown = Pixels(images, Pixels.of_images([np.zeros(1, np.float32)] * 4).where)
    batch = Batch(Padded.of(list(tokens.numpy().astype(np.int32))), torch.arange(4)[:, None], shown, 4)
    ours = ImageText().loss(weights.load(tmp_path).model, batch)
    assert float(ours.nats / 4) == pytest.approx(float(theirs.loss.detach()), abs=BOUND)


def test_mixed_labels_are_soft_labels_of_torch() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels, shares = (
        torch.tensor([[0, 1], [2, 2], [1, 0], [2, 0]]),
        torch.tensor([[0.7, 0.3], [1, 0], [0.6, 0.4], [0.9, 0.1]]),
    )
    soft = torch.zeros(4, 3, dtype=torch.float64)
    soft.scatter_add_(1, labels, shares.double())
    for smoothing in (0.0, 0.1):
        wanted = F.cross_entropy(logits, soft, reduction="sum", label_smoothing=smoothing)
        found = Images._mixed(logits, labels, shares, smoothing)
        assert float(found.total) == pytest.approx(float(wanted), abs=BOUND)


def test_labels_are_smoothed_while_learning_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(Images, "logits", lambda *_: logits)
    item = Loaded(np.zeros((3, 4, 4), np.float32), np.array([1], np.int32))
    model: Any = torch.nn.Linear(1, 1)
    plain, smooth = (Images(labels=CLASSES, smoothing=share) for share in (0.0, 0.3))
    batch = plain.batch([item, item])
    wanted = F.cross_entropy(logits, torch.tensor([1, 1]), reduction="sum")
    for task in (plain, smooth):
        assert float(task.loss(model.eval(), batch).total) == pytest.approx(float(wanted))
    assert float(smooth.loss(model.train(), batch).total) == pytest.approx(
        float(F.cross_entropy(logits, torch.tensor([1, 1]), reduction="sum", label_smoothing=0.3))
    )


def test_what_was_not_mixed_is_a_batch_without_shares_that_count() -> None:
    task = Images(labels=CLASSES)
    one = Loaded(np.zeros((3, 4, 4), np.float32), np.array([1], np.int32))
    two = Loaded(np.ones((3, 4, 4), np.float32), np.array([1], np.int32), np.array([2], np.int32), 0.75)
    batch = task.batch([one, two])
    assert batch.labels.tolist() == [[1, 1], [1, 2]]
    assert batch.shares is not None
    assert batch.shares.tolist() == [[1.0, 0.0], [0.75, 0.25]]
    assert batch.tokens == 2
    assert (batch.silent().labels < 0).all()
