"""YOSO against its equation written as loops, and the estimate beside what it estimates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.mixers import Yoso
from heed.parts.look import look
from tests.mixers.growth import grows

WIDTH = 24


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**options: Any) -> Yoso:
    torch.manual_seed(1)
    return Yoso.Config(**options).build(WIDTH).double().eval()


def length_one(*shape: int, seed: int) -> Tensor:
    return F.normalize(draw(*shape, seed=seed), dim=-1)


@pytest.mark.parametrize("options", [{}, {"bits": 2, "kv_heads": 2}, {"kernel": 3, "bias": False}], ids=str)
def test_yoso_is_its_equation(options: dict[str, Any]) -> None:
    mixer, x = built(**options), draw(1, 6, WIDTH)
    y, _ = mixer(x, Where.run(1, 6))
    size, groups = mixer.head_size, mixer.heads // mixer.kv_heads
    q, k, v = (linear(x[0]).detach().split(size, 1) for linear in (mixer.query, mixer.key, mixer.value))
    heads = []
    for h in range(mixer.heads):
        g, rows = h // groups, []
        for i in range(6):
            taken = torch.zeros(size, dtype=x.dtype)
            for j in range(6):
                cosine = float(q[h][i] @ k[g][j] / (q[h][i].norm() * k[g][j].norm()))
                taken += (1 - math.acos(cosine) / math.pi) ** mixer.bits * v[g][j]
            taken = taken / taken.norm()
            if mixer.convolution is not None:
                weight = mixer.convolution.weight[h].flatten()
                for o in (-1, 0, 1):
                    if 0 <= i + o < 6:
                        taken = taken + weight[o + 1] * v[g][i + o]
            rows.append(taken)
        heads.append(torch.stack(rows))
    assert torch.allclose(y[0], mixer.out(torch.cat(heads, 1)), rtol=0, atol=1e-13)


def test_an_estimate_is_what_falls_into_the_same_bucket() -> None:
    mixer = built(bits=3, hashes=5)
    query, key = (length_one(2, 7, 4, 6, seed=seed) for seed in (4, 5))
    value, wanted = draw(2, 7, 4, 6), torch.zeros(2, 7, 4, 6, dtype=torch.float64)
    for planes in mixer.planes:
        for h in range(4):
            sides_of = [(part[:, :, h] @ planes[h] > 0).tolist() for part in (query, key)]
            for b in range(2):
                for i in range(7):
                    for j in range(7):
                        if sides_of[0][b][i] == sides_of[1][b][j]:
                            wanted[b, i, h] += value[b, j, h] / 5
    assert torch.allclose(mixer.drawn(query, key, value), wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("bits", [1, 4])
def test_the_mean_of_estimates_is_the_expectation(bits: int) -> None:
    """Values within four standard errors, and so are the gradients."""
    sure, drawn = built(bits=bits), built(bits=bits, hashes=1024)
    query, key = (length_one(1, 6, 4, 6, seed=seed).requires_grad_() for seed in (4, 5))
    value, target = draw(1, 6, 4, 6).requires_grad_(), draw(1, 6, 4, 6, seed=6)

    def run(mixer: Yoso) -> tuple[Tensor, ...]:
        y = (mixer.expected if mixer.hashes is None else mixer.drawn)(query, key, value)
        return y.detach(), *torch.autograd.grad((y * target).sum(), (query, key, value))

    for exact, estimate in zip(run(sure), run(drawn), strict=True):
        gap = (estimate - exact).square().mean().sqrt()
        assert 0 < gap < 4 * float(exact.abs().max()) * bits / math.sqrt(1024)


def test_the_gradient_is_the_lower_bound_of_the_paper() -> None:
    mixer = built(bits=5)
    query, key, value = (length_one(1, 4, 4, 6, seed=seed).requires_grad_() for seed in (4, 5, 6))
    target = draw(1, 4, 4, 6, seed=7)
    gradients = torch.autograd.grad((mixer.expected(query, key, value) * target).sum(), (query, key, value))
    wanted = [torch.zeros_like(gradient) for gradient in gradients]
    for h in range(4):
        for i in range(4):
            for j in range(4):
                q, k, v, g = query[0, i, h], key[0, j, h], value[0, j, h], target[0, i, h]
                weight = (1 - math.acos(float((q @ k).detach())) / math.pi) ** 5
                wanted[0][0, i, h] += 2.5 * weight * (g @ v) * k
                wanted[1][0, j, h] += 2.5 * weight * (g @ v) * q
                wanted[2][0, j, h] += weight * g
    for gradient, want in zip(gradients, wanted, strict=True):
        assert torch.allclose(gradient, want.detach(), rtol=0, atol=1e-14)


def test_equal_vectors_meet_for_sure_and_with_a_finite_slope() -> None:
    """Rounding may bring their product beyond 1, where an angle is not a number."""
    for mixer in (built(bits=9), built(bits=9, hashes=3)):
        same = length_one(1, 50, 4, 6, seed=4).requires_grad_()
        form = mixer.expected if mixer.hashes is None else mixer.drawn
        y = form(same, same.detach().clone(), torch.ones(1, 50, 4, 6, dtype=torch.float64))
        assert bool((y >= 1).all())
        (gradient,) = torch.autograd.grad(y.sum(), same)
        assert bool(gradient.isfinite().all())


def test_planes_are_drawn_from_the_seed_and_anew_while_training() -> None:
    x, where = draw(1, 6, WIDTH), Where.run(1, 6)
    mixer, other = built(hashes=4, bits=3, seed=1), built(hashes=4, bits=3, seed=2)
    assert torch.equal(mixer(x, where)[0], mixer(x, where)[0])
    assert not torch.equal(mixer(x, where)[0], other(x, where)[0])
    mixer.train()
    assert not torch.equal(mixer(x, where)[0], mixer(x, where)[0])
    assert "planes" not in mixer.state_dict()


def test_looking_shows_chances() -> None:
    mixer = built(bits=2)
    with look(mixer) as seen:
        mixer(draw(2, 6, WIDTH), Where.ragged([6, 4]))
    (weights,) = seen["weights"]
    assert weights.shape == (2, 4, 6, 6)
    assert bool(((weights >= 0) & (weights <= 1)).all())
    assert bool((weights[1, :, :, 4:] == 0).all())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="are chances and not dropped; leave dropout at 0"):
        Yoso.Config(dropout=0.1)
    with pytest.raises(ConfigError, match=r"a hash of 21 bits needs 2\^21 buckets; use at most 20 bits"):
        Yoso.Config(bits=21, hashes=2)
    Yoso.Config(bits=21)
    for field in ("bits", "hashes"):
        with pytest.raises(ConfigError, match=field):
            Yoso.Config.load({field: 0})
    with pytest.raises(ConfigError, match="has no middle"):
        Yoso.Config(kernel=2)


def test_the_estimate_grows_with_the_length_and_the_expectation_with_its_square() -> None:
    assert grows(Yoso.Config(hashes=4, bits=4)) < 4.5
    assert grows(Yoso.Config(), short=100) > 15
