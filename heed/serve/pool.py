"""The memory that requests share: a budget in bytes, lent as pages for logs, slots for rings and cells, and sources.

Prices follow from a mixer's `spec` alone, so the same pool serves attention, windows, recurrences and hybrids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from ..core.errors import InputError
from ..core.log import SPARE
from ..core.spec import STAMP_BYTES, Slot, Spec


@dataclass(frozen=True)
class Prices:
    """What a row costs: a slot whatever its length, a page for every `page` tokens, and its source."""

    page: int  # tokens
    page_bytes: int
    slot_bytes: int
    source_bytes: int  # of a token of the source

    @classmethod
    def of(cls, spec: Spec, page: int) -> Prices:
        """By what the spec declares, and the spare room that growing logs have: a sixteenth, and a few columns."""
        pages = slot = source = 0
        for one in slots_of(spec):
            entries = one.entries
            entry = sum(map(prod, one.parts)) * one.dtype.itemsize + (0 if entries.fixed else STAMP_BYTES)
            slot += entry * (entries.fixed + entries.lead)
            source += entry * entries.per_source
            if entries.each and entries.cap is not None:
                slot += entry * (entries.cap + 1)  # a full ring has a free column
            elif entries.each:
                pages += entry * -(-page // entries.each)
                slot += entry * SPARE
        return cls(page, pages + pages // 16, slot, source)

    def pages(self, tokens: int) -> int:
        """Whole pages for so many tokens; none if nothing grows."""
        return -(-tokens // self.page) if self.page_bytes else 0

    def bytes(self, tokens: int, source: int = 0) -> int:
        """Of a row of so many tokens, beside a source of so many."""
        return self.slot_bytes + self.pages(tokens) * self.page_bytes + source * self.source_bytes


class Pool:
    """Units of memory, lent and given back: counted, so that several may hold one, and never more than the budget."""

    def __init__(self, budget: int) -> None:
        if budget < 1:
            raise InputError(f"a pool of {budget} bytes holds nothing; give more memory")
        self.budget, self.used = budget, 0
        self._units: dict[int, tuple[int, int]] = {}  # of each unit that is lent: its bytes, and how many hold it
        self._next = 0

    def __len__(self) -> int:
        return len(self._units)

    @property
    def free(self) -> int:
        """Bytes."""
        return self.budget - self.used

    def take(self, sizes: Iterable[int]) -> list[int] | None:
        """A unit of each of these sizes; None, and nothing is taken, if they do not fit."""
        wanted = list(sizes)
        if sum(wanted) > self.free:
            return None
        units = list(range(self._next, self._next + len(wanted)))
        self._next += len(wanted)
        self._units.update((unit, (size, 1)) for unit, size in zip(units, wanted, strict=True))
        self.used += sum(wanted)
        return units

    def share(self, units: Iterable[int]) -> None:
        """Somebody else holds these, too."""
        for unit in units:
            size, holders = self._held(unit)
            self._units[unit] = size, holders + 1

    def give(self, units: Iterable[int]) -> None:
        """One holder fewer; the last one frees a unit."""
        for unit in units:
            size, holders = self._held(unit)
            if holders > 1:
                self._units[unit] = size, holders - 1
            else:
                del self._units[unit]
                self.used -= size

    def _held(self, unit: int) -> tuple[int, int]:
        if unit not in self._units:
            raise InputError(f"unit {unit} of the pool is not lent: it was given back twice, or never taken")
        return self._units[unit]


def slots_of(spec: Spec) -> Iterator[Slot]:
    """Every slot of a spec, in order."""
    if isinstance(spec, Slot):
        yield spec
    else:
        for part in spec:
            yield from slots_of(part)
