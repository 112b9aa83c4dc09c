"""Transformer-XL as an architecture: what its plan gives, that it trains from a recipe, that it needs its memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

import heed
from heed.core.contract import Where
from heed.mixers import TransformerXLAttention
from heed.models import AdaptiveDecoder, Decoder, TransformerXL
from heed.parts.inputs.adaptive import Adaptive
from heed.parts.residual.wiring import PostNorm
from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.train import train
from tests.train.support import metrics

SMALL = (
    *("model.width=16", "model.depth=2", "model.heads=2", "model.length=8", "model.memory=8", "task.context=40"),
    *("training.batch=160", "training.steps=30", "training.evaluate=15", "training.save=15", "training.log=1"),
    *("training.schedule.warmup=3", "training.optimizer.lr=0.01"),
)


def test_a_plan_is_the_papers_decoder() -> None:
    config = TransformerXL(width=24, depth=3, heads=4, length=5, memory=7, one_position=True).sized(31)
    assert type(config) is Decoder.Config
    assert isinstance(config.wiring, PostNorm)
    model = config.build()
    assert model.embeddings.scale == 24**0.5
    assert model.head.weight is model.embeddings.table.weight
    mixers: list[Any] = [block.mixer for block in model.stack.layers]
    assert all(isinstance(mixer, TransformerXLAttention) and (mixer.length, mixer.memory) == (5, 7) for mixer in mixers)
    assert mixers[2].position.u is mixers[0].position.u
    assert model.reach.back == 3 * 11  # the memory of a memory of a memory


def test_rare_tokens_may_have_fewer_channels() -> None:
    clusters = Adaptive(cutoffs=(8, 16), shrink=2)
    model = TransformerXL(width=24, depth=1, adaptive=clusters).sized(31).build()
    assert isinstance(model, AdaptiveDecoder)
    scores, _ = model(torch.randint(31, (2, 9)), Where.run(2, 9))
    assert torch.allclose(scores.exp().sum(-1), torch.ones(2, 9), atol=1e-5)


def text(path: Path) -> Path:
    """Lines that are said twice: the second time, whoever remembers the first knows every letter."""
    draw = random.Random(0)
    lines = ("".join(draw.choice("abcdefgh") for _ in range(15)) for _ in range(400))
    path.write_text("\n".join(line + "\n" + line for line in lines))
    return path


def test_the_recipe_trains_and_the_run_writes(tmp_path: Path) -> None:
    data = f'data.train="{text(tmp_path / "lines.txt")}"'
    for name, more in {"plain": (), "adaptive": ("model.adaptive.cutoffs=[64,128]", "model.adaptive.shrink=2")}.items():
        run = tmp_path / name
        train(Recipe.read(find("xl"), [data, *SMALL, *more]), run, Silent())
        losses = [loss for _, loss in metrics(run, "loss")]
        assert losses[-1] < 0.75 * losses[0]
        writer = heed.load(run)
        assert isinstance(writer.model, AdaptiveDecoder if more else Decoder)
        assert writer.generate("abc")
        assert writer.generate("abc") == heed.load(run).generate("abc")
