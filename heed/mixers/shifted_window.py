"""Shifted-window attention of Swin (Liu et al. 2021): windows of an image, shifted in every second layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, Self, TypeAlias

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Count, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.spec import Spec
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.inputs.patches import Grid
from ..parts.layers.norms import RMSNorm
from ..parts.positions.base import must_fit

Nothing: TypeAlias = "tuple[()]"


class ShiftedWindow(Headed[Nothing]):
    """Attention of the cells of an image within windows, which may be shifted.

        y_i = W_o Σ_j softmax_j( q_i·k_j / √d + B[row_i - row_j, column_i - column_j] ) v_j,   j in the window of i

    Liu et al. 2021. The windows tile the plane from its corner; `shift` moves them down and right by so much, and the
    strips that this leaves at the border are windows of their own. A window that does not fit the plane is as large as
    its shorter side, and is not shifted. Cells beyond the lower and right border, which fill the last windows up, are
    zeros that are seen. The position of a token is its cell, counted row by row; cells without a token are
    masked. Costs O(n·w²·d) time over n tokens; looks ahead, so it remembers nothing.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Liu et al. 2021, Swin Transformer, arXiv 2103.14030"

        kind: Literal["shifted_window"] = "shifted_window"
        grid: tuple[Size, Size] = (8, 8)  # rows and columns of the plane, where the stamps do not tell
        window: Size = 4  # cells on a side
        shift: Count = 0  # cells that windows are moved by, down and right

        @model_validator(mode="after")
        def _within(self) -> Self:
            if self.shift >= self.window:
                raise ValueError(f"a shift of {self.shift} moves a window of {self.window} by itself; use less")
            return self

        def build(self, width: int) -> ShiftedWindow:
            return ShiftedWindow(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(shift=2), cls(grid=(5, 5), window=2, shift=1), cls(grid=(4, 7), window=3, shift=1)),
                *(cls(grid=(3, 9), window=7, shift=3), cls(grid=(5, 6), window=4, shift=1, kv_heads=1, bias=False)),
                cls(grid=(6, 4), window=2, heads=3, head_size=5, scale=0.3, head_norm=RMSNorm()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.config = config
        self.table = nn.Parameter(torch.empty((2 * config.window - 1) ** 2, self.heads))  # B
        nn.init.trunc_normal_(self.table, std=0.02)
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        tiles = Tiles.of(where, self.config)
        board, present = _laid_out(where.blank(x), where, tiles)
        windows = tiles.cut(board)  # [B·windows, w², D]
        query, key, value = self.queries(windows), self.keys(windows), self.values(windows)
        sight, bias = tiles.sight(len(x), present, x.device), self._bias(tiles).to(query.dtype)
        self.weights(lambda: written_out(query, key, value, sight, bias=bias, scale=self.scale)[1])
        y = self.merge(attend(query, key, value, sight, bias=bias, scale=self.scale, dropout=self.drop))
        y = tiles.joined(y, len(x))
        return y if present is None else _picked(y, where), state

    def _bias(self, tiles: Tiles) -> Tensor:
        """B for every pair of cells of a window. [1, H, w², w²]"""
        index = _differences(tiles.window, self.config.window).to(self.table.device)
        return F.embedding(index, self.table).movedim(-1, 0)[None]


@dataclass(frozen=True)
class Tiles:
    """How an image's plane is cut into windows."""

    height: int
    width: int
    window: int
    shift: int

    @classmethod
    def of(cls, where: Where, config: ShiftedWindow.Config) -> Tiles:
        height, width = (where.height, where.width) if isinstance(where, Grid) else config.grid
        if min(height, width) <= config.window:
            return cls(height, width, min(height, width), 0)
        return cls(height, width, config.window, config.shift)

    @property
    def cells(self) -> int:
        """How many tokens fill the plane."""
        return self.height * self.width

    @property
    def counts(self) -> tuple[int, int]:
        """Windows down and across, the last of which may stick out."""
        return -(-self.height // self.window), -(-self.width // self.window)

    def cut(self, board: Tensor) -> Tensor:
        """The windows of a plane, moved by the shift: what leaves above and on the left comes in at the other end.

        [B, cells, D] -> [B·windows, w², D]
        """
        rows, _, channels = board.shape
        down, right = -self.height % self.window, -self.width % self.window
        plane = F.pad(board.reshape(rows, self.height, self.width, channels), (0, 0, 0, right, 0, down))
        plane = plane.roll((-self.shift, -self.shift), (1, 2)) if self.shift else plane
        n, m = self.counts
        plane = plane.reshape(rows, n, self.window, m, self.window, channels)
        return plane.transpose(2, 3).reshape(-1, self.window**2, channels)

    def joined(self, windows: Tensor, rows: int) -> Tensor:
        """The plane of these windows: undoes `cut`. [B·windows, w², D] -> [B, cells, D]"""
        n, m = self.counts
        plane = windows.reshape(rows, n, m, self.window, self.window, -1).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        plane = plane.roll((self.shift, self.shift), (1, 2)) if self.shift else plane
        return plane[:, : self.height, : self.width].flatten(1, 2)

    def sight(self, rows: int, present: Tensor | None, device: torch.device) -> Tensor | None:
        """The mask of a window: cells of one part that are there. [B·windows, 1, w², w²], None: no mask"""
        parts = _parts(self, device).repeat(rows, 1, 1, 1) if self.shift else None
        if present is None:
            return parts
        beyond = self.cut(torch.ones_like(present[:1])) == 0  # the border
        there = (self.cut(present) > 0) | beyond.repeat(rows, 1, 1)  # [B·windows, w², 1]
        itself = torch.eye(self.window**2, dtype=torch.bool, device=device)  # so that no cell is blind
        visible = there.mT[:, None] | itself
        return visible if parts is None else visible & parts


def _laid_out(x: Tensor, where: Where, tiles: Tiles) -> tuple[Tensor, Tensor | None]:
    """Tokens on the cells that their positions name, and which cells have one; None = all, in order. [B, cells, D]"""
    rows, tokens, channels = x.shape
    span = where.span
    if where.position is where.order and span.run and not span.padded and (span.first, tokens) == (0, tiles.cells):
        return x, None
    plane = f"a plane of {tiles.height}x{tiles.width} cells"
    must_fit(where.blank(where.position), tiles.cells, plane, "give the config the grid of the image")
    where_to = where.position.masked_fill(~where.real, tiles.cells)  # padding lands beside the plane
    board = x.new_zeros(rows, tiles.cells + 1, channels)
    board = board.scatter(1, where_to[..., None].expand_as(x), x)
    present = x.new_zeros(rows, tiles.cells + 1, 1).scatter(1, where_to[..., None], 1.0)
    return board[:, :-1], present[:, :-1]


def _picked(y: Tensor, where: Where) -> Tensor:
    """What the tokens' cells hold; zeros at padding. [B, cells, D] -> [B, T, D]"""
    index = where.position.masked_fill(~where.real, 0)
    return where.blank(y.take_along_dim(index[..., None], 1))


@lru_cache(maxsize=32)  # all layers of a stage ask for the same
def _parts(tiles: Tiles, device: torch.device) -> Tensor:
    """Two cells of a window that no shift has brought together from opposite borders. [windows, 1, w², w²]"""
    height, width = (count * tiles.window for count in tiles.counts)
    with torch.inference_mode(False):  # a later call may want gradients
        low = torch.arange(height, device=device) >= height - tiles.shift
        right = torch.arange(width, device=device) >= width - tiles.shift
        label = (2.0 * low[:, None] + right).reshape(1, -1, 1)
        part = Tiles(height, width, tiles.window, 0).cut(label)  # [windows, w², 1]
        return (part == part.mT)[:, None]


@lru_cache(maxsize=32)
def _differences(window: int, most: int) -> Tensor:
    """Which row of a table of (2·most - 1)² every pair of cells of a window has, by how they lie. [w², w²]"""
    with torch.inference_mode(False):
        side = torch.arange(window, device="cpu")
        down, right = (cell.flatten() for cell in torch.meshgrid(side, side, indexing="ij"))
        gaps = [cell[:, None] - cell + most - 1 for cell in (down, right)]
        return gaps[0] * (2 * most - 1) + gaps[1]
