"""Every convolution of images against its equation, written as loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from heed.core.config import kind_of
from heed.core.errors import ConfigError
from heed.parts.convolution.images import (
    CONVOLUTIONS,
    Depthwise2d,
    Dilated2d,
    Flattened2d,
    Grouped2d,
    ImageConvolution,
    Plain2d,
    Separable2d,
    Shuffled2d,
    Transposed2d,
    multiplications,
)

C, D, SIDE, K = 4, 8, 7, 3


def looped(x: Tensor, weight: Tensor, *, groups: int = 1, stride: int = 1, step: int = 1) -> Tensor:
    """b aside, y[d, i, j] = Σ_c Σ_uv w[d, c, u, v] x[c, ...], where a group of outputs reads its own channels."""
    outs, each, down, across = weight.shape
    sides = [-(-side // stride) for side in x.shape[1:]]
    y = torch.zeros(outs, *sides, dtype=x.dtype)
    for d in range(outs):
        first = d // (outs // groups) * each
        for i in range(sides[0]):
            for j in range(sides[1]):
                for u in range(down):
                    for v in range(across):
                        a, b = stride * i + (u - down // 2) * step, stride * j + (v - across // 2) * step
                        if 0 <= a < x.shape[1] and 0 <= b < x.shape[2]:
                            y[d, i, j] += (weight[d, :, u, v] * x[first : first + each, a, b]).sum()
    return y


def made(config: ImageConvolution) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    layer = config.build(C, D).double()
    x = torch.randn(C, SIDE, SIDE - 1, dtype=torch.float64)
    return layer, x, layer(x[None])[0]


def parts(layer: nn.Module) -> list[nn.Conv2d]:
    return [each for each in layer.modules() if isinstance(each, nn.Conv2d)]


CASES = [
    (Plain2d(), [{}]),
    (Plain2d(stride=2), [{"stride": 2}]),
    (Dilated2d(dilation=2), [{"step": 2}]),
    (Grouped2d(groups=2), [{"groups": 2}]),
    (Depthwise2d(), [{"groups": C}]),
    (Separable2d(), [{"groups": C}, {}]),
    (Flattened2d(kernel=5), [{}, {"groups": D}, {"groups": D}]),
]


@pytest.mark.parametrize(("config", "steps"), CASES, ids=[repr(config) for config, _ in CASES])
@torch.no_grad()
def test_a_convolution_is_its_loops(config: ImageConvolution, steps: list[dict[str, int]]) -> None:
    layer, x, y = made(config)
    for part, step in zip(parts(layer), steps, strict=True):
        x = looped(x, part.weight, **step)
        x = x if part.bias is None else x + part.bias[:, None, None]
    assert torch.allclose(y, x, rtol=0, atol=1e-13)


@torch.no_grad()
def test_a_shuffled_one_deals_its_channels_out() -> None:
    layer, x, y = made(Shuffled2d(groups=2))
    (grouped,) = parts(layer)
    plain = looped(x, grouped.weight, groups=2) + grouped.bias[:, None, None]  # type: ignore[index]
    for a in range(2):
        for b in range(D // 2):
            assert torch.allclose(y[b * 2 + a], plain[a * (D // 2) + b], rtol=0, atol=1e-13)


@torch.no_grad()
def test_a_transposed_one_paints_its_kernel() -> None:
    layer, x, y = made(Transposed2d(stride=2))
    assert isinstance(layer, nn.ConvTranspose2d)
    assert layer.bias is not None
    painted = torch.zeros(D, 2 * SIDE, 2 * (SIDE - 1), dtype=torch.float64) + layer.bias[:, None, None]
    for i in range(SIDE):
        for j in range(SIDE - 1):
            for u in range(K):
                for v in range(K):
                    a, b = 2 * i + u - 1, 2 * j + v - 1
                    if 0 <= a < painted.shape[1] and 0 <= b < painted.shape[2]:
                        painted[:, a, b] += torch.einsum("cd,c->d", layer.weight[:, :, u, v], x[:, i, j])
    assert torch.allclose(y, painted, rtol=0, atol=1e-13)


def test_costs_are_those_that_the_docstrings_tell() -> None:
    image, pixels = torch.randn(C, 8, 8), 64
    costs = {kind_of(kind): multiplications(kind(), image, D) / pixels for kind in CONVOLUTIONS}
    assert costs == {
        **dict.fromkeys(
            ("plain", "dilated", "transposed"), K * K * C * D
        ),  # transposed: four times the pixels come out
        **dict.fromkeys(("grouped", "shuffled"), K * K * C * D / 2),
        "depthwise": K * K * D,
        "separable": K * K * C + C * D,
        "flattened": C * D + 2 * K * D,
    }


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="a kernel of 4 pixels has no middle"):
        Plain2d(kernel=4)
    with pytest.raises(ConfigError, match="8 channels do not divide into 3 groups; use a multiple of 3"):
        Grouped2d(groups=3).build(6, 8)
