"""Two tables of vectors, whose dot products are what is learnt: s(a, b) = u_a·v_b + shifts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import InputError


class TwoTables(nn.Module):
    """s(a, b) = u_a·v_b, and where there are shifts + c + c_a + c_b. Costs O(d) for a pair."""

    def __init__(self, left: int, right: int, width: int, *, shifts: bool) -> None:
        super().__init__()
        self.left, self.right = nn.Embedding(left, width), nn.Embedding(right, width)
        nn.init.normal_(self.left.weight, std=width**-0.5)
        nn.init.normal_(self.right.weight, std=width**-0.5)
        sides = (left, right, 1) if shifts else ()
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(count)) for count in sides)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """The score of every pair; `a` [...] and `b` [...] are broadcast against one another."""
        score: Tensor = (self.left(a) * self.right(b)).sum(-1)
        if not len(self.shifts):
            return score
        left, right, all_ = self.shifts
        shifted: Tensor = score + left[a] + right[b] + all_
        return shifted


def numbered(names: Iterable[str], what: str) -> dict[str, int]:
    """Each name with its number, in the order of their first appearance."""
    found = {name: number for number, name in enumerate(dict.fromkeys(names))}
    if not found:
        raise InputError(f"there is no {what} to learn from; give at least one example")
    return found


def number_of(name: str, numbers: dict[str, int], what: str) -> int:
    """The number of a name that was there while learning."""
    if name not in numbers:
        raise InputError(f"{what} {name!r} was not there while learning; there were {len(numbers)}")
    return numbers[name]


def batches(count: int, size: int, draw: np.random.Generator) -> Iterator[Tensor]:
    """The numbers 0 .. count-1, shuffled, `size` at a time."""
    for part in np.array_split(draw.permutation(count), max(1, -(-count // size))):
        yield torch.from_numpy(part)
