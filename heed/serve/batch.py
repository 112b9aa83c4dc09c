"""Rows that step together: one call of the step program for several requests of different lengths.

Entries of all rows lie in one arena, in pages; a slot table says where each row's are. What a row has fewer than the
longest are holes, which are in the arena once. The new token of every row stands in a column whose number is a multiple
of a page, behind holes, alone as in company: so the kernels' sums have one order, and a hole adds nothing to them.

Products have one order of sums for fewer rows than `ROWS` + 1; so many go through at once. Several of them may be
tokens of one request, one after the other, each with the bits of a step by itself: tokens that were written before, and
guesses at those that may come. What is remembered after each of them is there, so any of them may be the last to stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import add
from typing import Any

import torch
from torch import Tensor

from ..core.contract import Mixer, Where
from ..core.spec import STAMP_BYTES, Slot
from ..core.stamps import Span
from ..core.state import Cell, Log, State, leaves
from ..engine.compiled import DecoderProgram, decoder_of, decoder_program
from ..engine.execution import Execution
from ..engine.program import Uncompiled
from ..kernels.abi import KvCache
from .pool import slots_of
from .prefix import grows

ROWS = 8  # the kernels lay weights out anew from 12 rows on, and sum in another order
PAGE = 16  # columns: as many as the widest vector has lanes
FIRST = 512  # places of a code that is added to tokens that are held ready at first


class Arena:
    """The entries of all rows: for each log its stamps, keys and values. The first page is all holes."""

    def __init__(self, shapes: Sequence[tuple[tuple[int, ...], ...]], columns: int) -> None:
        self.columns = (columns // PAGE + 1) * PAGE
        self.logs = [
            (
                *(torch.empty(self.columns, dtype=torch.int64, device="cpu") for _ in range(2)),
                *(torch.empty(self.columns, *shape, dtype=torch.float32, device="cpu") for shape in parts),
            )
            for parts in shapes
        ]
        for order, *rest in self.logs:
            order[:PAGE] = -1
            for one in rest:
                one[:PAGE] = 0
        self._free = list(range(self.columns // PAGE - 1, 0, -1))

    def page(self) -> int:
        """A page that nobody has."""
        return self._free.pop()

    def give(self, pages: Sequence[int]) -> None:
        """These pages are nobody's."""
        self._free += pages

    @property
    def free(self) -> int:
        return len(self._free)


class Seat:
    """A row in the arena: where its entries lie, and its cells."""

    def __init__(self, arena: Arena, state: State) -> None:
        self._arena, self._pages = arena, list[int]()
        self.places = torch.empty(0, dtype=torch.int32, device="cpu")  # of its columns, a page more than are filled
        logs = [leaf for leaf in leaves(state) if isinstance(leaf, Log)]
        self.cells = [tensor for leaf in leaves(state) if isinstance(leaf, Cell) for tensor in leaf.take()]
        held = [log.tensors() for log in logs]
        self.length = held[0][0].shape[1] if held else 0
        self.after: list[Tensor] = []  # its cells after each of the tokens that were stepped last
        self.fit(self.length)
        own = self.places[: self.length].long()
        for to, log in zip(arena.logs, held, strict=True):
            for into, part in zip(to, log, strict=True):
                into[own] = part[0]

    def fit(self, columns: int) -> None:
        """Places for so many columns."""
        while len(self.places) < columns:
            self._pages.append(self._arena.page())
            begin = self._pages[-1] * PAGE
            more = torch.arange(begin, begin + PAGE, dtype=torch.int32, device="cpu")
            self.places = torch.cat((self.places, more))

    def keep(self, count: int) -> None:
        """So many of the tokens that were stepped last stay; those after them are written over."""
        self.cells = [cell[count - 1 : count] for cell in self.after]
        self.length += count

    def close(self) -> None:
        """Its pages are free."""
        self._arena.give(self._pages)
        self._pages = []


