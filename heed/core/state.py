"""What a mixer remembers: held as a plain tree, handled by generic functions.

A mixer declares it as a **spec**, a tree of slots (`spec.py`). A **state** is the same tree with a leaf in the place of
every slot: a `Log` (entries stamped with their order) or a `Cell` (a fixed amount). Rows come first in every
tensor of every leaf, so beam search is `select`, speculative decoding is `fork` and truncated back-propagation is
`detach`; no mixer writes these.

A leaf is used up by the call it is passed to. Using it again raises `StateConsumed`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Self, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from .errors import InputError, StateConsumed
from .log import SPARE, LogStorage, columns, grown, joined
from .spec import Slot, Spec
from .stamps import Span, Stamps

State: TypeAlias = "Log | Cell | tuple[State, ...]"  # the same tree
S = TypeVar("S", bound=State)


class Seen(Stamps):
    """What a call may look at: stamped entries. They may be views of a log, so they hold until its next call."""

    parts: tuple[Tensor, ...]  # each [B, N, *shape]

    def __init__(self, order: Tensor, position: Tensor, *parts: Tensor) -> None:
        super().__init__(order, position)
        object.__setattr__(self, "parts", parts)

    @classmethod
    def of(cls, where: Stamps, *parts: Tensor) -> Seen:
        """The entries of this very call, stamped like its tokens."""
        seen = cls(where.order, where.position, *parts)
        seen.known(where.span)
        return seen


class Leaf(ABC):
    """Something remembered between two calls, used up by the second one."""

    _spent = False

    def spend(self) -> None:
        """Mark as used up; a second time is an error."""
        if self._spent:
            raise StateConsumed
        self._spent = True

    @property
    def spent(self) -> bool:
        """Whether a call has used it up."""
        return self._spent

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything held, rows first."""

    def storage(self) -> tuple[Tensor, ...]:
        """The tensors that a call may write into."""
        return self.tensors()

    @abstractmethod
    def rebuild(self, tensors: Sequence[Tensor]) -> Self:
        """A leaf of the same kind around other tensors."""

    def select(self, rows: Tensor) -> Self:
        """These rows, copied."""
        return self.rebuild([t.index_select(0, rows.to(t.device)) for t in self.tensors()])


class Cell(Leaf):
    """A fixed amount of memory per row: the matrix of a retention, the sums of an RWKV."""

    def __init__(self, *parts: Tensor) -> None:
        self._parts = parts

    def take(self) -> tuple[Tensor, ...]:
        """The parts, once: put what follows from them into a new `Cell`."""
        self.spend()
        return self._parts

    def tensors(self) -> tuple[Tensor, ...]:
        return self._parts

    def rebuild(self, tensors: Sequence[Tensor]) -> Self:
        return type(self)(*tensors)


