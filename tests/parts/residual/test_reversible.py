"""Reversible streams: what went in can be told from what came out, and what is computed inside is not kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.mixers import Attention, Cross
from heed.models import Decoder, Encoder, Stack
from heed.parts.feedforward import FeedForward
from heed.parts.layers.norms import LayerNorm
from heed.parts.outputs.heads import Pooled
from heed.parts.residual.wiring import PreNorm, Reversible, WiringConfig

DOUBLE = torch.float64


def test_two_streams_take_turns_and_can_be_undone() -> None:
    wiring = Reversible().build(6, 2, LayerNorm(), 0.0).double()
    mix, feed = torch.nn.Linear(6, 6).double(), torch.nn.Linear(6, 6).double()
    x = torch.randn(2, 3, 12, dtype=DOUBLE)
    one, other = x.chunk(2, -1)
    y = wiring(x, [mix, feed])
    first = one + mix(wiring.norms[0](other))
    second = other + feed(wiring.norms[1](first))
    assert torch.allclose(y, torch.cat((first, second), -1), rtol=0, atol=1e-13)
    above, below = y.chunk(2, -1)
    below = below - feed(wiring.norms[1](above))
    above = above - mix(wiring.norms[0](below))
    assert torch.allclose(torch.cat((above, below), -1), x, rtol=0, atol=1e-13)


def test_three_parts_go_on_taking_turns() -> None:
    wiring = Reversible().build(4, 3, LayerNorm(), 0.0).double()
    x, seen = torch.randn(1, 2, 8, dtype=DOUBLE), list[Tensor]()

    def part(size: float) -> Callable[[Tensor], Tensor]:
        def mixed(stream: Tensor) -> Tensor:
            seen.append(stream)
            return size * stream

        return mixed

    y = wiring(x, [part(1.0), part(2.0), part(3.0)])
    one, other = x.chunk(2, -1)
    assert torch.equal(seen[0], wiring.norms[0](other))
    assert torch.equal(seen[1], wiring.norms[1](one + seen[0]))
    assert torch.equal(seen[2], wiring.norms[2](other + 2 * seen[1]))
    assert torch.equal(y, torch.cat((other + 2 * seen[1], one + seen[0] + 3 * seen[2]), -1))  # the newest comes last


def stack(wiring: WiringConfig, **more: Any) -> Stack:
    torch.manual_seed(0)
    return Stack(Stack.Config(width=24, depth=4, wiring=wiring, feedforward=FeedForward.Config(hidden=480), **more))


def test_gradients_in_training_are_those_of_plain_calls() -> None:
    """Recomputed backwards, with the same dropout: as in eval mode, where nothing is dropped and all is kept."""
    model = stack(Reversible()).double()
    x, where = torch.randn(2, 9, 24, dtype=DOUBLE), Where.ragged([9, 5])

    def slopes() -> list[Tensor]:
        return list(torch.autograd.grad(model(x, where)[0][where.real].square().sum(), list(model.parameters())))

    model.train()
    again = slopes()
    model.eval()
    plain = slopes()
    assert all(torch.allclose(a, b, rtol=0, atol=1e-11) for a, b in zip(again, plain, strict=True))


def test_dropout_is_the_same_backwards() -> None:
    model = stack(Reversible(), dropout=0.5).double()
    x, where = torch.randn(1, 6, 24, dtype=DOUBLE).requires_grad_(), Where.run(1, 6)
    torch.manual_seed(3)
    y = model(x, where)[0]
    (slope,) = torch.autograd.grad(y.sum(), [x])
    step, ends = 1e-6 * torch.randn_like(x), []
    for sign in (1, -1):
        torch.manual_seed(3)
        ends.append(model(x + sign * step, where)[0].sum())
    assert torch.allclose((ends[0] - ends[1]) / 2, (slope * step).sum(), rtol=1e-6)


def kept(model: Stack) -> int:
    """Bytes that a training call keeps for its gradients."""
    held: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        held[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    weights = {parameter.data_ptr() for parameter in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model.train()(torch.randn(1, 64, 24), Where.run(1, 64))
    return sum(size for place, size in held.items() if place not in weights)


def test_what_parts_compute_inside_is_not_kept() -> None:
    assert kept(stack(Reversible())) < kept(stack(PreNorm())) / 5


def test_it_streams_and_crosses() -> None:
    """A state is used up once, though backwards it is read again."""
    model = stack(Reversible()).double().train()
    x, state = torch.randn(1, 5, 24, dtype=DOUBLE), model.start(1)
    whole, parts = model(x, Where.run(1, 5))[0], []
    for t in range(5):
        y, after = model(x[:, t : t + 1], Where.run(1, 1, start=t), state)
        assert after is not None
        parts.append(y)
        state = after
    joined = torch.cat(parts, 1)
    assert torch.allclose(joined, whole, rtol=0, atol=1e-12)
    joined.sum().backward()


def test_both_streams_may_leave_side_by_side() -> None:
    wide = Reversible(joined="beside")
    config = Decoder.Config(vocabulary=7, width=24, depth=1, wiring=wide, tied=False, mixer=Attention.Config())
    assert config.build().head.weight.shape == (7, 48)
    with pytest.raises(ConfigError, match="the head reads 48 channels, the embeddings have 24"):
        config.model_copy(update={"tied": True}).build()
    pooled = Pooled.Config(activation="tanh", size=5, labels=2)
    reader = Encoder.Config(vocabulary=7, width=24, depth=1, wiring=wide, heads=pooled).build()
    stream = reader(torch.zeros(1, 3, dtype=torch.long), Where.run(1, 3))[0]
    assert reader.heads["pooled"](stream, Where.run(1, 3)).shape == (1, 2)
    assert stack(wide, cross=None)(torch.randn(1, 3, 24), Where.run(1, 3))[0].shape == (1, 3, 48)
    assert Cross.Config().build(24) is not None
