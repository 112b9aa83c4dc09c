"""Transformer-XL segments, side by side: each is a row of queries beside the keys of its memory and its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ...core.stamps import Span, Stamps

HELD = 1 << 20  # numbers that a pass holds at once: as many as stay in a cache


@dataclass(frozen=True, eq=False)
class Recalled:
    """Tokens of a call cut into segments of `length` orders, and for each what was revealed `memory` before it.

    Segments count from order 0, so a call may begin and end within one; a row's first segment is that of its first
    token. Places where nothing stands hold zeros and have the order of padding.
    """

    where: Stamps  # the queries
    seen: Stamps  # the keys, those of the queries among them
    length: int
    memory: int

    @cached_property
    def begin(self) -> Tensor | int:
        """The order with which a row's first segment begins: one for all rows, or [B, 1]."""
        span = self.where.span
        if span.run:
            return span.first // self.length * self.length
        order = self.where.order
        first = order.masked_fill(order < 0, torch.iinfo(order.dtype).max).amin(1, keepdim=True)
        return torch.where(self.where.real.any(1, keepdim=True), first // self.length * self.length, 0)

    @cached_property
    def count(self) -> int:
        """Segments that the row with the most of them touches."""
        span = self.where.span
        if span.last < span.first:
            return 1
        if span.run:
            return span.last // self.length - span.first // self.length + 1
        return int(((self.where.order.amax(1, keepdim=True) - self.begin) // self.length).max().clamp(min=0)) + 1

    def queries(self, x: Tensor) -> Tensor:
        """Every token in its segment. [B, T, ...] -> [B·S, length, ...]"""
        return self._laid(x, self.where, 0).reshape(-1, self.length, *x.shape[2:])

    def back(self, y: Tensor) -> Tensor:
        """The way back. [B·S, length, ...] -> [B, T, ...]"""
        flat = y.reshape(-1, self.count * self.length, *y.shape[2:])
        if self.where.span.run:
            return _moved(flat, -self._first_place(self.where, 0), self.where.shape[1])
        place = self._places(self.where, 0).clamp(max=flat.shape[1] - 1)
        return flat[torch.arange(len(flat), device=y.device)[:, None], place]

    def keys(self, live: Tensor, stopped: Tensor | None = None) -> Tensor:
        """For each segment what it recalls, of `stopped` if given, and its own. [B, N, ...] -> [B·S, M + L, ...]"""
        line = self._laid(live, self.seen, self.memory)
        if stopped is None:
            return line.unfold(1, self.memory + self.length, self.length).movedim(-1, 2).flatten(0, 1)
        own = line[:, self.memory :].reshape(-1, self.length, *live.shape[2:])
        if not self.memory:
            return own
        before = self._laid(stopped, self.seen, self.memory)[:, : -self.length]
        return torch.cat((before.unfold(1, self.memory, self.length).movedim(-1, 2).flatten(0, 1), own), 1)

    @cached_property
    def stamps(self) -> tuple[Stamps, Stamps]:
        """Those of the queries and of the keys, arranged like them."""
        query = (self.queries(self.where.order + 1) - 1, self.queries(self.where.position))
        key = (self.keys(self.seen.order + 1) - 1, self.keys(self.seen.position))
        return Stamps(*query), Stamps(*key)

    def places(self, rows: int) -> tuple[Stamps, Stamps]:
        """The same by place alone, for tokens whose positions are their orders: all segments are then alike."""
        device = self.where.order.device
        key = torch.arange(self.memory + self.length, device=device).expand(rows, -1)
        query = key[:, self.memory :]
        stamps = Stamps(query, query), Stamps(key, key)
        for some, first in zip(stamps, (self.memory, 0), strict=True):
            some.known(Span(first, self.memory + self.length - 1, run=True, padded=False))
        return stamps

    def _laid(self, x: Tensor, stamps: Stamps, before: int) -> Tensor:
        """Entries in a line of places that starts `before` orders before the first segment. [B, before + S·L, ...]"""
        size = before + self.count * self.length
        if stamps.span.run and self.where.span.run:
            return _moved(x, self._first_place(stamps, before), size)
        place = self._places(stamps, before)
        source = place.new_full((len(x), size + 1), x.shape[1])
        source = source.scatter(1, place, torch.arange(x.shape[1], device=x.device).expand_as(place))[:, :size]
        return _moved(x, 0, x.shape[1] + 1)[torch.arange(len(x), device=x.device)[:, None], source]

    def _first_place(self, stamps: Stamps, before: int) -> int:
        """At which place of the line the first column of a run stands; less than 0 if before it."""
        return stamps.span.first - int(self.begin) + before

    def _places(self, stamps: Stamps, before: int) -> Tensor:
        """At which place of the line every entry stands; behind its end if it is not in it. [B, N]"""
        size, place = before + self.count * self.length, stamps.order - self.begin + before
        return torch.where(stamps.real & (place >= 0) & (place < size), place, size)


def _moved(x: Tensor, before: int, size: int) -> Tensor:
    """`before` columns of zeros in front of `x`, or so many less of it, and `size` columns in all. [B, N, ...]"""
    return F.pad(x, (0, 0) * (x.dim() - 2) + (before, size - before - x.shape[1]))


def in_passes(form: Callable[..., Tensor], numbers: int, *given: Tensor) -> Tensor:
    """`form(*given)`, whose row r depends on row r of what is given alone, where a row takes so many `numbers`.

    For the gradient every pass is computed again.
    """
    rows, some = given[0].shape[0], max(1, HELD // max(1, numbers))
    if some >= rows:
        return form(*given)
    again, parts = torch.is_grad_enabled(), zip(*(torch.split(x, some) for x in given), strict=True)
    return torch.cat([checkpoint(form, *part, use_reentrant=False) if again else form(*part) for part in parts])
