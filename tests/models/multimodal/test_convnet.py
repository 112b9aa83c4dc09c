"""A convolutional network: by its equation, image by image, and what it refuses."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.models import ConvNet
from heed.parts.convolution.images import Plain2d, Separable2d, Transposed2d
from heed.parts.outputs.heads import Pooled
from heed.verify.statements import round_trips

PLAIN = ConvNet.Config(image=(6, 5), channels=2, widths=(4, 8), depth=1, groups=2, heads=Pooled.Config(labels=3))
VARIED = PLAIN.model_copy(update={"convolution": Separable2d(kernel=5), "groups": 1, "depth": 2})


def built(config: ConvNet.Config = PLAIN) -> ConvNet:
    """With weights that differ everywhere: norms begin as ones and zeros."""
    torch.manual_seed(0)
    model = config.build().double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model


def convolved(plane: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """Pixel by pixel, with zeros around. [C, H, W] -> [D, H', W']"""
    height, width = (-(-side // stride) for side in plane.shape[1:])
    made = bias[:, None, None].repeat(1, height, width)
    for down, right, u, v in product(range(height), range(width), range(3), range(3)):
        i, j = stride * down + u - 1, stride * right + v - 1
        if 0 <= i < plane.shape[1] and 0 <= j < plane.shape[2]:
            made[:, down, right] += weight[:, :, u, v] @ plane[:, i, j]
    return made


def normed(plane: Tensor, weight: Tensor, bias: Tensor, groups: int) -> Tensor:
    """Channels in groups, each with its own mean and spread over all pixels. [D, H, W]"""
    parts = [(part - part.mean()) / torch.sqrt(part.var(correction=0) + 1e-5) for part in plane.chunk(groups)]
    return torch.cat(parts) * weight[:, None, None] + bias[:, None, None]


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


@torch.no_grad()
def test_it_is_its_equation() -> None:
    """x + conv(gelu(norm x)) in every stage; the second one sees every other row and column."""
    model, images = built(), torch.randn(1, 2, 6, 5, dtype=torch.float64)
    weights, x = dict(model.named_parameters()), images[0]
    for stage, stride in ((0, 1), (1, 2)):
        x = convolved(x, weights[f"downs.{stage}.weight"], weights[f"downs.{stage}.bias"], stride)
        block = f"blocks.{stage}.0"
        inner = gelu(normed(x, weights[f"{block}.norm.weight"], weights[f"{block}.norm.bias"], 2))
        x = x + convolved(inner, weights[f"{block}.convolution.weight"], weights[f"{block}.convolution.bias"], 1)
    last = gelu(normed(x, weights["norm.weight"], weights["norm.bias"], 2))
    seen = model.see(images)
    assert (last.shape, seen.shape) == ((8, 3, 3), (1, 9))
    pixels = [last[:, i, j] for i in range(3) for j in range(3)]
    assert torch.allclose(seen.parts[0][0], torch.stack(pixels), rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", [PLAIN, VARIED], ids=["plain", "varied"])
@torch.no_grad()
def test_images_are_independent_of_one_another(config: ConvNet.Config) -> None:
    """While it learns, too: no norm reaches across the batch."""
    model, images = built(config).train(), torch.randn(3, 2, 6, 5, dtype=torch.float64)
    whole = model.see(images)
    assert torch.allclose(model.see(images[[2, 0]]).parts[0], whole.parts[0][[2, 0]], rtol=0, atol=1e-12)
    assert model.heads["pooled"](whole.parts[0], whole).shape == (3, 3)
    where = model.default_where(images)
    assert torch.equal(where.order, whole.order)
    assert torch.equal(model(images, where)[0], whole.parts[0])
    assert torch.equal(model.encode(images, where).parts[0], whole.parts[0])


@pytest.mark.parametrize("config", [PLAIN, VARIED], ids=["plain", "varied"])
def test_every_weight_learns(config: ConvNet.Config) -> None:
    model = config.build()
    seen = model.see(torch.randn(2, 2, 6, 5))
    model.heads["pooled"](seen.parts[0], seen).square().sum().backward()
    assert all(weight.grad is not None and bool(weight.grad.any()) for weight in model.parameters())
    assert round_trips(config).holds
    assert (model.shown, model.spec()) == ((2, 6, 5), ())


def test_what_does_not_fit_is_refused() -> None:
    model = PLAIN.build()
    for images in (torch.zeros(1, 3, 6, 5), torch.zeros(2, 6, 5), torch.zeros(1, 2, 6, 5, dtype=torch.uint8)):
        with pytest.raises(InputError, match=r"shape \[rows, 2, height, width\]"):
            model.see(images)
    with pytest.raises(InputError, match="these images have"):
        model.encode(torch.zeros(1, 2, 6, 5), Where.run(1, 30))
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"widths": (6, 9), "groups": 2}, "do not divide into 2 groups"),
        ({"widths": ()}, "do not divide into"),
        ({"convolution": Transposed2d()}, "its stride must be 1, not 2"),
        ({"convolution": Plain2d(stride=3)}, "its stride must be 1, not 3"),
    )
    for given, told in wrong:
        with pytest.raises((ConfigError, ValueError), match=told):
            ConvNet.Config(**given)
