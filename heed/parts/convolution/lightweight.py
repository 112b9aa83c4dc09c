"""What lightweight and dynamic convolutions share: projections around kernels that many channels have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.config import Count, Flag, Share, Size
from ...core.contract import Where
from ...core.spec import Dim
from ...core.state import Log
from ..attention.multihead import per_head
from ..look import Look
from .sliding import Line, Sliding, SlidingConfig


class LightweightConfig(SlidingConfig):
    """A kernel for each head; consecutive channels are of one head."""

    heads: Size = 4
    projection: Literal["gated", "plain", "none"] = "gated"  # in: gated, and out; or without a gate; or neither
    softmax: Flag = True  # the taps of a kernel sum to one
    dropout: Share = 0.0  # of the taps (DropConnect)
    filled: Count = 0  # where it is centred: a row is filled up with blank tokens to at least so many (fairseq's batch)


class Lightweight(Sliding):
    """v = GLU(W_in x), a kernel that slides over v, and W_out."""

    def __init__(self, config: LightweightConfig, width: int) -> None:
        super().__init__(config, width)
        per_head(width, config.heads)
        self.heads = Dim("heads", config.heads)
        self.softmax, self.dropout, self.filled = config.softmax, config.dropout, config.filled
        self.gated = config.projection == "gated"
        plain = config.projection == "none"
        self.enter = None if plain else nn.Linear(width, 2 * width if self.gated else width)
        self.out = None if plain else nn.Linear(width, width)
        self.kernels = Look()

    @abstractmethod
    def slid(self, value: Tensor, line: Line, over: Tensor) -> Tensor:
        """The kernels of these tokens, applied. [B, T, D], [B, L, D] -> [B, G, D]"""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        value = where.blank(self._entered(where.blank(x)))
        line, state = self.line(value, where, state)
        over = line.values
        if self.filled and not self.streams:
            over = line.filled(self.filled, self._entered(x.new_zeros(x.shape[2])))
        y = line.take(self.slid(value, line, over))
        return y if self.out is None else self.out(y), state

    def normed(self, taps: Tensor) -> Tensor:
        """Kernels as they are applied. [..., K]"""
        taps = taps.softmax(-1) if self.softmax else taps
        return F.dropout(taps, self.dropout) if self.dropout and self.training else taps

    def _entered(self, x: Tensor) -> Tensor:
        if self.enter is None:
            return x
        entered: Tensor = self.enter(x)
        return F.glu(entered) if self.gated else entered


def taps(heads: int, kernel: int) -> nn.Parameter:
    """Kernels to be learnt."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, kernel)))
