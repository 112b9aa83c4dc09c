"""What is computed some rows at a time is what all rows give at once, and learns the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.parts.segments import transformer_xl
from heed.parts.segments.transformer_xl import in_passes


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
