"""Segments beside what they recall, place by place; and what is computed some rows at a time is what all rows give."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.stamps import Stamps
from heed.parts.segments import transformer_xl
from heed.parts.segments.transformer_xl import Recalled, in_passes

ROWS = {  # orders of the queries, and of the keys: those before them that are remembered, and their own
    "from the beginning": ([[0, 1, 2, 3, 4]], [[0, 1, 2, 3, 4]]),
    "after others": ([[5, 6, 7, 8, 9, 10]], [[3, 4, 5, 6, 7, 8, 9, 10]]),
    "rows that end early": ([[0, 1, 2, 3, 4], [0, 1, -1, -1, -1]], [[0, 1, 2, 3, 4], [0, 1, -1, -1, -1]]),
    "rows that begin anywhere": ([[7, 8, 9], [1, 2, -1]], [[5, 6, 7, 8, 9], [-1, 0, 1, 2, -1]]),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("memory", [0, 1, 2, 5])
def test_a_segment_recalls_what_was_revealed_just_before_it(name: str, memory: int) -> None:
    """Keys of a place are told apart by their order; those that are recalled have another sign, as if stopped."""
    asks, sees = (torch.tensor(rows) for rows in ROWS[name])
    recalled = Recalled(Stamps(asks, asks), Stamps(sees, sees), 3, memory)
    live = (sees + 1).double()[..., None]
    whole, split = recalled.keys(live), recalled.keys(live, -live)
    queries = recalled.queries((asks + 1).double()[..., None])
    count = recalled.count
    for row, orders in enumerate(asks.tolist()):
        begin = min(order for order in orders if order >= 0) // 3 * 3
        for segment in range(count):
            first = begin + 3 * segment
            known = {order for order in sees[row].tolist() if order >= 0}
            wanted = [order + 1.0 if order in known else 0.0 for order in range(first - memory, first + 3)]
            at = row * count + segment
            assert whole[at, :, 0].tolist() == wanted
            assert split[at, :, 0].tolist() == [-one for one in wanted[:memory]] + wanted[memory:]
            mine = [order + 1.0 if order in orders else 0.0 for order in range(first, first + 3)]
            assert queries[at, :, 0].tolist() == mine
    back = recalled.back(queries)
    assert torch.equal(back[asks >= 0], (asks + 1).double()[..., None][asks >= 0])


def test_a_run_is_cut_as_rows_that_are_looked_at_are() -> None:
    """A span that tells of a run spares looking at the orders; the places must be the same."""
    run, order = Where.run(2, 7, start=4), torch.arange(4, 11).expand(2, 7)
    ragged = Stamps(order.clone(), order.clone())
    x = torch.randn(2, 7, 3)
    known, looked = (Recalled(stamps, stamps, 3, 4) for stamps in (run, ragged))
    assert known.where.span.run
    for one, other in ((known.queries(x), looked.queries(x)), (known.keys(x, -x), looked.keys(x, -x))):
        assert torch.equal(one, other)


@pytest.mark.parametrize("held", [1, 7, 1 << 20])
def test_passes_change_nothing(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer_xl, "HELD", held)
    calls = []

    def form(x: Tensor, y: Tensor) -> Tensor:
        calls.append(len(x))
        return (x * y).cumsum(1).tanh()

    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5, 3, dtype=torch.float64, generator=draw).requires_grad_() for _ in range(2))
    made = in_passes(form, 3, x, y)
    assert calls == {1: [1] * 5, 7: [2, 2, 1], 1 << 20: [5]}[held]
    wanted = (x * y).cumsum(1).tanh()
    assert torch.equal(made, wanted)
    gradient = torch.randn(made.shape, dtype=torch.float64, generator=draw)
    for mine, theirs in zip(
        torch.autograd.grad(made, (x, y), gradient), torch.autograd.grad(wanted, (x, y), gradient), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_nothing_is_kept_for_a_gradient_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer_xl, "HELD", 1)
    with torch.no_grad():
        made = in_passes(lambda x: x + 1, 3, torch.zeros(4, 3, requires_grad=True))
    assert not made.requires_grad
    assert (made == 1).all()
