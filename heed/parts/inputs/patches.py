"""Patches: from an image to a stream of tokens, one for each square that it is cut into, and from many to fewer.

The patches of an image stand on a grid, row by row. Their stamps say so (`Grid`), so that a table of positions learnt
on one grid can be stretched to another, and so that a mixer that works on a plane knows the plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Config as Tree
from ...core.config import Count, Flag, Size
from ...core.contract import Where
from ...core.errors import InputError
from ...core.stamps import Span
from ..layers.dropout import Dropout
from ..layers.norms import AnyNorm, LayerNorm
from ..positions import Learned
from .stem import Stem
from .tokens import Embeddings

MERGED = 4  # patches that become one: two by two


@dataclass(frozen=True, eq=False, kw_only=True)
class Grid(Where):
    """The stamps of a whole image: first its marks, if it has any, then height · width patches, row by row."""

    height: int
    width: int

    @classmethod
    def of(cls, rows: int, height: int, width: int, *, marks: int = 0, device: torch.device | None = None) -> Grid:
        """As many images as there are rows, all of one size."""
        count = marks + height * width
        order = torch.arange(count, device=device).expand(rows, count)
        where = cls(order=order, position=order, height=height, width=width)
        where.known(Span(0, count - 1, run=True, padded=False))
        return where


class PatchEmbeddings(Embeddings):
    """x = dropout( norm'( [marks; norm( W·norm″(patch) + b )] + position ) ), every piece but W optional.

    Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, eq. 1. A mark is a token that stands for no patch: it learns
    to gather what the whole image is about. For an image of another size than the table of positions was made for, the
    table is resized like a picture (bicubic).
    """

    class Config(Tree):
        """How an image is cut."""

        image: tuple[Size, Size]  # height and width in pixels that the table of positions is for
        patch: tuple[Size, Size]  # height and width of a patch in pixels
        channels: Size = 3  # of a pixel: 3 colours
        marks: Count = 1  # tokens before the patches: one gathers (ViT), a second one learns from a teacher (DeiT)
        position: Flag = True  # patches have a trained position
        bias: Flag = True
        pixel_norm: AnyNorm | None = None  # of the pixels of a patch, all channels of them (CRATE)
        patch_norm: AnyNorm | None = None  # before the position is added (Swin)
        norm: AnyNorm | None = None  # after it (CLIP)
        filled: Flag = False  # an image that does not divide is filled up with zeros (Swin); else the rest is cut off
        stem: Stem | None = None  # convolutions before the patches are cut, which make the plane smaller

        @model_validator(mode="after")
        def _divides(self) -> Self:
            if self.stem is None:
                return self
            if self.filled or self.pixel_norm is not None:
                raise ValueError("a stem is for patches that are cut plainly; leave filled and pixel_norm out")
            if any(side % self.stem.shrinks for side in self.patch):
                raise ValueError(
                    f"the stem makes {self.stem.shrinks} pixels one, so a patch has sides of a multiple of that; "
                    f"it has {self.patch[0]}x{self.patch[1]}"
                )
            return self

        @property
        def grid(self) -> tuple[int, int]:
            """Rows and columns of whole patches."""
            return self.image[0] // self.patch[0], self.image[1] // self.patch[1]

        def build(self, width: int, dropout: float = 0.0) -> PatchEmbeddings:
            return PatchEmbeddings(self, width, dropout)

    def __init__(self, config: Config, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        stem = config.stem
        self.stem = None if stem is None else stem.build(config.channels)
        channels, shrinks = (config.channels, 1) if stem is None else (stem.channels[-1], stem.shrinks)
        patch = config.patch[0] // shrinks, config.patch[1] // shrinks
        self.cut = nn.Conv2d(channels, width, patch, stride=patch, bias=config.bias)
        self.marks = nn.ParameterList(nn.Parameter(0.02 * torch.randn(width)) for _ in range(config.marks))
        length = config.marks + prod(config.grid)
        self.position = Learned.Config(length=length).build(width) if config.position else None
        pixels = config.channels * prod(config.patch)
        self.pixel_norm = None if config.pixel_norm is None else config.pixel_norm.build(pixels)
        self.patch_norm = None if config.patch_norm is None else config.patch_norm.build(width)
        self.norm = None if config.norm is None else config.norm.build(width)
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.cut.weight.view(width, -1))  # as one matrix over a patch, which it is
        if self.patch_norm is not None:  # beside normed patches, numbers of 0.02 would drown
            for learnt in (*self.marks, *(() if self.position is None else self.position.parameters())):
                nn.init.normal_(learnt)

    @property
    def shown(self) -> tuple[int, int, int]:
        """The images that the table of positions is for: channels, height and width."""
        return self.config.channels, *self.config.image

    def forward(self, images: Tensor) -> tuple[Tensor, Grid]:
        x, where = self.embed(images)
        return self.place(x, where), where

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        """The bare embeddings, and where they stand. [B, C, H, W] -> [B, marks + patches, D]"""
        self._check(images)
        if self.config.filled:
            down, right = (-side % patch for side, patch in zip(images.shape[2:], self.config.patch, strict=True))
            images = F.pad(images, (0, right, 0, down))
        x = self._cut(images.to(self.cut.weight.dtype))
        x = x if self.patch_norm is None else self.patch_norm(x)
        marks = [mark.expand(images.shape[0], 1, -1) for mark in self.marks]
        return torch.cat((*marks, x), 1) if marks else x, self.grid(images)

    def grid(self, images: Tensor) -> Grid:
        """Where the patches of these images stand, after the marks."""
        self._check(images)
        more = (patch - 1 if self.config.filled else 0 for patch in self.config.patch)
        sides = zip(images.shape[2:], self.config.patch, more, strict=True)
        height, width = ((side + extra) // patch for side, patch, extra in sides)
        return Grid.of(images.shape[0], height, width, marks=self.config.marks, device=images.device)

    def place(self, x: Tensor, where: Where) -> Tensor:
        """Embeddings, told where they are."""
        if self.position is not None:
            if isinstance(where, Grid) and (where.height, where.width) != self.config.grid:
                x = x + self._resized(self.position.table, where).to(x)
            else:
                x = self.position(x, where.blank(where.position))
        placed: Tensor = self.dropout(x if self.norm is None else self.norm(x))
        return placed

    def _cut(self, images: Tensor) -> Tensor:
        """The patches, projected. [B, C, H, W] -> [B, patches, D]"""
        if self.pixel_norm is None:
            plane: Tensor = self.cut(images if self.stem is None else self.stem(self._whole(images)))
            return plane.flatten(2).mT
        patches = F.unfold(images, self.config.patch, stride=self.config.patch).mT  # [B, patches, C·h·w]
        return F.linear(self.pixel_norm(patches), self.cut.weight.flatten(1), self.cut.bias)

    def _whole(self, images: Tensor) -> Tensor:
        """The part of the images that whole patches cover."""
        down, right = (side // patch * patch for side, patch in zip(images.shape[2:], self.config.patch, strict=True))
        return images[:, :, :down, :right]

    def _resized(self, table: Tensor, where: Grid) -> Tensor:
        """The table of positions for another grid; marks keep theirs. [marks + cells, D]"""
        marks, patches = table[: self.config.marks], table[self.config.marks :]
        picture = patches.mT.reshape(1, -1, *self.config.grid)
        size = (where.height, where.width)
        picture = F.interpolate(picture, size=size, mode="bicubic", align_corners=False)
        return torch.cat((marks, picture[0].flatten(1).mT))

    def _check(self, images: Tensor) -> None:
        height, width = self.config.patch
        channels = self.config.channels
        if images.dim() != 4 or not images.is_floating_point() or images.shape[1] != channels:
            raise InputError(
                f"images must be numbers of shape [rows, {channels}, height, width], got {images.dtype} of shape "
                f"{tuple(images.shape)}; heed.media.images makes them from files"
            )
        least = (1, 1) if self.config.filled else (height, width)
        if images.shape[2] < least[0] or images.shape[3] < least[1]:
            raise InputError(
                f"an image of {images.shape[2]}x{images.shape[3]} pixels is smaller than one patch of {height}x{width}"
            )


class PatchMerging(nn.Module):
    """Two by two neighbours become one token of twice the width: W·norm( [a; b; c; d] ) (Liu et al. 2021, sec. 3.1).

    The four are taken down the first column, then down the second; a grid of odd sides is filled up with zeros.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = LayerNorm().build(MERGED * width)
        self.narrow = nn.Linear(MERGED * width, 2 * width, bias=False)
        nn.init.xavier_uniform_(self.narrow.weight)

    def forward(self, x: Tensor, where: Grid) -> tuple[Tensor, Grid]:
        """[B, height · width, D] -> [B, ⌈height/2⌉ · ⌈width/2⌉, 2 D]"""
        rows, _, channels = x.shape
        plane = x.reshape(rows, where.height, where.width, channels)
        plane = F.pad(plane, (0, 0, 0, where.width % 2, 0, where.height % 2))
        four = torch.cat([plane[:, down::2, right::2] for right in (0, 1) for down in (0, 1)], -1)
        fewer = Grid.of(rows, four.shape[1], four.shape[2], device=x.device)
        merged: Tensor = self.narrow(self.norm(four.flatten(1, 2)))
        return merged, fewer
