"""A convolutional network (LeCun et al. 1989) with residual blocks (He et al. 2016): what ViT is compared with."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, Self

from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Parts, Size
from ...core.contract import Mixer, Reach, Where
from ...core.errors import InputError
from ...core.interfaces import Asked, Encodes, Sees
from ...core.spec import Spec
from ...core.state import Seen
from ...parts.convolution.images import AnyConvolution, ImageConvolution, Plain2d, Transposed2d
from ...parts.inputs.patches import Grid
from ...parts.outputs.heads import SomeHeads, Wanted, headed, heads_of
from ..block import States
from ..plan import Shape
from .vision import must_match


class Residual2d(nn.Module):
    """x + conv( gelu( norm(x) ) ), over a plane [B, D, H, W]."""

    def __init__(self, width: int, groups: int, convolution: ImageConvolution) -> None:
        super().__init__()
        self.norm, self.act = nn.GroupNorm(groups, width), nn.GELU()
        self.convolution = convolution.build(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.convolution(self.act(self.norm(x)))
        return y


class ConvNet(Mixer[States], Encodes, Sees, Asked):
    """Stages of residual convolutions; from the second on each sees half as many rows and columns as the one before.

    The pixels of the last plane are the stream that its heads read. It gives fewer tokens than it takes pixels, and is
    no mixer of a sequence: it obeys the protocol, so that every task of images takes it.
    """

    class Config(Shape):
        kind: Literal["convnet"] = "convnet"
        image: tuple[Size, Size] = (32, 32)  # height and width in pixels
        channels: Size = 3  # of a pixel
        widths: tuple[Size, ...] = (32, 64, 128)  # channels of each stage
        depth: Parts = 2  # blocks of a stage
        groups: Size = 4  # parts of the channels that are normed together
        convolution: AnyConvolution = Plain2d()  # of a block
        heads: SomeHeads | None = None  # over its hidden states

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if not self.widths or any(width % self.groups for width in self.widths):
                raise ValueError(f"widths {self.widths} do not divide into {self.groups} groups")
            stride = self.convolution.stride if isinstance(self.convolution, Plain2d | Transposed2d) else 1
            if stride != 1:
                raise ValueError(
                    f"a block adds its convolution to what it takes, so its stride must be 1, not {stride}; stages "
                    "halve height and width by themselves"
                )
            return self

        def sized(self, vocabulary: int) -> Self:
            """An image has no vocabulary."""
            return self

        def headed(self, wanted: Wanted) -> Self:
            return self.model_copy(update={"heads": headed(self.heads, wanted, 0)})

        def build(self) -> ConvNet:
            return ConvNet(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.reach = config, Reach(None, None)
        widths = pairwise((config.channels, *config.widths))
        self.downs = nn.ModuleList(
            nn.Conv2d(before, after, 3, 1 if index == 0 else 2, padding=1)
            for index, (before, after) in enumerate(widths)
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(*(Residual2d(width, config.groups, config.convolution) for _ in range(config.depth)))
            for width in config.widths
        )
        self.norm = nn.GroupNorm(config.groups, config.widths[-1])
        self.heads = heads_of(config.heads, config.widths[-1])

    @property
    def shown(self) -> tuple[int, int, int]:
        return self.config.channels, *self.config.image

    def see(self, images: Tensor) -> Seen:
        """The last plane, pixel by pixel, with its own stamps."""
        if images.dim() != 4 or images.shape[1] != self.config.channels or not images.is_floating_point():
            raise InputError(
                f"images must be numbers of shape [rows, {self.config.channels}, height, width], got {images.dtype} of "
                f"shape {tuple(images.shape)}; heed.media.images makes them from files"
            )
        x = images.to(self.norm.weight.dtype)
        for down, blocks in zip(self.downs, self.blocks, strict=True):
            x = blocks(down(x))
        x = nn.functional.gelu(self.norm(x))
        where = Grid.of(x.shape[0], x.shape[2], x.shape[3], device=x.device)
        return Seen.of(where, x.flatten(2).mT)

    def encode(self, images: Tensor, where: Where | None = None) -> Seen:
        seen = self.see(images)
        if where is not None:
            must_match(where, seen)
        return seen

    def spec(self) -> Spec:
        return ()

    def default_where(self, x: Tensor) -> Where:
        for _ in self.config.widths[1:]:
            x = x[:, :, ::2, ::2]
        return Grid.of(x.shape[0], x.shape[2], x.shape[3], device=x.device)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """The same as a Mixer."""
        return self.encode(x, where).parts[0], None
