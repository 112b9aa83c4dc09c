"""Linear attention against its equation written as loops, at the edge of numbers, and by what it promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import LinearAttention
from heed.mixers.linear_attention import _feature
from heed.parts.look import look
from tests.mixers.growth import grows

WIDTH, SIZE = 24, 6


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**options: Any) -> LinearAttention:
    torch.manual_seed(1)
    return LinearAttention.Config(**options).build(WIDTH).double().eval()


@torch.no_grad()
def by_hand(mixer: LinearAttention, x: Tensor, *, causal: bool) -> Tensor:
    """One row: Katharopoulos et al. 2020, eq. 4 and 7."""

    def phi(z: Tensor) -> Tensor:
        return torch.where(z > 0, z + 1, z.exp())

    groups, rows = mixer.heads // mixer.kv_heads, []
    q, k, v = (linear(x).view(len(x), -1, SIZE) for linear in (mixer.query, mixer.key, mixer.value))
    for i in range(len(x)):
        heads = []
        for h in range(mixer.heads):
            above, below = torch.zeros(SIZE, dtype=x.dtype), torch.zeros((), dtype=x.dtype)
            for j in range(i + 1 if causal else len(x)):
                weight = phi(q[i, h]) @ phi(k[j, h // groups])
                above, below = above + weight * v[j, h // groups], below + weight
            heads.append(above / below)
        rows.append(mixer.out(torch.cat(heads)))
    return torch.stack(rows)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_it_is_its_equation(causal: bool, kv_heads: int) -> None:
    mixer, x = built(causal=causal, kv_heads=kv_heads), draw(2, 9, WIDTH)
    y, _ = mixer(x, Where.ragged([9, 5]))
    assert torch.allclose(y[0], by_hand(mixer, x[0], causal=causal), rtol=0, atol=1e-13)
    assert torch.allclose(y[1, :5], by_hand(mixer, x[1, :5], causal=causal), rtol=0, atol=1e-13)


def test_small_features_keep_their_digits() -> None:
    """As elu(x) + 1 in float32 a feature of e^-17 would be 0 or 6e-8."""
    x = torch.linspace(-80, 3, 1000)
    wanted = torch.where(x > 0, x.double() + 1, x.double().exp())
    assert torch.allclose(_feature(x).double(), wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_who_sees_nothing_gets_zeros(causal: bool) -> None:
    """Features of all keys underflow: 0 / 0 is 0, forwards and backwards."""
    mixer = built(causal=causal).float()
    with torch.no_grad():
        mixer.key.bias.fill_(-1e4)
    x = draw(1, 70, WIDTH).float().requires_grad_()
    y, _ = mixer(x, Where.run(1, 70))
    y.square().sum().backward()
    assert torch.equal(y, mixer.out.bias.expand_as(y))
    assert all(p.grad is None or p.grad.isfinite().all() for p in (x, *mixer.parameters()))


@pytest.mark.parametrize("law", LAWS[:3], ids=lambda law: law.__name__)
def test_laws_hold_over_several_chunks(law: Any) -> None:
    finding = law(LinearAttention.Config(kv_heads=2).build(WIDTH), Case.make(WIDTH, rows=2, tokens=90))
    assert finding.holds, finding


def test_float32_is_good_at_twenty_thousand_tokens() -> None:
    """All weights are positive and nothing fades: a mean of n values, whose rounding does not grow with n."""
    mixer, x = built(), draw(1, 20_000, WIDTH)
    with torch.no_grad():
        exact, _ = mixer(x, Where.run(1, 20_000))
        rounded, _ = mixer.float()(x.float(), Where.run(1, 20_000))
    assert (rounded - exact).abs().max() < 5e-6  # values of size one, a hundred roundings of 6e-8


def test_it_remembers_a_matrix_and_a_sum() -> None:
    mixer = LinearAttention.Config(kv_heads=2).build(WIDTH)
    assert words(mixer.spec()) == "kv_heads·head_size·(head_size + 1) numbers, whatever the length"
    assert price(mixer.spec(), 1) == price(mixer.spec(), 10**6) == 4 * 2 * SIZE * (SIZE + 1)
    assert nbytes(mixer.start(3)) == 3 * price(mixer.spec(), 1)


@pytest.mark.parametrize("causal", [True, False])
def test_looking_shows_what_is_taken_of_each_token(causal: bool) -> None:
    mixer, x = built(kv_heads=2, causal=causal), draw(2, 6, WIDTH)
    with look(mixer) as seen:
        y, _ = mixer(x, Where.run(2, 6))
    (weights,) = seen["weights"]
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 6).double(), rtol=0, atol=1e-13)
    made = mixer.merge(torch.einsum("bhtn,bnhd->bthd", weights, mixer.values(x).repeat_interleave(2, 2)))
    assert torch.allclose(made, y, rtol=0, atol=1e-13)


@pytest.mark.parametrize("causal", [True, False])
def test_it_grows_with_the_length_and_no_faster(causal: bool) -> None:
    assert grows(LinearAttention.Config(causal=causal), short=320) < 4.5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="never holds its weights, so none can be dropped"):
        LinearAttention.Config(dropout=0.1)
    with pytest.raises(ConfigError, match="has no scale"):
        LinearAttention.Config(scale=0.5)
    order = torch.tensor([[0, 2, 1]])
    with pytest.raises(InputError, match="linear attention takes tokens as they come"):
        built()(draw(1, 3, WIDTH), Where(order, order))
    built(causal=False)(draw(1, 3, WIDTH), Where(order, order))  # bidirectional attention needs no order
