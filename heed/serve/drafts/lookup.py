"""Guesses from the text itself: what followed when the last few tokens stood together before (prompt lookup)."""

from __future__ import annotations

from collections.abc import Sequence

SIZES = (3, 2)  # tokens that must be the same; more of them first
WINDOW = 1 << 14  # tokens of a prompt that are looked through: its last ones


class Lookup:
    """The tokens of a request, and where each few of them stood last."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._ids = list[int]()
        self._after: dict[tuple[int, ...], int] = {}
        self.extend(prompt[-WINDOW:])

    def extend(self, tokens: Sequence[int]) -> None:
        """More of them, one after the other."""
        ids = self._ids
        for token in tokens:
            end = len(ids)
            for size in SIZES:
                if end >= size:
                    self._after[tuple(ids[end - size :])] = end
            ids.append(token)

    def guess(self, most: int) -> list[int]:
        """So many tokens that may come. A text that repeats itself is taken to go on so."""
        ids = self._ids
        for size in SIZES:
            begin = self._after.get(tuple(ids[-size:]))
            if begin is not None:
                return [ids[begin + place % (len(ids) - begin)] for place in range(most)]
        return []
