"""Row by row: each without its padding where that is known, and a batch again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.stamps import Span, Stamps
from heed.parts.attention.row_by_row import Row, row_by_row


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("lengths", [[5, 5, 5], [5, 2, 0], [3]])
def test_a_row_is_alone_and_has_no_padding(lengths: list[int]) -> None:
    x, where = draw(len(lengths), max(lengths), 2), Where.ragged(lengths, start=7)
    met: list[Row] = []

    def form(row: Row) -> Tensor:
        met.append(row)
        return row.of(x).cumsum(1)

    y = row_by_row(where, form)
    assert [row.stamps.shape[1] for row in met] == lengths
    for row, length in enumerate(lengths):
        assert torch.equal(y[row, :length], x[row, :length].cumsum(0))
        assert bool((y[row, length:] == 0).all())
        assert met[row].stamps.order.tolist() == [list(range(7, 7 + length))]
        assert length == 0 or met[row].stamps.span == Span(7, 6 + length, run=True, padded=False)


def test_rows_that_are_no_runs_keep_all_their_columns() -> None:
    order = torch.tensor([[4, 1, -1], [0, 2, 3]])
    x, stamps = draw(2, 3, 1, 2), Stamps(order, order)
    assert torch.equal(
        row_by_row(stamps, lambda row: row.of(x) + row.stamps.order[..., None, None]), x + order[..., None, None]
    )
