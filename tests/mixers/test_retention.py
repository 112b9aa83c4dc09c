"""Retention against its equation written as loops, in its authors' three forms, and by what it promises."""

from __future__ import annotations

import cmath
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
from heed.mixers import Retention
from heed.parts.layers.norms import RMSNorm
from heed.parts.look import look
from heed.parts.positions import Rope
from heed.parts.recurrence.divisors import Chunkwise, DivisorConfig, Rooted, Summed, Undivided
from tests.mixers.growth import grows

WIDTH, HEADS, SIZE = 24, 4, 6
AUTHORS = (Rooted(), Summed(), Chunkwise(chunk=5))


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**options: Any) -> Retention:
    torch.manual_seed(1)
    return Retention.Config(**options).build(WIDTH).double().eval()


def turned(x: Tensor, position: int) -> Tensor:
    """Channels 2c and 2c + 1 as one complex number, turned by position · 10000^(-2c/d)."""
    pairs = [complex(float(a), float(b)) for a, b in x.view(-1, 2)]
    angles = [position * 10000 ** (-2 * c / len(x)) for c in range(len(pairs))]
    made = [pair * cmath.exp(1j * angle) for pair, angle in zip(pairs, angles, strict=True)]
    return torch.tensor([part for number in made for part in (number.real, number.imag)], dtype=x.dtype)


@torch.no_grad()
def by_hand(mixer: Retention, x: Tensor) -> Tensor:
    """One row: Sun et al. 2023, eq. 5 and 8, pair by pair."""
    q, k = (linear(x).view(len(x), HEADS, SIZE) for linear in (mixer.query, mixer.key))
    v, rows = mixer.value(x).view(len(x), HEADS, -1), []
    for i in range(len(x)):
        heads = []
        for h in range(HEADS):
            gamma, total = 1 - 2.0 ** (-5 - h), torch.zeros_like(v[0, 0])
            for j in range(i + 1):
                score = float(turned(q[i, h], i) @ turned(k[j, h], j)) / math.sqrt(SIZE)
                total = total + gamma ** (i - j) * score * v[j, h]
            centred = total - total.mean()
            heads.append(centred / (centred.square().mean() + 1e-5).sqrt())
        gate = mixer.gate(x[i])
        rows.append(mixer.out(gate / (1 + (-gate).exp()) * torch.cat(heads)))
    return torch.stack(rows)


@pytest.mark.parametrize("value_size", [None, 5])
def test_it_is_its_equation(value_size: int | None) -> None:
    mixer, x = built(value_size=value_size), draw(2, 9, WIDTH)
    y, _ = mixer(x, Where.run(2, 9))
    for row in range(2):
        assert torch.allclose(y[row], by_hand(mixer, x[row]), rtol=0, atol=1e-12)


def test_it_is_its_recurrence() -> None:
    """S_i = γ S_{i-1} + kᵀv / √d is what is remembered."""
    mixer, x = built(), draw(1, 7, WIDTH)
    with torch.no_grad():
        _, state = mixer(x, Where.run(1, 7), mixer.start(1))
    assert state is not None
    ((matrix,),) = (leaf.tensors() for leaf in state[:1])  # type: ignore[union-attr]
    k, v = (linear(x[0]).detach().view(7, HEADS, SIZE) for linear in (mixer.key, mixer.value))
    for h in range(HEADS):
        held = torch.zeros(SIZE, SIZE, dtype=torch.float64)
        for i in range(7):
            held = (1 - 2.0 ** (-5 - h)) * held + torch.outer(turned(k[i, h], i), v[i, h]) / math.sqrt(SIZE)
        assert torch.allclose(matrix[0, h], held, rtol=0, atol=1e-13)


@pytest.mark.parametrize("divisor", AUTHORS, ids=repr)
def test_what_the_authors_divide_by_is_what_a_norm_takes_out(divisor: DivisorConfig) -> None:
    """With next to no eps all forms agree; with a large one they do not."""
    x, where, gaps = 3 * draw(2, 23, WIDTH), Where.run(2, 23), []
    for eps in (1e-30, 1e-1):
        made = [built(norm=RMSNorm(eps=eps, gain=False), divisor=by)(x, where)[0] for by in (Undivided(), divisor)]
        gaps.append(float((made[0] - made[1]).detach().abs().max()))
    assert gaps[0] < 1e-10
    assert gaps[1] > 1e-3


