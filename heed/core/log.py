"""The storage of a log (what a KV cache is made of): columns of entries, with room to spare."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .stamps import Span, Stamps

SPARE = 64  # columns that a growing log gets beyond what it needs, at least; as many as are mostly written at once


@dataclass
class LogStorage:
    """The tensors of a log (a KV cache), given to a kernel or a runner that writes entries into them itself.

    Entries go to column `free` where there is one, else behind the last; see `Log`.
    """

    held: tuple[Tensor, ...]  # order, position and parts, each [B, room, ...]
    length: int
    cap: int | None
    free: int | None
    span: Span

    @property
    def room(self) -> int:
        """Columns that there are."""
        return self.held[0].shape[1]

    def rows(self, some: slice) -> LogStorage:
        """These rows."""
        return replace(self, held=tuple(held[some] for held in self.held))

    def fit(self, count: int) -> None:
        """Room for so many entries more, or for as many as are ever kept; a sixteenth to spare, if there is not yet."""
        most = None if self.cap is None else self.cap + 1
        needed = self.length + count if most is None else min(self.length + count, most)
        if needed > self.room:
            wanted = needed + max(SPARE, needed // 16)
            room = wanted if most is None else min(wanted, most)
            self.held = tuple(grown(t, self.length, room) for t in self.held)

    def measure(self) -> None:
        """Look at the stamps again, after rows have left: what was known of all rows may say too little of some."""
        if self.span.padded or not self.span.run:
            self.span = Stamps(*columns(self.held[:2], self.length, self.free)).span

    def written(self, steps: Span, count: int) -> None:
        """So many tokens were added to every row, stamped within `steps`."""
        wrapped = self.cap is not None and self.length + count > self.cap
        if not wrapped:
            self.span = joined(self.span, steps, self.length)
            self.length += count
            return
        alike = steps.run and not self.span.padded
        self.length = self.cap or 0
        first = steps.last - self.length + 1 if alike else min(self.span.first, steps.first)
        self.span = Span(first, steps.last, run=False, padded=self.span.padded)


def columns(held: tuple[Tensor, ...], length: int, free: int | None) -> tuple[Tensor, ...]:
    """The columns that hold an entry."""
    if free is None:
        return tuple(tensor[:, :length] for tensor in held)
    return tuple(torch.cat((tensor[:, free + 1 :], tensor[:, :free]), 1) for tensor in held)


def grown(tensor: Tensor, length: int, room: int) -> Tensor:
    """A tensor of so many columns, which begins with these."""
    wider = tensor.new_empty(tensor.shape[0], room, *tensor.shape[2:])
    if length:
        wider[:, :length] = tensor[:, :length]
    return wider


def joined(old: Span, new: Span, length: int) -> Span:
    """The span of two groups of entries side by side, from what is known of each."""
    if length == 0:
        return new
    if new.last < new.first:  # nothing but padding was added
        return Span(old.first, old.last, old.run, old.padded or new.padded)
    run = old.run and new.run and not old.padded and new.first == old.first + length
    first = min(old.first, new.first) if old.last >= old.first else new.first
    return Span(first, max(old.last, new.last), run, old.padded or new.padded)