class Log(Leaf):
    """Entries stamped with the order in which they were revealed; at most `cap` of them, the newest, if it has one.

    `append` gives what this call may look at *and* what is kept: a window must still see what it will not keep.
    Under `torch.no_grad` entries are written into the storage of the log itself: a growing log has spare room (at most
    a sixteenth), a full one has one free column, which moves on as the oldest entry is dropped. So one more token costs
    one token, not a copy. Tokens of a later call were revealed later: orders rise from call to call.
    """

    def __init__(self, order: Tensor, position: Tensor, *parts: Tensor, cap: int | None = None) -> None:
        self._held: tuple[Tensor, ...] = (order, position, *parts)  # each [B, room, ...]
        self._length = order.shape[1]  # entries per row
        self._free: int | None = None  # the free column, once the log is full and its entries have wrapped
        self._span = Stamps(order, position).span
        self.cap = cap

    @classmethod
    def empty(cls, slot: Slot, rows: int, device: torch.device | None = None) -> Log:
        """A log of this kind without entries."""
        stamps = (torch.empty(rows, 0, dtype=torch.long, device=device) for _ in range(2))
        parts = (torch.empty(rows, 0, *part, dtype=slot.dtype, device=device) for part in slot.parts)
        log = cls.__new__(cls)
        log._held, log._length, log._free, log.cap = (*stamps, *parts), 0, None, slot.entries.cap
        log._span = Span(first=0, last=-1, run=True, padded=False)
        return log

    def tensors(self) -> tuple[Tensor, ...]:
        return columns(self._held, self._length, self._free)

    def storage(self) -> tuple[Tensor, ...]:
        return self._held

    def rebuild(self, tensors: Sequence[Tensor]) -> Self:
        return type(self)(tensors[0], tensors[1], *tensors[2:], cap=self.cap)

    def select(self, rows: Tensor) -> Self:
        """With its spare room where all rows are alike, so that the next token needs no second copy."""
        if not self._span.run or self._span.padded or self._free is not None or not rows.numel():
            return super().select(rows)
        held = tuple(t.index_select(0, rows.to(t.device)) for t in self._held)
        return self._carry(held, self._length, None, self._span)

    def read(self) -> tuple[Seen, Log]:
        """Look without adding."""
        self.spend()
        return _seen(self.tensors(), self._span), self._carry(self._held, self._length, self._free, self._span)

    def lend(self) -> LogStorage:
        """Hand the storage out, contiguous; it becomes a log again by `returned`."""
        self.spend()
        held = tuple(t.contiguous() for t in self._held)
        self._held = tuple(t.new_empty(0, 0) for t in held)  # this handle keeps no entries alive
        return LogStorage(held, self._length, self.cap, self._free, self._span)

    def shown(self) -> LogStorage:
        """The entries, contiguous, the oldest first, to be read only; nothing is used up."""
        held = self._held if self._free is None else self.tensors()
        return LogStorage(tuple(t.contiguous() for t in held), self._length, self.cap, None, self._span)

    @classmethod
    def returned(cls, lent: LogStorage) -> Self:
        """The log whose storage was handed out, with what was added to it."""
        log = cls.__new__(cls)
        log._held, log._length, log._free, log.cap, log._span = lent.held, lent.length, lent.free, lent.cap, lent.span
        return log

    def append(self, where: Stamps, *parts: Tensor) -> tuple[Seen, Log]:
        """What this call may look at, and what is kept for the next call."""
        self._check(where, parts)
        self.spend()
        seen, kept = self._form(where)(where, (where.order, where.position, *parts))
        return Seen.of(where, *parts) if self._length == 0 else seen, kept

    def _form(self, where: Stamps) -> Callable[[Stamps, tuple[Tensor, ...]], tuple[Seen, Log]]:
        """In place where nothing speaks against it: no gradients, no padding, tokens in order."""
        tokens = where.shape[1]
        in_order = tokens == 1 or where.span.run
        if torch.is_grad_enabled() or where.span.padded or tokens == 0 or not in_order:
            return self._join
        if self._free is None and (self.cap is None or self._length + tokens <= self.cap):
            return self._extend
        return self._wrap if tokens == 1 and self._length == self.cap else self._join

    def _extend(self, where: Stamps, new: tuple[Tensor, ...]) -> tuple[Seen, Log]:
        """Write behind the last entry, after making room if there is none left."""
        end = self._length + where.shape[1]
        held = self._roomy(end, end + max(SPARE, end // 16))
        for old, fresh in zip(held, new, strict=True):
            old[:, self._length : end] = fresh
        span = joined(self._span, where.span, self._length)
        return _seen([t[:, :end] for t in held], span), self._carry(held, end, None, span)

    def _wrap(self, where: Stamps, new: tuple[Tensor, ...]) -> tuple[Seen, Log]:
        """Write into the free column of a full log; all columns are seen, then the oldest is free."""
        columns = self._length + 1
        held, free = self._roomy(columns, columns), self._length if self._free is None else self._free
        for old, fresh in zip(held, new, strict=True):
            old[:, free : free + 1] = fresh
        before, now = self._span, where.span
        first, last = (before.first, max(before.last, now.last)) if self._length else (now.first, now.last)
        span = Span(min(first, now.first), last, run=False, padded=before.padded)
        # If every row held just the orders first .. last, and they all go on alike, then every row lost its `first`.
        alike = not before.padded and before.last - before.first == self._length - 1 and now.first == now.last
        kept = replace(span, first=span.first + 1) if alike else span
        return _seen(held, span), self._carry(held, self._length, (free + 1) % columns, kept)

    def _join(self, where: Stamps, new: tuple[Tensor, ...]) -> tuple[Seen, Log]:
        """The general form: old and new side by side are seen; the newest are kept, in rows with holes those first."""
        both = [torch.cat((old, fresh), 1) for old, fresh in zip(self.tensors(), new, strict=True)]
        span = joined(self._span, where.span, self._length)
        seen, order = _seen(both, span), both[0]
        count = order.shape[1]
        if self.cap is None and not span.padded:
            kept = both
        else:
            most = int(seen.real.sum(1).max()) if order.numel() else 0
            keep = most if self.cap is None else min(most, self.cap)
            newest = order.argsort(dim=1, stable=True)[:, count - keep :]  # holes have order -1: they come first
            kept = [_taken(t, newest) for t in both]
        return seen, type(self)(*kept, cap=self.cap)

    def _roomy(self, needed: int, wanted: int) -> tuple[Tensor, ...]:
        """The storage, moved to a larger place if it has fewer than `needed` columns, or may not be written here."""
        frozen = self._held[0].is_inference() and not torch.is_inference_mode_enabled()
        if needed <= self._held[0].shape[1] and not frozen:
            return self._held
        room = wanted if self.cap is None else min(wanted, self.cap + 1)
        return tuple(grown(held, self._length, room) for held in self._held)

    def _carry(self, held: tuple[Tensor, ...], length: int, free: int | None, span: Span) -> Self:
        log = type(self).__new__(type(self))
        log._held, log._length, log._free, log._span, log.cap = held, length, free, span, self.cap
        return log

    def _check(self, where: Stamps, parts: tuple[Tensor, ...]) -> None:
        must_have(self, where.shape[0])
        if len(parts) != len(self._held) - 2:
            raise InputError(f"the log has {len(self._held) - 2} parts per entry, {len(parts)} were given")


def remember(state: Log | None, where: Stamps, *parts: Tensor) -> tuple[Seen, Log | None]:
    """What this call may look at, and what to keep. Without a state a call sees its own entries and keeps nothing."""
    return (Seen.of(where, *parts), None) if state is None else state.append(where, *parts)


def allocate(spec: Spec, rows: int, device: torch.device | None = None) -> State:
    """An empty state of this spec."""
    if isinstance(spec, tuple):
        return tuple(allocate(part, rows, device) for part in spec)
    if spec.entries.fixed:
        lead = (rows,) if spec.entries.fixed == 1 else (rows, spec.entries.fixed)
        return Cell(*(torch.full((*lead, *p), spec.fill, dtype=spec.dtype, device=device) for p in spec.parts))
    return Log.empty(spec, rows, device)


def leaves(state: State | None) -> Iterator[Leaf]:
    """Every log and cell of the tree, in order."""
    if isinstance(state, tuple):
        for part in state:
            yield from leaves(part)
    elif state is not None:
        yield state


def must_have(state: State, rows: int) -> None:
    """Raise unless the state remembers so many rows: a call would else mix rows up, or take one for all."""
    leaf = next(leaves(state), None)
    held = next((tensor.shape[0] for tensor in leaf.storage()), rows) if leaf is not None else rows
    if held != rows:
        raise InputError(f"the state remembers {held} rows, this call has {rows}; use select(state, rows)")


def ends(spec: Spec, state: State) -> tuple[Tensor, Tensor] | None:
    """The order and the position of every row's last token, -1 before the first. [B] and [B]

    Logs that keep an entry per token tell it. None if none does: a recurrence does not count its tokens, and a segment
    that was just closed holds none of them any more, while what it was summed up in is no longer as it began.
    """
    last: list[tuple[Tensor, ...]] = []
    begun = torch.zeros((), dtype=torch.bool)
    for slot, leaf in _held_by(spec, state):
        if slot.entries.of_tokens and isinstance(leaf, Log):
            order, position = leaf.tensors()[:2]
            both = (order, position.masked_fill(order < 0, -1))
            last.append(tuple(torch.nn.functional.pad(stamp, (1, 0), value=-1).amax(1) for stamp in both))
        elif slot.entries.fixed:
            changed = [(part != slot.fill).flatten(1).any(1) for part in leaf.tensors()]
            begun = torch.stack([begun.expand_as(changed[0]).to(changed[0].device), *changed]).any(0)
    if not last:
        return None
    orders, positions = (torch.stack(stamps).amax(0) for stamps in zip(*last, strict=True))
    unknown = begun.to(orders.device) & (orders < 0)
    return None if bool(unknown.any()) else (orders, positions)


def _held_by(spec: Spec, state: State) -> Iterator[tuple[Slot, Leaf]]:
    """Every slot and what is held in it."""
    if isinstance(spec, Slot):
        if isinstance(state, Leaf):
            yield spec, state
    elif isinstance(state, tuple):
        for slot, part in zip(spec, state, strict=True):
            yield from _held_by(slot, part)


def select(state: S, rows: Tensor | Sequence[int]) -> S:
    """These rows, in this order, repeated if named twice: reorders beams, drops finished rows. A copy."""
    index = rows if isinstance(rows, Tensor) else torch.tensor(rows, dtype=torch.long)
    return cast(S, _map(state, lambda leaf: leaf.select(index), spend=False))


def fork(state: S) -> S:
    """A copy that lives on its own: pass one of the two, keep the other."""
    return cast(S, _map(state, _each(torch.clone), spend=False))


def twin(state: S) -> S:
    """A second handle on the same tensors, for a call that is made again; with gradients none is written into."""
    return cast(S, _map(state, copy, spend=False))


def renewed(state: S) -> S:
    """A new handle on the same tensors in place of the given one, which is used up."""
    other = twin(state)
    for leaf in leaves(state):
        leaf.spend()
    return other


def detach(state: S) -> S:
    """The same values without their gradients; the given handle is used up."""
    return cast(S, _map(state, _each(torch.detach), spend=True))


def to(state: S, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> S:
    """Moved to a device, floating parts in another dtype; the given handle is used up."""
    moved = _each(lambda t: t.to(device, dtype if t.is_floating_point() else t.dtype))
    return cast(S, _map(state, moved, spend=True))


def nbytes(state: State | None) -> int:
    """Bytes of all entries held, over all rows, stamps included; the spare room of a growing log is not counted."""
    return sum(t.numel() * t.element_size() for leaf in leaves(state) for t in leaf.tensors())


def _each(change: Callable[[Tensor], Tensor]) -> Callable[[Leaf], Leaf]:
    """A change of tensors as a change of leaves."""
    return lambda leaf: leaf.rebuild([change(t) for t in leaf.tensors()])


def _map(state: State, change: Callable[[Leaf], Leaf], *, spend: bool) -> State:
    if isinstance(state, tuple):
        parts: list[State] = [_map(part, change, spend=spend) for part in state]
        return tuple(parts) if type(state) is tuple else type(state)(*parts)  # type: ignore[arg-type]  # a named tuple
    if state.spent:
        raise StateConsumed
    if spend:
        state.spend()
    return cast(State, change(state))  # a leaf of the same kind


def _seen(tensors: Sequence[Tensor], span: Span) -> Seen:
    seen = Seen(*tensors)
    seen.known(span)
    return seen


def _taken(tensor: Tensor, index: Tensor) -> Tensor:
    return tensor.gather(1, index.reshape(*index.shape, *(1,) * (tensor.dim() - 2)).expand(-1, -1, *tensor.shape[2:]))
