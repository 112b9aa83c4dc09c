"""Gated retention against its recurrence written as loops, at the ends of what a gate can say, and by its promises."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import GatedRetention
from heed.parts.layers.norms import RMSNorm
from heed.parts.look import look
from heed.parts.positions import NoPosition
from tests.mixers.growth import grows

WIDTH, HEADS, SIZE = 24, 4, 6


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**options: Any) -> GatedRetention:
    torch.manual_seed(1)
    return GatedRetention.Config(**options).build(WIDTH).double().eval()


@torch.no_grad()
def by_hand(mixer: GatedRetention, x: Tensor, temperature: float) -> Tensor:
    """One row without positions: Sun et al. 2024, eq. 5 to 7."""
    q, k, v = (linear(x).view(len(x), HEADS, SIZE) for linear in (mixer.query, mixer.key, mixer.value))
    held, rows = torch.zeros(HEADS, SIZE, SIZE, dtype=x.dtype), []
    for i in range(len(x)):
        heads = []
        for h in range(HEADS):
            gamma = (1 / (1 + math.exp(-float(mixer.fade(x[i])[h])))) ** (1 / temperature)
            held[h] = gamma * held[h] + torch.outer(k[i, h], v[i, h]) / math.sqrt(SIZE)
            read = q[i, h] @ held[h]
            heads.append(read / (read.square().mean() + 1e-6).sqrt())
        gate = mixer.gate(x[i])
        rows.append(mixer.out(gate / (1 + (-gate).exp()) * torch.cat(heads)))
    return torch.stack(rows)


@pytest.mark.parametrize("temperature", [16.0, 0.7])
def test_it_is_its_equation(temperature: float) -> None:
    mixer = built(temperature=temperature, position=NoPosition.Config(), norm=RMSNorm(gain=False))
    x = draw(2, 80, WIDTH)
    y, _ = mixer(x, Where.run(2, 80))
    for row in range(2):
        assert torch.allclose(y[row], by_hand(mixer, x[row], temperature), rtol=0, atol=1e-12)


def test_a_token_may_let_everything_go() -> None:
    """After a gate far below zero nothing of before is left; far above zero nothing fades at all."""
    mixer = built(temperature=1.0, bias=True)
    with torch.no_grad():
        mixer.fade.weight.zero_()
        x = draw(1, 90, WIDTH)
        mixer.fade.bias.fill_(-1e3)
        y, _ = mixer(x, Where.run(1, 90))
        alone = [mixer(x[:, t : t + 1], Where.run(1, 1, start=t))[0] for t in range(90)]
        assert torch.allclose(y, torch.cat(alone, 1), rtol=0, atol=1e-12)
        mixer.fade.bias.fill_(1e3)
        with look(mixer) as seen:
            mixer(x, Where.run(1, 90))
        (weights,) = seen["weights"]
        q, k, _ = mixer.asked(x, Where.run(1, 90))
        assert torch.allclose(weights, torch.einsum("bthd,bnhd->bhtn", q, k).tril(), rtol=0, atol=1e-13)


def test_gradients_are_finite_wherever_the_gate_stands() -> None:
    for bias in (-1e4, -50.0, 50.0, 1e4):
        mixer = built(temperature=1.0, bias=True).float()
        with torch.no_grad():
            mixer.fade.bias.fill_(bias)
        x = draw(1, 150, WIDTH).float().requires_grad_()
        mixer(x, Where.run(1, 150))[0].square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in (x, *mixer.parameters()))


@pytest.mark.parametrize("law", LAWS[:3], ids=lambda law: law.__name__)
def test_laws_hold_over_several_chunks(law: Any) -> None:
    finding = law(GatedRetention.Config(heads=2, temperature=4.0).build(WIDTH), Case.make(WIDTH, rows=2, tokens=90))
    assert finding.holds, finding


def test_float32_is_as_good_at_twenty_thousand_tokens_as_at_twenty() -> None:
    mixer, x = built(), draw(1, 20_000, WIDTH)
    with torch.no_grad():
        exact, _ = mixer(x, Where.run(1, 20_000))
        rounded, _ = mixer.float()(x.float(), Where.run(1, 20_000))
    gap = (rounded - exact).abs().amax((0, 2))
    assert gap.max() < 1e-4  # numbers of size one, normed: some hundred roundings of 6e-8, and small heads grown
    assert gap[-1000:].max() < 4 * gap[1000:2000].max()


def test_it_remembers_one_matrix_per_head() -> None:
    mixer = GatedRetention.Config(value_size=9).build(WIDTH)
    assert words(mixer.spec()) == "heads·head_size·value_size numbers, whatever the length"
    assert price(mixer.spec(), 1) == price(mixer.spec(), 10**6) == 4 * HEADS * SIZE * 9
    assert nbytes(mixer.start(3)) == 3 * price(mixer.spec(), 1)
    half = GatedRetention.Config().build(WIDTH).to(torch.bfloat16)
    y, state = half(torch.randn(1, 70, WIDTH, dtype=torch.bfloat16), Where.run(1, 70), half.start(1))
    assert y.dtype == torch.bfloat16
    assert nbytes(state) == price(half.spec(), 70) == 4 * HEADS * SIZE * SIZE  # long sums in float32


def test_it_grows_with_the_length_and_no_faster() -> None:
    assert grows(GatedRetention.Config(), short=320) < 4.5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="temperature is 0"):
        GatedRetention.Config(temperature=0.0)
    with pytest.raises(ConfigError, match="width 26 does not divide into 4 heads"):
        GatedRetention.Config().build(26)
    order = torch.tensor([[0, 2, 1]])
    with pytest.raises(InputError, match="gated retention takes tokens as they come"):
        built()(draw(1, 3, WIDTH), Where(order, order))
