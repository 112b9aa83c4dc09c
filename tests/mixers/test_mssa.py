"""Subspace attention against its equation, its two halves of bytes, and what its points show."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.spec import price, words
from heed.mixers import Attention, Mssa
from heed.parts.feedforward.ista import coding_rate
from heed.parts.look import look
from heed.parts.masks import Whole

WIDTH, HEADS, SIZE = 24, 4, 6


def built(**options: object) -> Mssa:
    torch.manual_seed(0)
    return Mssa.Config.load({"heads": HEADS, **options}).build(WIDTH).double().eval()


@pytest.mark.parametrize("mask", ["causal", "whole"])
@pytest.mark.parametrize("out", ["transposed", "free"])
@torch.no_grad()
def test_it_is_its_equation(mask: str, out: str) -> None:
    mixer = built(mask={"kind": mask}, out=out, step=0.7)
    x = torch.randn(7, WIDTH, dtype=torch.float64)
    y, _ = mixer(x[None], Where.run(1, 7))
    subspaces = mixer.subspaces.weight.view(HEADS, SIZE, WIDTH)
    for i in range(7):
        total, heads = torch.zeros(WIDTH, dtype=torch.float64), list[Tensor]()
        for h in range(HEADS):
            u = [subspaces[h] @ token for token in x]
            seen = range(i + 1) if mask == "causal" else range(7)
            weight = [math.exp(float(u[i] @ u[j]) / math.sqrt(SIZE)) for j in seen]
            mean = sum((w / sum(weight) * u[j] for w, j in zip(weight, seen, strict=True)), torch.zeros_like(u[0]))
            heads.append(mean)
            total += subspaces[h].T @ mean
        wanted = total if mixer.out is None else mixer.out(torch.cat(heads))
        assert torch.allclose(y[0, i], 0.7 * wanted, rtol=0, atol=1e-12)


@torch.no_grad()
def test_one_subspace_that_is_everything_needs_no_way_back() -> None:
    mixer = built(heads=1, out="none")
    x, where = torch.randn(1, 5, WIDTH, dtype=torch.float64), Where.run(1, 5)
    u = mixer.projected(x).transpose(1, 2)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    wanted = (u @ u.mT / math.sqrt(WIDTH)).masked_fill(hidden, -math.inf).softmax(-1) @ u
    assert torch.allclose(mixer(x, where)[0], wanted.squeeze(1), rtol=0, atol=1e-12)


def test_it_remembers_half_of_what_attention_does() -> None:
    stamps = 16 * 1000
    own, full = (config.build(WIDTH) for config in (Mssa.Config(), Attention.Config()))
    assert 2 * (price(own.spec(), 1000) - stamps) == price(full.spec(), 1000) - stamps
    assert words(own.spec()) == "heads·head_size numbers per token"
    assert sum(p.numel() for p in own.parameters()) * 4 == sum(p.numel() for p in full.parameters() if p.dim() > 1)


@torch.no_grad()
def test_a_step_compresses() -> None:
    """What the paper derives: tokens around few directions take fewer bits in the subspaces after a step."""
    torch.manual_seed(0)
    mixer = Mssa.Config(heads=2, head_size=4, mask=Whole(), step=0.5).build(WIDTH).double()
    basis, _ = torch.linalg.qr(torch.randn(WIDTH, 8, dtype=torch.float64))
    mixer.subspaces.weight.copy_(basis.T)  # orthonormal, as in the derivation
    centres = 3 * torch.randn(3, 2, WIDTH, dtype=torch.float64)
    x = centres[:, torch.arange(40) % 2] + 0.5 * torch.randn(3, 40, WIDTH, dtype=torch.float64)
    moved = 0.5 * x + mixer(x, Where.run(3, 40))[0]  # (1 - η) x + η Uᵀ attention(U x)

    def rate(z: Tensor) -> Tensor:
        return coding_rate(mixer.projected(z).transpose(1, 2)).sum(1)

    assert (rate(moved) < 0.95 * rate(x)).all()


@torch.no_grad()
def test_the_rate_of_every_row_can_be_looked_at() -> None:
    mixer = built(mask={"kind": "whole"})
    x = torch.randn(2, 9, WIDTH, dtype=torch.float64)
    x[1, 5:] = torch.nan
    with look(mixer, "rate", "weights") as seen:
        mixer(x, Where.ragged([9, 5]))
    (rate,) = seen["rate"]
    assert rate.shape == (2, HEADS)
    assert seen["weights"][0].shape == (2, HEADS, 9, 9)
    for row, length in enumerate((9, 5)):
        u = mixer.projected(x[row, :length]).transpose(0, 1)  # [H, n, p]
        z = u / u.norm(dim=-1, keepdim=True)
        wanted = 0.5 * torch.logdet(torch.eye(length) + SIZE / (length * 0.01) * z @ z.mT)
        assert torch.allclose(rate[row], wanted, rtol=0, atol=1e-10)


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="width 24 does not divide into 5 heads; .*; or set head_size"):
        Mssa.Config(heads=5).build(WIDTH)
    with pytest.raises(
        ConfigError, match='4 heads of 5 channels give 20, the stream has 24; .* "transposed" or "free"'
    ):
        Mssa.Config(head_size=5, out="none").build(WIDTH)
