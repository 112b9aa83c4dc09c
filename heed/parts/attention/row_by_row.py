"""Batch rows one after the other, without their padding (varlen): for attention merged of pieces that differ by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.stamps import Span, Stamps


@dataclass(frozen=True, eq=False)
class Row:
    """One row of a batch, without the padding at its end where it is known to be only there."""

    number: int
    stamps: Stamps

    def of(self, x: Tensor) -> Tensor:
        """This row of something that every token has. [B, T, ...] -> [1, t, ...]"""
        return x[self.number : self.number + 1, : self.stamps.shape[1]]


def row_by_row(where: Stamps, form: Callable[[Row], Tensor]) -> Tensor:
    """What `form` makes of each row, [1, t, ...], as a batch again, with zeros at the padding. [B, T, ...]"""
    tokens = where.shape[1]
    made = [_filled(form(row), tokens) for row in _rows(where)]
    return torch.cat(made) if len(made) > 1 else made[0]


def _rows(where: Stamps) -> list[Row]:
    span, tokens = where.span, where.shape[1]
    short = span.run and span.padded
    lengths = where.real.sum(1).tolist() if short else [tokens] * where.shape[0]
    rows = []
    for number, length in enumerate(lengths):
        stamps = Stamps(where.order[number : number + 1, :length], where.position[number : number + 1, :length])
        if span.run:
            stamps.known(Span(span.first, span.first + length - 1, run=True, padded=False))
        rows.append(Row(number, stamps))
    return rows


def _filled(x: Tensor, tokens: int) -> Tensor:
    return x if x.shape[1] == tokens else F.pad(x, (0, 0) * (x.dim() - 2) + (0, tokens - x.shape[1]))
