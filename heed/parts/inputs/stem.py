"""A convolutional stem: what stands between the pixels of an image and its patches."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Self

from pydantic import model_validator
from torch import nn

from ...core.config import Config, Size


class Stem(Config):
    """x ← gelu( norm( conv(x) ) ) for each layer, 3 × 3; a stride above 1 makes the plane as many times smaller.

    Early convolutions know what is near, so that little data is enough, and training is steadier. Xiao et al. 2021,
    Early Convolutions Help Transformers See Better, arXiv 2106.14881. Their norm is over a batch; this one is over the
    groups of one image (Wu & He 2018), so that no image depends on what stands beside it. Costs 9·C·D multiplications
    for a pixel of the output.
    """

    channels: tuple[Size, ...] = (32, 64)  # of each layer
    strides: tuple[Size, ...] = (2, 2)  # of each layer
    groups: Size = 4  # parts of the channels that are normed together

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.channels or len(self.channels) != len(self.strides):
            raise ValueError(
                f"channels names {len(self.channels)} layers and strides {len(self.strides)}; name both for each"
            )
        if any(count % self.groups for count in self.channels):
            raise ValueError(f"channels {self.channels} do not divide into {self.groups} groups")
        return self

    @property
    def shrinks(self) -> int:
        """Pixels of a side that become one."""
        return prod(self.strides)

    def build(self, channels: int) -> nn.Sequential:
        sizes = pairwise((channels, *self.channels))
        layers = [
            layer
            for (before, after), stride in zip(sizes, self.strides, strict=True)
            for layer in (
                nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
                nn.GroupNorm(self.groups, after),
                nn.GELU(),
            )
        ]
        return nn.Sequential(*layers)
