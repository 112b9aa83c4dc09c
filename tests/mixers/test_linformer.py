"""Linformer against its equation, written as loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.mixers import Linformer
from heed.parts.look import look
from tests.mixers.growth import grows

WIDTH = 24


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**options: Any) -> Linformer:
    torch.manual_seed(1)
    return Linformer.Config(**options).build(WIDTH).double().eval()


def by_hand(mixer: Linformer, x: Tensor, orders: list[int]) -> Tensor:
    """One row of tokens of these orders."""
    heads, groups, size = mixer.heads, mixer.heads // mixer.kv_heads, mixer.head_size
    mix_keys = mixer.mix_keys
    mix_values = mix_keys if mixer.mix_values is None else mixer.mix_values
    rank, out = mix_keys.shape[-1], []
    for i in range(len(x)):
        parts = []
        for h in range(heads):
            g = h // groups
            own, shared = slice(size * h, size * h + size), slice(size * g, size * g + size)
            q = mixer.query(x[i])[own]
            scores, values = [], []
            for s in range(rank):
                key, value = torch.zeros(size, dtype=x.dtype), torch.zeros(size, dtype=x.dtype)
                for j, order in enumerate(orders):
                    share = mix_keys[g, order, s] if mix_keys.dim() == 3 else mix_keys[order, s]
                    key = key + share * mixer.key(x[j])[shared]
                    share = mix_values[g, order, s] if mix_values.dim() == 3 else mix_values[order, s]
                    value = value + share * mixer.value(x[j])[shared]
                scores.append(q @ key / math.sqrt(size))
                values.append(value)
            weight = torch.stack(scores).softmax(0)
            parts.append(weight @ torch.stack(values))
        out.append(mixer.out(torch.cat(parts)))
    return torch.stack(out)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"shared": True},
    {"own": True, "kv_heads": 2},
    {"own": True, "shared": True, "kv_heads": 1, "bias": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_linformer_is_its_equation(options: dict[str, Any]) -> None:
    mixer, x = built(length=9, rank=3, **options), draw(2, 6, WIDTH)
    y, _ = mixer(x, Where.run(2, 6))
    for row in range(2):
        assert torch.allclose(y[row], by_hand(mixer, x[row], list(range(6))), rtol=0, atol=1e-13)


@pytest.mark.parametrize("own", [False, True])
def test_the_order_of_a_token_says_how_it_is_mixed(own: bool) -> None:
    """Not its column: holes are rows that are not used, and later tokens use later rows."""
    mixer, x = built(length=9, rank=3, own=own), draw(2, 4, WIDTH)
    order = torch.tensor([[0, 2, 5, 8], [1, 2, 3, -1]])
    y, _ = mixer(x, Where(order, order.clamp(min=0)))
    assert torch.allclose(y[0], by_hand(mixer, x[0], [0, 2, 5, 8]), rtol=0, atol=1e-13)
    assert torch.allclose(y[1, :3], by_hand(mixer, x[1, :3], [1, 2, 3]), rtol=0, atol=1e-13)
    late, _ = mixer(x, Where.run(2, 4, start=5))
    assert torch.allclose(late[1], by_hand(mixer, x[1], [5, 6, 7, 8]), rtol=0, atol=1e-13)


def test_a_text_that_is_too_long_is_refused() -> None:
    mixer = built(length=5, rank=2)
    mixer(draw(1, 5, WIDTH), Where.run(1, 5))
    with pytest.raises(InputError, match=r"a token of order 5 does not fit into a Linformer of length 5 \(0 to 4\)"):
        mixer(draw(1, 6, WIDTH), Where.run(1, 6))
    with pytest.raises(InputError, match="of order 7"):
        mixer(draw(1, 3, WIDTH), Where.run(1, 3, start=5))


@pytest.mark.parametrize("field", ["length", "rank"])
def test_sizes_must_be_positive(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Linformer.Config.load({field: 0})


def test_its_weights_are_over_mixtures() -> None:
    mixer = built(length=9, rank=3)
    with look(mixer) as seen:
        mixer(draw(2, 6, WIDTH), Where.run(2, 6))
    (weights,) = seen["weights"]
    assert weights.shape == (2, 4, 6, 3)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 6, dtype=torch.float64))


def test_dropout_falls_in_training_only() -> None:
    mixer, x = built(dropout=0.5), draw(1, 6, WIDTH)
    assert torch.equal(mixer(x, Where.run(1, 6))[0], mixer(x, Where.run(1, 6))[0])
    mixer.train()
    assert not torch.equal(mixer(x, Where.run(1, 6))[0], mixer(x, Where.run(1, 6))[0])


def test_it_grows_with_the_length_and_no_faster() -> None:
    assert grows(Linformer.Config(length=1200, rank=8)) < 4.5
