"""A convolutional network, by its equations."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from heed.models.multimodal.convnet import ConvNet


def test_it_is_its_equations() -> None:
    """Each stage but the first halves rows and columns; each block is added to what it reads."""
    model = ConvNet.Config(image=(8, 12), channels=1, widths=(4, 8), depth=2, groups=2).build().double().eval()
    image = torch.randn(3, 1, 8, 12, dtype=torch.float64)
    held, x = dict(model.named_parameters()), image
    for stage in range(2):
        x = F.conv2d(x, held[f"downs.{stage}.weight"], held[f"downs.{stage}.bias"], stride=stage + 1, padding=1)
        for block in range(2):
            at = f"blocks.{stage}.{block}."
            normed = F.group_norm(x, 2, held[at + "norm.weight"], held[at + "norm.bias"])
            kernel = held[at + "convolution.weight"], held[at + "convolution.bias"]
            x = x + F.conv2d(F.gelu(normed), *kernel, padding=1)
    wanted = F.gelu(F.group_norm(x, 2, held["norm.weight"], held["norm.bias"]))
    seen = model.see(image)
    assert seen.parts[0].shape == (3, 24, 8)
    assert torch.allclose(seen.parts[0], wanted.flatten(2).mT, atol=1e-12)
