"""Dropout (Srivastava et al. 2014): y = x ⊙ m / P(m = 1), with m random zeros and ones while training.

On a CPU drawing m is what costs. torch draws a number per element; here every 64 random bits serve four elements, which
takes two fifths of the time (benchmarks/dropout.py). The probability is then a multiple of 2^-16, and what is kept is
divided by exactly that probability, so the mean is exact.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 2**16  # what 16 bits can tell apart


class Dropout(nn.Module):
    """Zeroes a share of the channels while training; does nothing otherwise."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0.0:
            return x
        return dropped(x, self.share) if x.device.type == "cpu" else F.dropout(x, self.share)


def dropped(x: Tensor, share: float) -> Tensor:
    """`x` with a random share of its elements zero and the others grown to make up for it."""
    zeros = min(round(share * STEPS), STEPS - 1)  # a share just below 1 still keeps some, to grow
    if zeros == 0:
        return x
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)  # -STEPS/2 .. STEPS/2 - 1
    return x * (bits >= zeros - STEPS // 2).to(x.dtype).mul_(STEPS / (STEPS - zeros))
