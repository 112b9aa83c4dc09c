"""What a mixer declares that it remembers: a tree of slots, each with what an entry is made of and how many there are.

The spec alone is enough to allocate a state, to price it and to put it into words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Self, TypeAlias

import torch

STAMP_BYTES = 16  # every entry of a log carries its order and its position, 8 bytes each


class Dim(int):
    """A size that knows its name, so that one declaration gives both the bytes and the words."""

    name: str

    def __new__(cls, name: str, size: int) -> Self:
        dim = super().__new__(cls, size)
        dim.name = name
        return dim

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]  # copies and pickles keep the name
        return self.name, int(self)


@dataclass(frozen=True)
class Entries:
    """How many entries a row holds after `tokens` tokens, beside a source of `source` tokens."""

    each: int = 0  # one entry per `each` tokens (attention: 1); 0 = none
    cap: int | None = None  # but never more than this (a window)
    fixed: int = 0  # always this many (a recurrence)
    per_source: bool = False  # one per source token (cross-attention)
    lead: int = 0  # and this many for what stands before the first token (memory tokens)

    @property
    def of_tokens(self) -> bool:
        """Whether there is an entry for each token of the stream, or for each of the last ones."""
        return self.each == 1 and self.cap != 0 and not (self.per_source or self.lead or self.fixed)

    def count(self, tokens: int, source: int = 0) -> int:
        grown = -(-tokens // self.each) if self.each else 0
        capped = grown if self.cap is None else min(grown, self.cap)
        return self.fixed + self.lead + capped + source * self.per_source


@dataclass(frozen=True)
class Slot:
    """One remembered thing: the shapes of its parts, per entry, and its law of growth."""

    parts: tuple[tuple[int, ...], ...]
    entries: Entries
    dtype: torch.dtype = torch.float32
    fill: float = 0.0  # what a fixed slot holds before the first token

    def bytes(self, tokens: int, source: int = 0) -> int:
        """Bytes per row, the stamps of a log's entries included."""
        stamp = 0 if self.entries.fixed else STAMP_BYTES
        return self.entries.count(tokens, source) * (sum(map(prod, self.parts)) * self.dtype.itemsize + stamp)


Spec: TypeAlias = "Slot | tuple[Spec, ...]"  # () = remembers nothing


def price(spec: Spec, tokens: int, source: int = 0) -> int:
    """Bytes per row that the spec declares after `tokens` tokens beside a source of `source` tokens."""
    return sum(price(part, tokens, source) for part in spec) if isinstance(spec, tuple) else spec.bytes(tokens, source)


def words(spec: Spec) -> str:
    """The law of growth in words, from the names of the sizes: "2·kv_heads·head_size numbers per token"."""
    slots = list(_slots(spec))
    return "; ".join(_slot_words(slot) for slot in slots) if slots else "nothing"


def _slots(spec: Spec) -> Iterator[Slot]:
    if isinstance(spec, Slot):
        yield spec
    else:
        for part in spec:
            yield from _slots(part)


def _slot_words(slot: Slot) -> str:
    many = [slot.entries.fixed] if slot.entries.fixed > 1 else []
    kinds = ["·".join(_named(size) for size in (*many, *part)) or "1" for part in slot.parts]
    counted = {kind: kinds.count(kind) for kind in kinds}
    numbers = " + ".join(f"{count}·{kind}" if count > 1 else kind for kind, count in counted.items())
    entries = slot.entries
    if entries.fixed:
        return f"{numbers} numbers, whatever the length"
    if entries.per_source:
        return f"{numbers} numbers per source token"
    per = "token" if entries.each == 1 else f"{_named(entries.each)} tokens"
    last = "" if entries.cap is None else f", for the last {_named(entries.cap)} tokens"
    return f"{numbers} numbers per {per}{last}" + f", and for {_named(entries.lead)} before" * bool(entries.lead)


def _named(size: int) -> str:
    return size.name if isinstance(size, Dim) else str(size)
