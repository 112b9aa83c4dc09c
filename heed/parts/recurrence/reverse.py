"""A text read from its end: what a backward recurrence sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.contract import Where


@dataclass(frozen=True)
class Reversed:
    """A reversed text, row by row: padding stays at the end. Reversed twice it is as it was."""

    where: Where
    column: Tensor | None  # [B, T] whence each token comes; None: all rows are full

    @classmethod
    def of(cls, where: Where) -> Reversed:
        order, position = (_from_the_end(stamp, where.real) for stamp in (where.order, where.position))
        column = None
        if where.span.padded:
            place = torch.arange(order.shape[1], device=order.device)
            column = torch.where(where.real, where.real.sum(1, keepdim=True) - 1 - place, place)
        reversed_ = cls(where, column)
        return cls(Where(reversed_(order).masked_fill(~where.real, -1), reversed_(position)), column)

    def __call__(self, x: Tensor) -> Tensor:
        """The tokens, last one first. [B, T, ...]"""
        if self.column is None:
            return x.flip(1)
        return x.take_along_dim(self.column.reshape(*self.column.shape, *(1,) * (x.dim() - 2)), 1)


def _from_the_end(stamp: Tensor, real: Tensor) -> Tensor:
    """Counted from the last one of each row."""
    kept = stamp.masked_fill(~real, 0)
    return (kept.amax(1, keepdim=True) - kept).masked_fill(~real, 0)
