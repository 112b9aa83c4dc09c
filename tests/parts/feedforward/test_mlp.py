"""The feed-forward of one token: activations by their formulas, plain and gated networks channel by channel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from heed.core.contract import Where
from heed.core.state import Cell
from heed.parts.feedforward import FeedForward, Gated
from heed.parts.feedforward.channel_mix import ChannelMix
from heed.parts.feedforward.mlp import Absent, Activation, activate
from heed.parts.layers.norms import LayerNorm, RMSNorm

WIDTH, HIDDEN = 6, 5


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def normal(x: float) -> float:
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def tanh_gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FORMULAS: dict[Activation, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * normal(x),
    "gelu_tanh": tanh_gelu,
    "gelu_sigmoid": lambda x: x * logistic(1.702 * x),
    "gelu_clipped": lambda x: min(x * normal(x), 10.0),
    "silu": lambda x: x * logistic(x),
    "relu_squared": lambda x: max(x, 0.0) ** 2,
    "relu6": lambda x: min(max(x, 0.0), 6.0),
    "leaky_relu": lambda x: x if x > 0 else x / 100,
    "hardswish": lambda x: x * min(max(x + 3, 0.0), 6.0) / 6,
    "tanh": math.tanh,
    "sigmoid": logistic,
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "laplace": lambda x: normal((x - math.sqrt(0.5)) / math.sqrt(1 / (4 * math.pi))),
    "identity": lambda x: x,
}


@pytest.mark.parametrize("name", get_args(Activation))
def test_an_activation_is_its_formula(name: Activation) -> None:
    """Near zero, where approximations differ, and beyond where some are cut off."""
    points = [-20.0, -3.5, -1.0, -0.3, 0.0, 0.2, 0.7, 1.3, 4.0, 11.0, 14.0]
    made = activate(name, torch.tensor(points, dtype=torch.float64))
    assert made.tolist() == pytest.approx([FORMULAS[name](x) for x in points], rel=1e-6, abs=1e-6)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("norm", [None, LayerNorm(), RMSNorm()], ids=repr)
def test_plain_and_gated_are_their_equations(norm: LayerNorm | RMSNorm | None) -> None:
    x, where = drawn(2, 3, WIDTH), Where.run(2, 3)
    plain = FeedForward.Config(hidden=HIDDEN, activation="gelu", norm=norm).build(WIDTH).double()
    normed = nn.Identity() if plain.norm is None else plain.norm
    wanted = plain.down(normed(nn.functional.gelu(x @ plain.up.weight.T + plain.up.bias)))
    assert torch.allclose(plain(x, where)[0], wanted, rtol=0, atol=1e-13)
    gated = Gated.Config(hidden=HIDDEN, activation="silu", bias=True, norm=norm).build(WIDTH).double()
    normed = nn.Identity() if gated.norm is None else gated.norm
    wanted = gated.down(normed(nn.functional.silu(gated.gate(x)) * gated.up(x)))
    assert torch.allclose(gated(x, where)[0], wanted, rtol=0, atol=1e-13)
    assert not Absent.Config().build(WIDTH)(x, where)[0].any()


@pytest.mark.parametrize("width", [24, 96, 25])
def test_a_hidden_size_that_is_not_named_costs_as_many_weights_either_way(width: int) -> None:
    """Four times the width, or 8/3 of it where there are three matrices instead of two (Shazeer 2020)."""
    plain, gated = FeedForward.Config(bias=False).build(width), Gated.Config().build(width)
    assert plain.up.out_features == 4 * width
    assert gated.up.out_features == gated.gate.out_features == 8 * width // 3
    counts = [sum(p.numel() for p in part.parameters()) for part in (plain, gated)]
    assert 0 <= counts[0] - counts[1] < 3 * width  # but for the rounding


@pytest.mark.parametrize("make", [FeedForward.Config, Gated.Config])
def test_hidden_channels_are_dropped_in_training_only(make: type) -> None:
    part, x = make(dropout=0.5).build(WIDTH).double(), drawn(1, 4, WIDTH)
    where = Where.run(1, 4)
    assert torch.equal(part.eval()(x, where)[0], part(x, where)[0])
    assert not torch.equal(part.train()(x, where)[0], part(x, where)[0])


def test_channel_mixing_is_its_equation() -> None:
    """Peng et al. 2023, token by token: μ weighs the token itself, 1 - μ the one before it, which is 0 at first."""
    mixer, x = ChannelMix.Config(hidden=HIDDEN, layer=1, layers=3).build(WIDTH).double(), drawn(2, 4, WIDTH)
    for mix in (mixer.mix_key, mixer.mix_receptance):
        nn.init.uniform_(mix)
    wanted = torch.zeros_like(x)
    for b, t in ((b, t) for b in range(2) for t in range(4)):
        now, before = x[b, t], x[b, t - 1] if t else torch.zeros(WIDTH, dtype=torch.float64)
        key = mixer.key(mixer.mix_key * now + (1 - mixer.mix_key) * before)
        gate = mixer.receptance(mixer.mix_receptance * now + (1 - mixer.mix_receptance) * before)
        wanted[b, t] = torch.sigmoid(gate) * mixer.value(torch.relu(key) ** 2)
    made, _ = mixer(x, Where.run(2, 4))
    assert torch.allclose(made, wanted, rtol=0, atol=1e-13)
    state: Cell | None = mixer.start(2)
    for t in range(4):
        step, state = mixer(x[:, t : t + 1], Where.run(2, 1, start=t), state)
        assert torch.allclose(step[:, 0], wanted[:, t], rtol=0, atol=1e-13)
