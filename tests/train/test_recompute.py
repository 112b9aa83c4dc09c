"""Blocks that are computed again backwards: the same gradients to the last bit, and far less that is held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heed.core.contract import Mixer, Where
from heed.core.errors import ConfigError, StateConsumed
from heed.core.state import detach
from heed.mixers import Attention, Mamba, Retention, Rwkv
from heed.models import Decoder, TransformerXL
from heed.parts.feedforward import ChannelMix, FeedForward
from heed.parts.feedforward.experts import Experts
from heed.tasks import Batch, Causal
from heed.train.loop import Objective
from heed.train.memory import recompute
from tests.train.support import metrics, same_run, trained

ROWS = [np.arange(3, 30, dtype=np.int32) % 13, np.arange(5, 12, dtype=np.int32)]  # ragged enough to be packed
PLAIN: dict[str, Any] = {"vocabulary": 13, "width": 16, "depth": 3, "dropout": 0.3}


def experts(weight: float) -> Experts.Config:
    return Experts.Config(experts=4, active=2, expert=FeedForward.Config(hidden=6), balance=weight)


MODELS: dict[str, Callable[[], Mixer[Any]]] = {
    "attention, packed": lambda: Decoder.Config(**PLAIN).build(),
    "dropped weights": lambda: Decoder.Config(**PLAIN, mixer=Attention.Config(dropout=0.2)).build(),
    "experts in balance": lambda: Decoder.Config(**PLAIN, feedforward=experts(0.5)).build(),
    "Transformer-XL": lambda: TransformerXL(width=16, depth=3, length=4, memory=6, dropout=0.3).sized(13).build(),
    "RWKV": lambda: Decoder.Config(**PLAIN, mixer=Rwkv.Config(), feedforward=ChannelMix.Config()).build(),
    "Mamba and retention": lambda: Decoder.Config(**PLAIN, mixer=(Mamba.Config(), Retention.Config())).build(),
}


def learnt(make: Callable[[], Mixer[Any]], loss: Callable[[Mixer[Any]], Tensor], *, again: bool) -> list[Tensor]:
    """The loss and all gradients."""
    torch.manual_seed(0)
    model = make().train()
    if again:
        recompute(model)
    total = loss(model)
    total.backward()
    total.detach_()
    return [total, *(p.grad for p in model.parameters() if p.grad is not None), torch.rand(1)]  # as many were drawn


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_the_same_to_the_last_bit(name: str) -> None:
    def loss(model: Mixer[Any]) -> Tensor:
        total: Tensor = Objective(Causal(), model)(Batch.shifted(ROWS))[0]
        return total

    plain, again = (learnt(MODELS[name], loss, again=again) for again in (False, True))
    assert len(plain) > 20
    assert same(plain, again)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stopped", [True, False])
def test_with_a_state_from_segment_to_segment(name: str, stopped: bool) -> None:
    """Gradients that go on into the segments before, or stop there; every state is used up once."""
    tokens = torch.randint(13, (2, 15), generator=torch.Generator().manual_seed(1))

    def loss(model: Mixer[Any]) -> Tensor:
        state, total, begin = model.start(2), torch.zeros(()), 0
        for end in (5, 6, 15):
            before = state
            y, after = model(tokens[:, begin:end], Where.run(2, end - begin, start=begin), before)
            with pytest.raises(StateConsumed):
                model(tokens[:, begin:end], Where.run(2, end - begin, start=begin), before)
            assert after is not None
            state, total, begin = detach(after) if stopped else after, total + y.square().sum(), end
        return total

    plain, again = (learnt(MODELS[name], loss, again=again) for again in (False, True))
    assert same(plain, again)


def bytes_held(model: Mixer[Any], tokens: int, *, streams: bool) -> int:
    """What a training call keeps for its gradients, weights aside."""
    held: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        state = model.start(1) if streams else None
        model.train()(torch.zeros(1, tokens, dtype=torch.long), Where.run(1, tokens), state)
    return sum(size for place, size in held.items() if place not in weights)


@pytest.mark.parametrize("streams", [False, True])
def test_only_the_stream_between_blocks_is_held(streams: bool) -> None:
    model = Decoder.Config(vocabulary=13, width=32, depth=12).build()
    everything = bytes_held(model, 64, streams=streams)
    recompute(model)
    held = bytes_held(model, 64, streams=streams)
    assert held <= everything / 8
    # One stream per block, and what is outside of them: the embedding, the last norm, the scores.
    assert held <= (12 + 4) * 64 * 32 * 4


def test_a_training_is_the_same(tmp_path: Path) -> None:
    for flag in ("false", "true"):
        trained(tmp_path / flag, f"training.recompute={flag}")
    assert same_run(tmp_path / "false", tmp_path / "true")
    assert len(metrics(tmp_path / "true", "loss")) == 6


def test_there_must_be_blocks() -> None:
    with pytest.raises(ConfigError, match="training.recompute is for models that consist of blocks"):
        recompute(nn.Linear(2, 2))
