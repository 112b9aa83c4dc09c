"""Ragged rows in padded batches of similar lengths: what a careful user of a padding library does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def batches(rows: Sequence[Sequence[int]], size: int) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Ids padded with zeros, and ones where they are real; at most so many rows at a time, sorted by length."""
    order = sorted(rows, key=len)
    for begin in range(0, len(order), size):
        some = order[begin : begin + size]
        width = max(map(len, some))
        ids = [[*row, *[0] * (width - len(row))] for row in some]
        yield ids, [[1] * len(row) + [0] * (width - len(row)) for row in some]
