"""Involution: a kernel for every pixel, made from that pixel alone, and shared by many channels.

A convolution has one kernel for all places and another for every channel; this is the other way round. Over a plane it
is no mixer of a sequence: a network of images is made of it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.config import Config as Tree
from ...core.config import Size
from ...core.errors import ConfigError, InputError


class Involution2d(nn.Module):
    """y_c(p) = Σ_Δ H_g(c)(x_p)_Δ · x_c(p + Δ),   H(x) = W₁ relu( norm( W₀ x ) ) + b, over a K × K neighbourhood.

    Li et al. 2021 (Involution). Consecutive channels share a kernel, `group` of them each; outside of the image are
    zeros. With a stride, kernels are made of the mean of the pixels that become one. `norm` is a batch norm: in
    training the images of a batch depend on one another, in use they do not. Costs O(K²·C) per pixel beside the making
    of its kernels, O(C² / reduction + K²·C² / (group·reduction)).
    """

    class Config(Tree):
        """How large a kernel is, and how it is made."""

        kernel: Size = 7  # pixels on a side
        stride: Size = 1
        group: Size = 16  # channels that share a kernel
        reduction: Size = 4  # of the channels that kernels are made from

        def build(self, width: int) -> Involution2d:
            return Involution2d(self, width)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        if width % config.group:
            raise ConfigError(f"{width} channels do not divide into groups of {config.group}; set group to a divisor")
        if config.kernel % 2 == 0:
            raise ConfigError(f"a kernel of {config.kernel} pixels has no middle; use an odd one")
        narrow = width // config.reduction
        if not narrow:
            raise ConfigError(f"a reduction of {config.reduction} leaves nothing of {width} channels")
        self.config, self.groups = config, width // config.group
        self.reduce = nn.Conv2d(width, narrow, 1, bias=False)
        self.norm = nn.BatchNorm2d(narrow)
        self.spread = nn.Conv2d(narrow, config.kernel**2 * self.groups, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, C, ⌈H / stride⌉, ⌈W / stride⌉]"""
        kernel, stride = self.config.kernel, self.config.stride
        if x.dim() != 4 or x.shape[1] != self.reduce.in_channels or x.shape[2] % stride or x.shape[3] % stride:
            raise InputError(
                f"an involution of stride {stride} takes [rows, {self.reduce.in_channels}, height, width], both "
                f"multiples of the stride, not {tuple(x.shape)}"
            )
        rows, channels, height, width = x.shape
        height, width = height // stride, width // stride
        weight = torch.unflatten(self.kernels(x), 1, (self.groups, 1, kernel**2))  # [B, G, 1, K², h, w]
        near = F.unfold(x, kernel, padding=(kernel - 1) // 2, stride=stride)  # [B, C·K², h·w]
        near = near.view(rows, self.groups, -1, kernel**2, height, width)
        return (weight * near).sum(3).view(rows, channels, height, width)

    def kernels(self, x: Tensor) -> Tensor:
        """The kernel of every pixel, group by group. [B, C, H, W] -> [B, G·K², h, w]"""
        stride = self.config.stride
        x = x if stride == 1 else F.avg_pool2d(x, stride, stride)
        made: Tensor = self.spread(F.relu(self.norm(self.reduce(x))))
        return made
