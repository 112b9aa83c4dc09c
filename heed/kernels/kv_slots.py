"""The KV caches that a program reads and writes, and slot tables: where their entries lie.

Rows put into another order, repeated or dropped are another table: a beam search copies no past. A source is only read,
so rows of one prompt share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from ..core.errors import InputError
from ..core.log import LogStorage
from ..core.stamps import Span
from .abi import KvCache
from .dispatch import address
from .hugepages import settled


class SlotTable:
    """Logs of the same room that are filled alike: one table says where their entries lie.

    Entry j of a row is in column j of the storage of some row. What is written next goes to a column that no row has
    yet, so rows may share what came before. A window writes over what others may still look at: it is copied instead.
    """

    def __init__(self) -> None:
        self.logs: list[LogStorage] = []
        self.table: Tensor | None = None  # int32 [rows, room]; None: every row has its own storage

    def select(self, rows: Tensor) -> None:
        """Row i goes on with what row rows[i] has. Copied where rows outgrow the storage, or leave half of it."""
        first = self.logs[0]
        stored = len(first.held[0])
        if first.cap is not None or not len(rows) <= stored < 2 * len(rows):
            self._copy(rows)
            return
        own, length = _own(stored, first.room), first.length
        before = own if self.table is None else self.table
        table = own[: len(rows)].clone()
        table[:, :length] = before[rows, :length]
        self.table = table

    def fit(self, count: int) -> None:
        """Room for so many entries more."""
        before = self.logs[0].room
        for log in self.logs:
            log.fit(count)
        room = self.logs[0].room
        if room != before:
            self._settle()
        if self.table is not None and room != before:
            owner = _own(len(self.table), room) // room
            owner[:, :before] = self.table // before
            self.table = owner * room + torch.arange(room, dtype=torch.int32, device="cpu")

    def _settle(self) -> None:
        """All that is read for every token lies on huge pages."""
        moved = iter(settled([part for log in self.logs for part in log.held[2:]]))
        for log in self.logs:
            log.held = (*log.held[:2], *(next(moved) for _ in log.held[2:]))

    def straighten(self) -> None:
        """Every row in its own storage."""
        if self.table is not None:
            self._copy(torch.arange(len(self.table), device="cpu"))

    def _copy(self, rows: Tensor) -> None:
        for log in self.logs:
            used = log.length if log.free is None else log.room
            log.held = tuple(self._taken(held, rows, used) for held in log.held)
        self.table = None

    def _taken(self, held: Tensor, rows: Tensor, used: int) -> Tensor:
        taken = held.new_empty(len(rows), *held.shape[1:])
        if self.table is None:
            taken[:, :used] = held[:, :used].index_select(0, rows)
        else:
            places = self.table[rows, :used]
            flat = held.flatten(0, 1).index_select(0, places.flatten())
            taken[:, :used] = flat.view(*places.shape, *held.shape[2:])
        return taken


class KvCaches:
    """Logs in the hands of a program, each described by one of `structures`."""

    def __init__(self, lent: Sequence[LogStorage], sources: Sequence[bool]) -> None:
        if len(lent) != len(sources):
            raise InputError(f"the state holds {len(lent)} logs, the program {len(sources)}")
        self.structures = (KvCache * max(1, len(lent)))()
        self.count = len(lent)
        self._lent, self._sources = list(lent), list(sources)
        self._owner: Tensor | None = None  # int32 [rows] whose source a row reads; None: its own
        self._selected = False
        self._steps, self._span = 0, Span(0, -1, run=True, padded=False)  # written since the logs were told
        tables: dict[tuple[int, int, int | None, int | None], SlotTable] = {}
        self._tables: list[SlotTable | None] = []  # of every log that is written
        for one, source in zip(lent, sources, strict=True):
            one.held = tuple(held.contiguous() for held in one.held)
            alike = one.room, one.length, one.cap, one.free
            self._tables.append(None if source else tables.setdefault(alike, SlotTable()))
            if not source:
                tables[alike].logs.append(one)
        self._written = list(tables.values())
        for one, cache in zip(lent, self.structures, strict=False):
            _check(one)
            cache.key_width, cache.value_width = (prod(held.shape[2:]) for held in one.held[2:])  # of an entry
        self._describe()

    def fit(self, count: int) -> None:
        """The kernel writes wherever it is told to: there must be a column for every token."""
        if any(self._lacks(cache, count) for cache in self.structures[: self.count]):
            self._note()
            for slots in self._written:
                slots.fit(count)
            self._describe()

    def stepped(self, now: Span, count: int) -> None:
        """So many tokens were written, the first of which has this span."""
        alike, last = now.first == now.last, now.last + count - 1
        if self._steps:
            before = self._span
            alike = alike and before.run and now.first == before.last + 1
            now = Span(min(before.first, now.first), last, run=alike, padded=False)
        self._steps, self._span = self._steps + count, Span(now.first, last, run=alike, padded=False)

    def keeps(self, count: int, *, padded: bool) -> bool:
        """Whether so many columns of tokens more would all be kept; a window drops its first column, not its holes."""
        capped = (log for slots in self._written for log in slots.logs if log.cap is not None)
        return all(log.length + count <= (log.cap or 0) and not (padded and log.length) for log in capped)

    def prefilled(self, span: Span, count: int) -> None:
        """So many columns of tokens were written at once, which have this span."""
        for one, source in zip(self._lent, self._sources, strict=True):
            if not source:
                one.written(replace(span, run=span.run and not span.padded), count)  # holes come first
        self._describe()

    def select(self, rows: Tensor) -> None:
        """These rows, in this order, repeated if named twice."""
        self._note()
        self._selected = True
        if any(self._sources):
            self._owner = rows.to(torch.int32) if self._owner is None else self._owner[rows]
        for slots in self._written:
            slots.select(rows)
        self._describe()

    def returned(self) -> list[LogStorage]:
        """What is remembered by now; nothing more may be written."""
        self._note()
        for slots in self._written:
            slots.straighten()
        for one, source in zip(self._lent, self._sources, strict=True):
            if source and self._owner is not None:
                one.held = tuple(held.index_select(0, self._owner) for held in one.held)
            if self._selected:
                one.measure()
        return self._lent

    def _note(self) -> None:
        """Tell the logs what was written into them."""
        for one, cache in zip(self._lent, self.structures, strict=False):
            if self._steps and not cache.source:
                one.written(self._span, self._steps)
                one.free = None if cache.free < 0 else cache.free
            assert one.length == cache.length
        self._steps = 0

    @staticmethod
    def _lacks(cache: KvCache, count: int) -> bool:
        needed = cache.length + count
        needed = needed if cache.cap < 0 else min(needed, cache.cap + 1)
        return bool(needed > cache.room and not cache.source)

    def _describe(self) -> None:
        """Every structure anew."""
        for one, slots, cache in zip(self._lent, self._tables, self.structures, strict=False):
            cache.order, cache.position, cache.key, cache.value = (held.data_ptr() for held in one.held)
            cache.room, cache.length, cache.cap = one.room, one.length, -1 if one.cap is None else one.cap
            cache.free = -1 if one.free is None else one.free
            cache.holes, cache.source = int(one.span.padded or not one.span.run), int(slots is None)
            table = None if slots is None else slots.table
            cache.slot = None if table is None else table.data_ptr()
            cache.owner = None if self._owner is None or slots is not None else self._owner.data_ptr()
            cache.rows = one.held[0].shape[0]


def _check(log: LogStorage) -> None:
    """Raise unless a kernel can read it; what is put in the place of its tensors later is like them."""
    for held, kind in zip(log.held, (torch.int64, torch.int64, torch.float32, torch.float32), strict=True):
        address("a KV cache", held, kind, 0)


def _own(rows: int, room: int) -> Tensor:
    return torch.arange(rows * room, dtype=torch.int32, device="cpu").view(rows, room)