class Caches:
    """The arena as a program reads it: one table of slots for all logs, made anew for every step."""

    def __init__(self, arena: Arena) -> None:
        self.count = len(arena.logs)
        self.structures = (KvCache * max(1, self.count))()
        self._arena = arena
        self._table = torch.empty(0, 0, dtype=torch.int32, device="cpu")
        for held, cache in zip(arena.logs, self.structures, strict=False):
            cache.order, cache.position, cache.key, cache.value = (one.data_ptr() for one in held)
            cache.key_width, cache.value_width = (prod(one.shape[1:]) for one in held[2:])
            cache.cap = cache.free = -1
            cache.holes, cache.source = 1, 0

    def seat(self, seats: Sequence[Seat], counts: Sequence[int]) -> None:
        """So many tokens of each of these step next. They go to the first column behind the longest row's last page."""
        if not self.count:
            return
        lengths = [range(seat.length, seat.length + count) for seat, count in zip(seats, counts, strict=True)]
        longest = max(-(-several[-1] // PAGE) * PAGE for several in lengths)
        table = torch.arange(longest + 1, dtype=torch.int32, device="cpu").remainder_(PAGE).repeat(sum(counts), 1)
        rows = iter(table)
        for seat, several in zip(seats, lengths, strict=True):
            seat.fit(several.stop)
            for length, row in zip(several, rows, strict=False):
                row[:length] = seat.places[:length]
                row[longest] = seat.places[length]
        self._table = table  # kept as long as it is pointed to
        for cache in self.structures[: self.count]:
            cache.room, cache.length, cache.slot = longest + 1, longest, table.data_ptr()
            cache.rows = -(-self._arena.columns // (longest + 1))

    def fit(self, count: int) -> None:
        """There is a place for every new token: `seat` saw to that."""

    def stepped(self, now: Span, count: int) -> None:
        """Rows count their tokens themselves."""


class Batch:
    """The step program of a model, for as many of its rows at once as sum alike."""

    def __init__(self, program: DecoderProgram, arena: Arena) -> None:
        self._program, self.arena, self._caches = program, arena, Caches(arena)
        self._executions: dict[int, Execution] = {}  # by how many rows there are
        self._codes: Tensor | None = None

    def step(self, seats: Sequence[Seat], tokens: Sequence[Sequence[int]], orders: Sequence[int]) -> list[Tensor]:
        """Some tokens more in each row, the first of which has this order: logits after each, which hold until the next
        call. Then `seat.keep` says how many stay. [tokens, V] of each row
        """
        counts = [len(several) for several in tokens]
        rows = sum(counts)
        self._caches.seat(seats, counts)
        cells = [torch.cat(parts) for parts in zip(*map(_begun, seats, counts), strict=True)]
        execution = self._executions.get(rows)
        if execution is None:
            execution = self._executions[rows] = Execution(self._program.program, rows, self._caches, cells)  # type: ignore[arg-type]  # of the same interface
        execution.take(cells)
        self._reach(max(map(add, orders, counts)), execution)
        places = [first + place for first, count in zip(orders, counts, strict=True) for place in range(count)]
        order = torch.tensor(places, dtype=torch.int64, device="cpu")[:, None]
        given = torch.tensor([token for several in tokens for token in several], dtype=torch.int64, device="cpu")
        follows = torch.tensor([place > 0 for count in counts for place in range(count)], device="cpu")
        execution.step(given, Where(order, order), follows if rows > len(seats) else None)
        for seat, after in zip(
            seats, zip(*(torch.split(cell, counts) for cell in execution.cells), strict=True), strict=False
        ):
            seat.after = list(after)
        return list(torch.split(self._program.capped(execution.value(self._program.logits)), counts))

    def _reach(self, places: int, execution: Execution) -> None:
        """Codes of so many places, where codes are added to tokens by what the program looks up."""
        code = self._program.added_code
        if code is None or self._program.places:
            return
        if self._codes is None or len(self._codes) < places:
            wanted = max(FIRST, 2 * places)
            most = wanted if code.longest is None else min(wanted, code.longest)
            self._codes = code.code(torch.arange(most, dtype=torch.int64, device="cpu")).float().contiguous()
        execution.place(self._codes)


def _begun(seat: Seat, count: int) -> list[Tensor]:
    """The cells of a row, and room for those after each token but the last."""
    return [torch.cat((cell, cell.new_empty(count - 1, *cell.shape[1:]))) if count > 1 else cell for cell in seat.cells]


@torch.no_grad()
def batch_of(model: Mixer[Any], budget: int, rows: int) -> Batch | None:
    """How rows of this model step together; None where each must go by itself.

    For that everything it remembers must grow by an entry a token or have a fixed size, and its steps have a program.
    """
    slots = list(slots_of(model.spec()))
    logs = [slot for slot in slots if not slot.entries.fixed]
    if not slots or not all(slot.entries.fixed or (grows(slot) and len(slot.parts) == 2) for slot in slots):
        return None
    decoder = decoder_of(model)
    if isinstance(decoder, Uncompiled):
        return None
    program = decoder_program(decoder, model.start(1))
    if isinstance(program, Uncompiled) or any(program.program.sources) or len(program.program.sources) != len(logs):
        return None
    each = sum(map(_column_bytes, logs))
    columns = (budget // each if each else 0) + (rows + 2) * 2 * PAGE
    return Batch(program, Arena([slot.parts for slot in logs], columns))


def _column_bytes(slot: Slot) -> int:
    return sum(map(prod, slot.parts)) * slot.dtype.itemsize + STAMP_BYTES
