"""Involution over a plane against its equation written as loops."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heed.core.errors import ConfigError, InputError
from heed.parts.convolution.involution import Involution2d


def built(width: int, **options: int) -> Involution2d:
    torch.manual_seed(0)
    layer = Involution2d.Config(**options).build(width).double().eval()
    assert layer.norm.running_mean is not None
    assert layer.norm.running_var is not None
    layer.norm.running_mean.normal_()
    layer.norm.running_var.uniform_(0.5, 2)
    return layer


def by_hand(layer: Involution2d, x: Tensor, kernel: int, stride: int, group: int) -> Tensor:
    """One image. [C, H, W]"""
    channels, height, width = x.shape
    far, made = kernel // 2, torch.zeros(channels, height // stride, width // stride, dtype=x.dtype)
    for a in range(height // stride):
        for b in range(width // stride):
            block = x[:, a * stride : (a + 1) * stride, b * stride : (b + 1) * stride].mean((1, 2))
            narrow = layer.reduce.weight[:, :, 0, 0] @ block
            norm = layer.norm
            assert norm.running_mean is not None
            assert norm.running_var is not None
            assert layer.spread.bias is not None
            narrow = (narrow - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
            taps = layer.spread.weight[:, :, 0, 0] @ F.relu(narrow) + layer.spread.bias
            taps = taps.view(-1, kernel, kernel)
            for c in range(channels):
                for i in range(kernel):
                    for j in range(kernel):
                        row, column = a * stride + i - far, b * stride + j - far
                        if 0 <= row < height and 0 <= column < width:
                            made[c, a, b] += taps[c // group, i, j] * x[c, row, column]
    return made


@pytest.mark.parametrize(
    ("kernel", "stride", "group", "reduction"), [(3, 1, 4, 2), (5, 1, 8, 4), (3, 2, 2, 8), (1, 1, 1, 1), (7, 3, 4, 4)]
)
@torch.no_grad()
def test_it_is_its_equation(kernel: int, stride: int, group: int, reduction: int) -> None:
    layer = built(8, kernel=kernel, stride=stride, group=group, reduction=reduction)
    x = torch.randn(2, 8, 6, 9 if stride == 3 else 4, dtype=torch.float64)
    y = layer(x)
    for image, answer in zip(x, y, strict=True):
        assert torch.allclose(answer, by_hand(layer, image, kernel, stride, group), rtol=0, atol=1e-12)


def test_it_has_few_weights() -> None:
    """Li et al. 2021, sec. 3: C²/r + K²·C·G/r beside the norm and a bias, where a convolution has K²·C²."""
    layer = Involution2d.Config(kernel=7, group=16, reduction=4).build(64)
    count = sum(p.numel() for p in layer.parameters())
    assert count == 64 * 16 + 2 * 16 + 16 * 49 * 4 + 49 * 4
    assert count < 0.03 * 49 * 64 * 64


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="24 channels do not divide into groups of 16"):
        Involution2d.Config().build(24)
    with pytest.raises(ConfigError, match="a kernel of 4 pixels has no middle"):
        Involution2d.Config(kernel=4).build(16)
    with pytest.raises(ConfigError, match="a reduction of 99 leaves nothing of 16 channels"):
        Involution2d.Config(reduction=99).build(16)
    with pytest.raises(InputError, match="of stride 2 takes .rows, 16, height, width., both multiples"):
        Involution2d.Config(stride=2).build(16)(torch.zeros(1, 16, 5, 4))
    with pytest.raises(InputError, match="takes .rows, 16"):
        Involution2d.Config().build(16)(torch.zeros(16, 4, 4))