@pytest.mark.parametrize("divisor", AUTHORS, ids=repr)
def test_a_divisor_has_no_gradient(divisor: DivisorConfig) -> None:
    """The gradient towards a query is that of the undivided retention, divided: the norm is left out by a huge eps."""
    gradients = []
    for by in (Undivided(), divisor):
        mixer = built(norm=RMSNorm(eps=1e12, gain=False), divisor=by)
        x = draw(1, 1, WIDTH).requires_grad_()
        y, _ = mixer(x, Where.run(1, 1))
        (gradient,) = torch.autograd.grad((y * draw(*y.shape, seed=4)).sum(), mixer.query.weight)
        gradients.append(gradient.view(HEADS, SIZE, WIDTH))
    share = gradients[1] / gradients[0]
    assert torch.allclose(share, share[:, :1, :1].expand_as(share), rtol=1e-9, atol=0)  # one factor per head


@pytest.mark.parametrize("law", LAWS[:3], ids=lambda law: law.__name__)
@pytest.mark.parametrize("divisor", [Undivided(), Rooted(), Chunkwise(chunk=40)], ids=repr)
def test_laws_hold_over_several_chunks(law: Any, divisor: DivisorConfig) -> None:
    finding = law(Retention.Config(heads=2, divisor=divisor).build(WIDTH), Case.make(WIDTH, rows=2, tokens=90))
    assert finding.holds, finding


def test_float32_is_as_good_at_twenty_thousand_tokens_as_at_twenty() -> None:
    """A head that fades by 2^-8 a token sees some thousand of them; nothing before can add to its error."""
    mixer, x = built(), draw(1, 20_000, WIDTH)
    with torch.no_grad():
        exact, _ = mixer(x, Where.run(1, 20_000))
        rounded, _ = mixer.float()(x.float(), Where.run(1, 20_000))
    gap = (rounded - exact).abs().amax((0, 2))
    assert gap.max() < 1e-4
    assert gap[-1000:].max() < 4 * gap[1000:2000].max()


def test_it_remembers_one_matrix_per_head() -> None:
    mixer = Retention.Config(value_size=9).build(WIDTH)
    assert words(mixer.spec()) == "heads·head_size·value_size numbers, whatever the length"
    assert price(mixer.spec(), 1) == price(mixer.spec(), 10**6) == 4 * HEADS * SIZE * 9
    assert nbytes(mixer.start(3)) == 3 * price(mixer.spec(), 1)
    half = Retention.Config().build(WIDTH).to(torch.bfloat16)
    y, state = half(torch.randn(1, 70, WIDTH, dtype=torch.bfloat16), Where.run(1, 70), half.start(1))
    assert y.dtype == torch.bfloat16
    assert state is not None
    assert nbytes(state) == price(half.spec(), 70) == 4 * HEADS * SIZE * SIZE  # long sums in float32


@pytest.mark.parametrize("divisor", [None, Summed()], ids=repr)
def test_looking_shows_what_is_taken_of_each_token(divisor: DivisorConfig | None) -> None:
    mixer = built(divisor=divisor or Undivided())
    x = draw(2, 6, WIDTH)
    with look(mixer) as seen:
        y, _ = mixer(x, Where.run(2, 6))
    (weights,) = seen["weights"]
    read = torch.einsum("bhtn,bnhe->bthe", weights, mixer.value(x).unflatten(-1, (HEADS, -1)))
    assert torch.allclose(mixer.merge(read, x), y, rtol=0, atol=1e-12)


def test_it_grows_with_the_length_and_no_faster() -> None:
    assert grows(Retention.Config(), short=320) < 4.5
    assert grows(Retention.Config(divisor=Chunkwise(chunk=32)), short=320) < 4.5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="width 26 does not divide into 4 heads; nearest widths: 24, 28; or set head_"
    ):
        Retention.Config().build(26)
    with pytest.raises(ConfigError, match="channels turn two by two"):
        Retention.Config(head_size=5).build(WIDTH)
    with pytest.raises(ConfigError, match="values that turn would be added up at different angles"):
        Retention.Config(position=Rope.Config(values=True))
    with pytest.raises(ConfigError, match="position.kind is 'alibi'"):
        Retention.Config.load({"position": {"kind": "alibi"}})
    with pytest.raises(ConfigError, match="chunk is 0"):
        Retention.Config.load({"divisor": {"kind": "chunkwise", "chunk": 0}})
    order = torch.tensor([[0, 2, 1]])
    with pytest.raises(InputError, match="retention takes tokens as they come"):
        built()(draw(1, 3, WIDTH), Where(order, order))
