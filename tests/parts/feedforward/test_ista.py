"""The sparse step of CRATE, the coding rate, and the wiring around them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.parts.feedforward import Ista
from heed.parts.feedforward.ista import coding_rate, unit
from heed.parts.layers.norms import LayerNorm
from heed.parts.look import look
from heed.parts.residual.wiring import Unrolled

WIDTH = 10


@torch.no_grad()
def test_a_step_is_its_equation() -> None:
    part = Ista.Config(step=0.3, threshold=0.2).build(WIDTH).double()
    d, x = part.dictionary, torch.randn(2, 3, WIDTH, dtype=torch.float64)
    y, _ = part(x, Where.run(2, 3))
    for row in range(2):
        for t in range(3):
            z = x[row, t]
            wanted = (z + 0.3 * (d.T @ (z - d @ z)) - 0.3 * 0.2).clamp(min=0)
            assert torch.allclose(y[row, t], wanted, rtol=0, atol=1e-13)


@torch.no_grad()
def test_steps_find_a_sparse_code() -> None:
    """Repeated with one dictionary and one target it is ISTA: the code of a sparse signal is found again."""
    torch.manual_seed(0)
    d, _ = torch.linalg.qr(torch.randn(WIDTH, WIDTH, dtype=torch.float64))
    code = torch.zeros(WIDTH, dtype=torch.float64)
    code[[2, 7]] = torch.tensor([1.5, 0.7], dtype=torch.float64)
    z, target = torch.zeros_like(code), d @ code
    for _ in range(200):
        z = (z + 0.1 * (d.T @ (target - d @ z)) - 0.1 * 0.05).clamp(min=0)
    assert z.nonzero().flatten().tolist() == [2, 7]
    part = Ista.Config(step=0.1, threshold=0.05).build(WIDTH).double()
    part.dictionary.copy_(d)
    first = (target + 0.1 * (d.T @ (target - d @ target)) - 0.1 * 0.05).clamp(min=0)
    assert torch.allclose(part.alone(target), first, rtol=0, atol=1e-13)


@torch.no_grad()
def test_sparsity_can_be_looked_at() -> None:
    part = Ista.Config().build(WIDTH)
    with look(part) as seen:
        y, _ = part(torch.randn(2, 5, WIDTH), Where.run(2, 5))
    (share,) = seen["sparsity"]
    assert torch.equal(share, (y > 0).float().mean(-1))
    assert (y >= 0).all()


@pytest.mark.parametrize(("count", "size"), [(3, 7), (7, 3), (1, 1), (40, 5)])
def test_the_coding_rate_is_its_equation(count: int, size: int) -> None:
    """By the N × N matrix; the determinant is the same. And by the bits of each direction."""
    z = torch.randn(2, count, size, dtype=torch.float64)
    share = size / (count * 0.3**2)
    wanted = 0.5 * torch.logdet(torch.eye(count, dtype=torch.float64) + share * z @ z.mT)
    assert torch.allclose(coding_rate(z, precision=0.3), wanted, rtol=1e-12, atol=1e-12)
    directions = torch.linalg.svdvals(z)
    assert torch.allclose(0.5 * torch.log1p(share * directions**2).sum(-1), wanted, rtol=1e-12, atol=1e-12)


def test_what_is_not_real_takes_no_bits() -> None:
    z = torch.randn(5, 4, dtype=torch.float64)
    padded = torch.cat((z, torch.full((3, 4), torch.nan, dtype=torch.float64)))
    assert torch.allclose(coding_rate(padded, torch.arange(8) < 5), coding_rate(z), rtol=0, atol=1e-12)
    assert coding_rate(torch.zeros(3, 4)) == 0
    assert torch.allclose(unit(z).norm(dim=-1), torch.ones(5).double())


def test_fewer_directions_take_fewer_bits() -> None:
    torch.manual_seed(0)
    wide = unit(torch.randn(50, 8, dtype=torch.float64))
    flat = unit(torch.randn(50, 2, dtype=torch.float64) @ torch.randn(2, 8, dtype=torch.float64))
    assert coding_rate(flat) < 0.6 * coding_rate(wide)


@torch.no_grad()
def test_unrolled_adds_all_parts_but_the_last() -> None:
    wiring = Unrolled().build(WIDTH, 3, LayerNorm(), 0.0).double()
    first, second, third = wiring.norms
    x = torch.randn(2, 3, WIDTH, dtype=torch.float64)

    def double(z: Tensor) -> Tensor:
        return 2 * z

    made = x + 2 * first(x)
    made = made + second(made).sin()
    assert torch.allclose(wiring(x, [double, torch.sin, torch.relu]), torch.relu(third(made)), rtol=0, atol=1e-12)
    assert Unrolled(final=False).ends(WIDTH, LayerNorm()).final is None
    assert Unrolled().ends(WIDTH, LayerNorm()).final is not None


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="step is 0"):
        Ista.Config(step=0.0)
