"""Lightweight and dynamic convolutions against their equations written as loops, with all options."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.mixers import DynamicConv, LightConv
from heed.parts.convolution.lightweight import Lightweight
from heed.parts.look import look

WIDTH, HEADS = 24, 4


def built(kind: str, **options: object) -> Lightweight:
    torch.manual_seed(0)
    config = LightConv.Config if kind == "light" else DynamicConv.Config
    mixer = config.load({"heads": HEADS, **options}).build(WIDTH).double().eval()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return mixer


@torch.no_grad()
def by_hand(mixer: Lightweight, x: Tensor, places: int) -> Tensor:
    """One row, token by token; `places` beyond its end hold blank tokens that were projected like the others."""
    length, kernel, each = len(x), mixer.kernel, WIDTH // HEADS
    entered = F.pad(x, (0, 0, 0, max(0, places - length)))
    if mixer.enter is not None:
        entered = mixer.enter(entered)
        entered = entered[:, :WIDTH] * torch.sigmoid(entered[:, WIDTH:]) if mixer.gated else entered
    rows = []
    for i in range(length):
        heads = []
        for h in range(HEADS):
            if isinstance(mixer, DynamicConv):
                taps = mixer.taps.weight[h * kernel : (h + 1) * kernel] @ entered[i]
            else:
                assert isinstance(mixer, LightConv)
                taps = mixer.taps[h]
            taps = taps.exp() / taps.exp().sum() if mixer.softmax else taps
            y = torch.zeros(each, dtype=x.dtype)
            for k in range(kernel):
                j = i + k - (kernel - 1 if mixer.streams else kernel // 2)
                if 0 <= j < len(entered):
                    y += taps[k] * entered[j, h * each : (h + 1) * each]
            heads.append(y)
        rows.append(torch.cat(heads))
    made = torch.stack(rows)
    return made if mixer.out is None else mixer.out(made)


@pytest.mark.parametrize("kind", ["light", "dynamic"])
@pytest.mark.parametrize("kernel", [1, 3, 9, 21])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("projection", ["gated", "plain", "none"])
@torch.no_grad()
def test_it_is_its_equation(kind: str, kernel: int, causal: bool, projection: str) -> None:
    """A kernel longer than the text, too: its softmax is over all taps, those outside of the text meet zeros."""
    mixer = built(kind, kernel=kernel, causal=causal, projection=projection)
    x = torch.randn(1, 11, WIDTH, dtype=torch.float64)
    y, _ = mixer(x, Where.run(1, 11))
    assert torch.allclose(y[0], by_hand(mixer, x[0], 0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["light", "dynamic"])
@torch.no_grad()
def test_kernels_without_a_softmax_are_as_they_are(kind: str) -> None:
    mixer = built(kind, kernel=3, softmax=False)
    x = torch.randn(1, 7, WIDTH, dtype=torch.float64)
    assert torch.allclose(mixer(x, Where.run(1, 7))[0][0], by_hand(mixer, x[0], 0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["light", "dynamic"])
@torch.no_grad()
def test_rows_that_are_filled_up_see_blank_tokens(kind: str) -> None:
    """As many as are named, whatever the padding, and they matter: a blank token is projected, bias and all."""
    x = torch.randn(2, 9, WIDTH, dtype=torch.float64)
    x[1, 4:] = torch.nan
    where = Where.ragged([9, 4])
    made = []
    for places in (0, 5, 9, 30):
        mixer = built(kind, kernel=7, causal=False, filled=places)
        y, _ = mixer(x, where)
        for row, length in enumerate((9, 4)):
            wanted = by_hand(mixer, x[row, :length], places)
            assert torch.allclose(y[row, :length], wanted, rtol=0, atol=1e-12)
        made.append(y[1, :4])
    assert not torch.allclose(made[0], made[1])
    assert not torch.allclose(made[1], made[2])
    assert torch.equal(made[2], made[3])  # none looks farther


@torch.no_grad()
def test_kernels_can_be_looked_at() -> None:
    x, where = torch.randn(2, 6, WIDTH, dtype=torch.float64), Where.run(2, 6)
    for kind, shape in (("light", (HEADS, 5)), ("dynamic", (2, 6, HEADS, 5))):
        mixer = built(kind, kernel=5)
        with look(mixer) as seen:
            mixer(x, where)
        (kernels,) = seen["kernels"]
        assert kernels.shape == shape
        assert torch.allclose(kernels.sum(-1), torch.ones(()).double())


def test_taps_are_dropped_in_training_only() -> None:
    x, where = torch.randn(1, 6, WIDTH), Where.run(1, 6)
    for kind in (LightConv.Config, DynamicConv.Config):
        mixer = kind(dropout=0.5, kernel=9).build(WIDTH)
        assert not torch.equal(mixer(x, where)[0], mixer(x, where)[0])
        mixer.eval()
        assert torch.equal(mixer(x, where)[0], mixer(x, where)[0])


def test_all_heads_share_few_numbers() -> None:
    """H·K numbers for all kernels of a lightweight convolution, beside its projections."""
    count = sum(p.numel() for p in LightConv.Config(kernel=31, heads=4).build(64).parameters())
    assert count == 4 * 31 + (2 * 64) * 64 + 2 * 64 + 64 * 64 + 64


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="width 24 does not divide into 5 heads; nearest widths: 20, 25"):
        LightConv.Config(heads=5).build(WIDTH)
    with pytest.raises(ConfigError, match="a kernel of 6 taps has no middle"):
        DynamicConv.Config(kernel=6, causal=False)
    with pytest.raises(ConfigError, match="projection is 'linear'"):
        LightConv.Config.load({"projection": "linear"})
