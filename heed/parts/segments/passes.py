"""Many rows, some at a time: what is held at once does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

HELD = 1 << 20  # numbers that are held at once, as many as stay in a cache


def in_passes(form: Callable[..., Tensor], numbers: int, *given: Tensor) -> Tensor:
    """`form(*given)`, whose row r depends on row r of what is given alone, where a row takes so many `numbers`.

    For the gradient every pass is computed again.
    """
    rows, some = given[0].shape[0], max(1, HELD // max(1, numbers))
    if some >= rows:
        return form(*given)
    again, parts = torch.is_grad_enabled(), zip(*(torch.split(x, some) for x in given), strict=True)
    return torch.cat([checkpoint(form, *part, use_reentrant=False) if again else form(*part) for part in parts])
