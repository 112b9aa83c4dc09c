"""The tokens just before a call: what a short convolution, or a shift by one token, must still see of it."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core.stamps import Stamps


def continued(x: Tensor, where: Stamps, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens behind the `tail` of the last call, and the tail for the next: the last ones of each row, itself included.

    [B, T, D] and [B, W, D] give [B, W + T, D] and [B, W, D]. Before the first token a tail is zeros.
    """
    both, size = torch.cat((tail, x), 1), tail.shape[1]
    if not where.span.padded:
        return both, both[:, x.shape[1] :].clone()  # a view would keep all of it alive
    last = where.real.sum(1)[:, None] + torch.arange(size, device=x.device)  # padding stands at a row's end
    return both, both.take_along_dim(last[..., None], 1)
