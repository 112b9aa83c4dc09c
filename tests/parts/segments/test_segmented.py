"""Tokens in a grid of segments: where each stands, what is over and what is open, and the way back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.stamps import Span, Stamps
from heed.parts.segments.segmented import Segmented

LENGTH = 4
ROWS = {
    "a run": [[0, 1, 2, 3, 4, 5]],
    "a run that begins within a segment": [[6, 7, 8, 9, 10, 11, 12]],
    "rows that end early": [[0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, -1, -1, -1, -1, -1, -1]],
    "rows that begin anywhere": [[5, 6, 7, 8], [14, 15, -1, -1], [-1, -1, -1, -1]],
    "holes": [[-1, 2, 3, 5, 9], [-1, -1, 7, 8, 9]],
    "one segment": [[1, 2], [0, -1]],
    "one segment that ends": [[1, 2, 3], [0, -1, -1]],
    "nobody": [[-1, -1]],
}


def segmented(name: str) -> Segmented:
    order = torch.tensor(ROWS[name])
    return Segmented(Stamps(order, order + 100), LENGTH)


def values(shape: torch.Size, *more: int) -> Tensor:
    """Something to tell tokens apart by, none of it zero."""
    return torch.arange(1, 1 + shape.numel() * torch.Size(more).numel()).reshape(*shape, *more)


@pytest.mark.parametrize("name", ROWS)
def test_every_entry_stands_in_its_segment_at_its_place(name: str) -> None:
    segments = segmented(name)
    x = values(segments.stamps.shape, 2)
    grid = segments.put(x)
    wanted = torch.zeros_like(grid)
    for row, orders in enumerate(ROWS[name]):
        first = min((order for order in orders if order >= 0), default=0) // LENGTH
        assert int(segments.first[row]) == first
        for column, order in enumerate(orders):
            if order >= 0:
                wanted[row, order // LENGTH - first, order % LENGTH] = x[row, column]
    assert torch.equal(grid, wanted)
    assert bool(wanted.flatten(2).any(2)[:, -1].any()) or name == "nobody"  # there are no more segments than needed


@pytest.mark.parametrize("name", ROWS)
def test_there_and_back(name: str) -> None:
    segments = segmented(name)
    x, real = values(segments.stamps.shape, 3), segments.stamps.real
    for last in (1, x.shape[1]):
        back = segments.take(segments.put(x), last)
        here = real[:, x.shape[1] - last :]
        assert torch.equal(back[here], x[:, x.shape[1] - last :][here])


@pytest.mark.parametrize("name", ROWS)
def test_what_is_over_and_what_is_open(name: str) -> None:
    segments = segmented(name)
    for row, orders in enumerate(ROWS[name]):
        last = max(orders)
        over = (last + 1) // LENGTH  # segments from the first of the text on
        first = int(segments.first[row])
        assert int(segments.closed[row]) == (over - first if last >= 0 else 0)
        assert segments.open[row].tolist() == [order >= over * LENGTH and order >= 0 for order in orders]
    assert segments.settled == (name == "one segment")


def test_the_grid_counts_from_the_begin_of_each_segment() -> None:
    grid = segmented("rows that begin anywhere").grid
    assert grid.order.tolist() == [[-1, 1, 2, 3], [0, -1, -1, -1], [-1, -1, 2, 3], *[[-1] * 4] * 3]
    assert grid.position[0].tolist() == [0, 105, 106, 107]


def test_garbage_in_the_padding_stays_outside() -> None:
    """Whether columns are places, as a span may tell, or entries are put one by one."""
    order = torch.tensor([[0, 1, 2, 3, 4], [0, 1, -1, -1, -1]])
    x = torch.ones(2, 5).masked_fill(order < 0, float("nan"))
    measured, told = Stamps(order, order), Stamps(order, order)
    told.known(Span(first=0, last=4, run=False, padded=True))
    for stamps in (measured, told):
        assert torch.equal(Segmented(stamps, LENGTH).put(x).sum((1, 2)), torch.tensor([5.0, 2.0]))
