"""How a stream is laid out in memory for a target: rows first or tokens first, as channels, as an image."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum

from torch import Tensor


class Layout(StrEnum):
    """How a target wants a stream laid out."""

    ROWS = "[rows, tokens, width]"
    TOKENS = "[tokens, rows, width]"
    CHANNELS = "[rows, width, tokens]"
    IMAGE = "[rows, width, height, breadth]"
    GRID = "[rows, height, breadth, width]"
    SERIES = "[1, rows, tokens, width]"
    STEPS = "[1, tokens, rows, width]"
    FLAT = "[tokens, width]"

    def lay(self, x: Tensor) -> Tensor:
        """[B, T, D] as the target takes it."""
        height, breadth = grid(x.shape[1])
        laid: dict[Layout, Callable[[], Tensor]] = {
            Layout.ROWS: lambda: x,
            Layout.TOKENS: lambda: x.transpose(0, 1),
            Layout.CHANNELS: lambda: x.mT,
            Layout.IMAGE: lambda: x.mT.reshape(len(x), x.shape[2], height, breadth),
            Layout.GRID: lambda: x.reshape(len(x), height, breadth, x.shape[2]),
            Layout.SERIES: lambda: x[None],
            Layout.STEPS: lambda: x.transpose(0, 1)[None],
            Layout.FLAT: lambda: x[0],
        }
        return laid[self]().contiguous()

    def back(self, y: Tensor, x: Tensor) -> Tensor | None:
        """[B, T, D'] again, of any width; None if it holds no vector for every token."""
        rows, tokens = x.shape[:2]
        if self in (Layout.IMAGE, Layout.GRID) and y.dim() == 3:
            flat = y if y.shape[:2] == (rows, tokens) else y.mT
        elif y.dim() != self.lay(x).dim():
            return None
        else:
            turned: dict[Layout, Callable[[], Tensor]] = {
                Layout.ROWS: lambda: y,
                Layout.TOKENS: lambda: y.transpose(0, 1),
                Layout.CHANNELS: lambda: y.mT,
                Layout.IMAGE: lambda: y.flatten(2).mT,
                Layout.GRID: lambda: y.flatten(1, 2),
                Layout.SERIES: lambda: y[0],
                Layout.STEPS: lambda: y[0].transpose(0, 1),
                Layout.FLAT: lambda: y[None],
            }
            flat = turned[self]()
        return flat if flat.shape[:2] == (rows, tokens) else None


class Query(StrEnum):
    """How one query of each row is laid out, for targets that are asked step by step: recurrent decoders do so."""

    VECTOR = "[rows, width]"
    STEP = "[rows, 1, width]"
    STATE = "[1, rows, width]"
    STATES = "a pair of [1, rows, width]"

    def lay(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """[B, 1, D] as the target takes it."""
        state = x.transpose(0, 1)
        laid: dict[Query, Tensor | tuple[Tensor, Tensor]] = {
            Query.VECTOR: x[:, 0],
            Query.STEP: x,
            Query.STATE: state,
            Query.STATES: (state, state),
        }
        return laid[self]


def grid(tokens: int) -> tuple[int, int]:
    """Height and breadth of an image of so many tokens, as square as can be."""
    height = max(side for side in range(1, math.isqrt(tokens) + 1) if tokens % side == 0)
    return height, tokens // height
