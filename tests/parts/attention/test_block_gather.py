"""Attention over scattered blocks, some rows at a time, is attention over them all at once, and learns the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.parts.attention import block_gather as module
from heed.parts.attention.block_gather import gathered
from heed.parts.attention.sdpa import How, Pairs

ROWS, TOKENS, BLOCKS, BLOCK, SIZE = 5, 3, 4, 2, 6


def _written_out(query: Tensor, key: Tensor, value: Tensor, index: Tensor, visible: Tensor, scale: float) -> Tensor:
    made = []
    for row in range(len(query)):
        keys, values = (torch.cat([store[block] for block in index[row]]) for store in (key, value))
        score = (query[row] @ keys.T * scale).masked_fill(~visible[row, 0], -torch.inf)
        weight = score.softmax(-1).nan_to_num(0.0)
        made.append(weight @ values)
    return torch.stack(made)


@pytest.mark.parametrize("numbers", [1, 40, 1 << 20])  # held at once: a row, some rows, all of them
@pytest.mark.parametrize("wide", [SIZE, SIZE + 3])
def test_rows_in_passes_equal_the_equation_and_its_gradient(
    numbers: int, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PASS", numbers)
    draw = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(*shape, dtype=torch.float64, generator=draw).requires_grad_()
        for shape in ((ROWS, TOKENS, SIZE), (BLOCKS, BLOCK, SIZE), (BLOCKS, BLOCK, wide))
    )
    index = torch.tensor([[0, 1], [1, 1], [3, 0], [2, 3], [0, 0]])  # blocks that many see, one that few do
    visible = torch.rand(ROWS, 1, TOKENS, 2 * BLOCK, generator=draw) > 0.4
    visible[2, :, 1] = False  # a token that sees nothing
    y = gathered(query, key, value, index, Pairs(visible, None), How(None, 0.3))
    wanted = _written_out(query, key, value, index, visible, 0.3)
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-14)
    assert (y[2, 1] == 0).all()
    slope = torch.randn(y.shape, dtype=torch.float64, generator=draw)
    mine = torch.autograd.grad(y, (query, key, value), slope)
    theirs = torch.autograd.grad(wanted, (query, key, value), slope.clone())
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other.nan_to_num(0.0), rtol=0, atol=1e-13)
