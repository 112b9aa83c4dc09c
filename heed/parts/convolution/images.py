"""Convolutions of images, and what they were varied to: dilated, grouped, depthwise, separable, transposed, ...

All take [B, C, H, W] to [B, C', H', W']. Kernels are odd and images are framed with zeros, so that a convolution of
stride 1 leaves height and width as they are. `CONVOLUTIONS` is the table. Costs below are multiplications per pixel of
the output, for kernels of K × K and from C to D channels.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Config as Tree
from ...core.config import Flag, OneOf, Size
from ...core.errors import ConfigError


class ImageConvolution(Tree):
    """How to build a convolution of images."""

    kernel: Size = 3  # K, pixels on each side; odd
    bias: Flag = True

    @model_validator(mode="after")
    def _centred(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError(f"a kernel of {self.kernel} pixels has no middle; use an odd one")
        return self

    @abstractmethod
    def build(self, channels: int, out: int) -> nn.Module:
        """From so many channels to so many."""


class Plain2d(ImageConvolution):
    """y[d, i, j] = b_d + Σ_c Σ_uv w[d, c, u, v] x[c, s·i + u - K//2, s·j + v - K//2] (LeCun et al. 1989). K²·C·D."""

    kind: Literal["plain"] = "plain"
    stride: Size = 1  # s, pixels from one output to the next

    def build(self, channels: int, out: int) -> nn.Module:
        return nn.Conv2d(channels, out, self.kernel, self.stride, padding=self.kernel // 2, bias=self.bias)


class Dilated2d(ImageConvolution):
    """Taps stand r pixels apart: the same weights see (K - 1)·r + 1 pixels (Yu & Koltun 2016). K²·C·D."""

    kind: Literal["dilated"] = "dilated"
    dilation: Size = 2  # r

    def build(self, channels: int, out: int) -> nn.Module:
        frame = self.kernel // 2 * self.dilation
        return nn.Conv2d(channels, out, self.kernel, padding=frame, dilation=self.dilation, bias=self.bias)


class Grouped2d(ImageConvolution):
    """Channels in G groups, each convolved by itself (Krizhevsky et al. 2012). K²·C·D / G."""

    kind: Literal["grouped"] = "grouped"
    groups: Size = 2  # G

    def build(self, channels: int, out: int) -> nn.Module:
        _must_divide(self.groups, channels, out)
        return nn.Conv2d(channels, out, self.kernel, padding=self.kernel // 2, groups=self.groups, bias=self.bias)


class Depthwise2d(ImageConvolution):
    """Every channel by itself; D must be a multiple of C, of which each gets its share (Sifre 2014). K²·D."""

    kind: Literal["depthwise"] = "depthwise"

    def build(self, channels: int, out: int) -> nn.Module:
        _must_divide(channels, out)
        return nn.Conv2d(channels, out, self.kernel, padding=self.kernel // 2, groups=channels, bias=self.bias)


class Separable2d(ImageConvolution):
    """Every channel by itself, then a 1 × 1 convolution that mixes them (Chollet 2017). K²·C + C·D."""

    kind: Literal["separable"] = "separable"

    def build(self, channels: int, out: int) -> nn.Module:
        each = nn.Conv2d(channels, channels, self.kernel, padding=self.kernel // 2, groups=channels, bias=False)
        return nn.Sequential(each, nn.Conv2d(channels, out, 1, bias=self.bias))


class Transposed2d(ImageConvolution):
    """Every pixel of the input paints a kernel into an image s times as large (Zeiler et al. 2010). K²·C·D / s².

    y[d, s·i + u - K//2, s·j + v - K//2] += w[c, d, u, v] x[c, i, j]: the gradient of a plain one of stride s.
    """

    kind: Literal["transposed"] = "transposed"
    stride: Size = 2  # s, by which height and width grow

    def build(self, channels: int, out: int) -> nn.Module:
        frame, rest = self.kernel // 2, self.stride - 1
        return nn.ConvTranspose2d(channels, out, self.kernel, self.stride, frame, rest, bias=self.bias)


class Flattened2d(ImageConvolution):
    """Across channels, then down, then across: a kernel that is a product of three lines (Jin et al. 2014).

    The last two alone are what is called spatially separable. C·D + 2·K·D.
    """

    kind: Literal["flattened"] = "flattened"

    def build(self, channels: int, out: int) -> nn.Module:
        half = self.kernel // 2
        return nn.Sequential(
            nn.Conv2d(channels, out, 1, bias=False),
            nn.Conv2d(out, out, (self.kernel, 1), padding=(half, 0), groups=out, bias=False),
            nn.Conv2d(out, out, (1, self.kernel), padding=(0, half), groups=out, bias=self.bias),
        )


class Shuffled2d(ImageConvolution):
    """Grouped, then channels are dealt out, so that the next groups hold some of each (Zhang et al. 2018). K²·C·D / G.

    Channel a·D/G + b becomes channel b·G + a.
    """

    kind: Literal["shuffled"] = "shuffled"
    groups: Size = 2  # G

    def build(self, channels: int, out: int) -> nn.Module:
        _must_divide(self.groups, channels, out)
        grouped = nn.Conv2d(channels, out, self.kernel, padding=self.kernel // 2, groups=self.groups, bias=self.bias)
        return nn.Sequential(grouped, nn.ChannelShuffle(self.groups))


CONVOLUTIONS: tuple[type[ImageConvolution], ...] = (
    Plain2d,
    Dilated2d,
    Grouped2d,
    Depthwise2d,
    Separable2d,
    Transposed2d,
    Flattened2d,
    Shuffled2d,
)
AnyConvolution = Annotated[ImageConvolution, OneOf(lambda: CONVOLUTIONS)]


def _must_divide(groups: int, *channels: int) -> None:
    wrong = [count for count in channels if count % groups]
    if wrong:
        raise ConfigError(f"{wrong[0]} channels do not divide into {groups} groups; use a multiple of {groups}")


def multiplications(convolution: ImageConvolution, image: Tensor, out: int) -> int:
    """How many multiplications an image [C, H, W] costs, counted as they are made. Zeros of the frame count, too."""
    total = 0

    def count(layer: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += made.numel() * layer.weight[0].numel()
        if isinstance(layer, nn.ConvTranspose2d):
            total += given[0].numel() * layer.weight[0].numel()

    model = convolution.build(image.shape[0], out).to(image)
    for layer in model.modules():
        layer.register_forward_hook(count)
    with torch.no_grad():
        model(image[None])
    return total
