"""Which tokens these are: every token and every remembered entry carries two stamps.

`order` is the rank in which a token was revealed (-1 = padding or a hole) and is what masks read;
`position` is its place in the text and is what position codes read. Indices are not counted, so a ring
that wrapped, a ragged batch, a page table and (within one call) a permuted sequence are all the same to a mixer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


def one_row(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The first row alone where all rows are the same memory: then one row's work serves the whole batch."""
    same = all(tensor.stride(0) == 0 for tensor in tensors)
    return tuple(tensor[:1] for tensor in tensors) if same else tensors


@dataclass(frozen=True)
class Span:
    """What is known of some stamps without looking at the tensor again; it lets a call choose a faster form.

    `run` says that column j of every row holds the order `first + j`, or padding after the row's last token.
    `padded` may be True without need, never False without proof; likewise `run` may be False without need.
    """

    first: int
    last: int
    run: bool
    padded: bool


@dataclass(frozen=True, eq=False)
class Stamps:
    """Order and position of a batch of tokens, rows first."""

    order: Tensor  # [B, N] rank of revelation; -1 = padding (only at a row's end) or a hole in a memory
    position: Tensor  # [B, N] place in the text

    @cached_property
    def span(self) -> Span:
        """Measured from the tensors once, then known. Constructors that know it beforehand say so with `known`."""
        rows, length = self.order.shape
        hidden = self.order < 0
        if rows == 0 or length == 0 or bool(hidden.all()):
            return Span(first=0, last=-1, run=True, padded=rows > 0 and length > 0)
        last = int(self.order.max())
        first = int(self.order.masked_fill(hidden, last).min())
        expected = torch.arange(first, first + length, device=self.order.device)
        tail_only = not bool((hidden[:, :-1] & ~hidden[:, 1:]).any())
        return Span(first, last, tail_only and bool(((self.order == expected) | hidden).all()), bool(hidden.any()))

    @cached_property
    def real(self) -> Tensor:
        """True where there is a token. [B, N]"""
        return self.order >= 0

    @property
    def shape(self) -> torch.Size:
        """Rows and tokens."""
        return self.order.shape

    def known(self, span: Span) -> None:
        """Record a span that the maker of these stamps knows without measuring."""
        self.__dict__["span"] = span

    def columns(self, begin: int, end: int) -> Stamps:
        """Columns begin .. end-1 of every row."""
        part = Stamps(self.order[:, begin:end], self.position[:, begin:end])
        if self.span.run and not self.span.padded:
            part.known(Span(self.span.first + begin, self.span.first + end - 1, run=True, padded=False))
        return part

    def blank(self, x: Tensor) -> Tensor:
        """`x` with zeros at the padding, so that not even NaN garbage there can reach a real token."""
        if not self.span.padded:
            return x
        return x.masked_fill(~self.real.reshape(*self.real.shape, *(1,) * (x.dim() - 2)), 0)
