"""Segments and chunks of a sequence as a grid: segment s of a row is row s of it, each token at its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.spec import Slot
from ...core.stamps import Stamps
from ...core.state import Cell, Log, Seen


@dataclass(frozen=True, eq=False)
class Segmented:
    """Stamped entries cut into segments of `length` orders. A row's first segment is that of its first entry, so rows
    may begin anywhere; they may have holes, and some end before others.
    """

    stamps: Stamps
    length: int

    @cached_property
    def first(self) -> Tensor:
        """The segment of each row's first entry; 0 where there is none. [B]"""
        order = self.stamps.order
        found = order.masked_fill(order < 0, torch.iinfo(order.dtype).max).amin(1)
        return torch.where(self.over > 0, found // self.length, 0)

    @cached_property
    def over(self) -> Tensor:
        """How many entries a row would have if it had all up to its last one. [B]"""
        return self.stamps.order.amax(1) + 1

    @cached_property
    def count(self) -> int:
        """Segments that the longest row has."""
        span = self.stamps.span
        if span.last >= span.first and (span.run or span.first // self.length == span.last // self.length):
            return span.last // self.length - span.first // self.length + 1
        return max(1, int((-(-self.over // self.length) - self.first).max()))

    @cached_property
    def closed(self) -> Tensor:
        """How many of a row's segments have had their last token. [B]"""
        return self.over // self.length - self.first

    @cached_property
    def open(self) -> Tensor:
        """Entries of segments that are not over. [B, N]"""
        return self.stamps.real & (self.stamps.order >= (self.over // self.length * self.length)[:, None])

    @property
    def settled(self) -> bool:
        """Known without looking: every row is within one segment, and none has come to its end."""
        span = self.stamps.span
        inside = span.first // self.length == span.last // self.length
        return inside and (span.last + 1) % self.length != 0

    @cached_property
    def grid(self) -> Stamps:
        """The places of the grid, each segment a row of its own: order counts from its begin. [B·S, length]"""
        inside = torch.where(self.stamps.real, self.stamps.order % self.length, -1)
        order, position = (self.put(stamp) for stamp in (inside + 1, self.stamps.position))
        return Stamps((order - 1).flatten(0, 1), position.flatten(0, 1))

    def put(self, x: Tensor) -> Tensor:
        """Every entry into its place, zeros where there is none. [B, N, ...] -> [B, S, length, ...]"""
        places = self.count * self.length
        if self._aligned:
            grid = F.pad(self.stamps.blank(x), (0, 0) * (x.dim() - 2) + (0, places - x.shape[1]))
        else:
            index = self._place.reshape(*self._place.shape, *(1,) * (x.dim() - 2)).expand_as(x)
            grid = x.new_zeros(x.shape[0], places + 1, *x.shape[2:]).scatter(1, index, x)[:, :places]
        return grid.reshape(x.shape[0], self.count, self.length, *x.shape[2:])

    def take(self, grid: Tensor, last: int) -> Tensor:
        """The way back, of the last entries. [B, S, length, ...] -> [B, last, ...]"""
        flat = grid.flatten(1, 2)
        columns = self.stamps.shape[1]
        if self._aligned:
            return flat[:, columns - last : columns]
        index = self._place[:, columns - last :].clamp(max=flat.shape[1] - 1)
        return flat.take_along_dim(index.reshape(*index.shape, *(1,) * (flat.dim() - 2)), 1)

    @property
    def _aligned(self) -> bool:
        """Known without looking: the columns are the places."""
        span = self.stamps.span
        fits = self.stamps.shape[1] <= self.count * self.length
        return span.run and span.first % self.length == 0 and fits

    @cached_property
    def _place(self) -> Tensor:
        """Where an entry stands in its row of the grid; behind the end if it is padding. [B, N]"""
        order = self.stamps.order - (self.first * self.length)[:, None]
        return torch.where(self.stamps.real, order, self.count * self.length)


def folded(past: Sequence[Tensor], segments: Segmented, seen: Seen, kept: Log, slot: Slot) -> tuple[Cell, Log]:
    """What is kept after a call: each row has what its closed segments leave behind, and the entries of the open one.

    `past` is that before each segment of the grid and after the last, [B, S + 1, ...] each; `seen` is what the call saw
    of open segments, its own tokens included, `kept` the log that `remember` gave, of this `slot`.
    """
    if segments.settled or not bool(segments.closed.any()):
        return Cell(*(part[:, 0] for part in past)), kept
    rows = torch.arange(len(seen.order), device=seen.order.device)
    opened = Stamps(seen.order.masked_fill(~segments.open, -1), seen.position)
    _, log = Log.empty(slot, len(rows), seen.order.device).append(opened, *seen.parts)
    return Cell(*(part[rows, segments.closed] for part in past)), log
