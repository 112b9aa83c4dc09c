"""A step of training in plain torch, the same for every peer: loss, gradients, fused AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..base import Done, Ready
from ..work import Work

if TYPE_CHECKING:
    from torch import Tensor


def steps(work: Work, made: Callable[[], tuple[Any, Callable[[], Tensor]]]) -> Ready:
    """`made` gives a model and its mean loss on the work's rows."""
    import torch

    torch.manual_seed(0)
    model, loss = made()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Done:
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return Done(work.units)

    return Ready({"": step})
