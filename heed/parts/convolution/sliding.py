"""Kernels that slide over tokens: what all convolutions along a sequence share.

Who stands beside whom is told by orders, so a row that goes on after a cut, a ring that wrapped and a ragged batch are
all the same to a kernel. Zeros stand before the first token, after the last one, and where an order is left out.
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor

from ...core.config import Flag, Size
from ...core.contract import Mixer, MixerConfig, Reach, Where
from ...core.spec import Dim, Entries, Slot, Spec
from ...core.stamps import Stamps
from ...core.state import Log, Seen, remember

FEW = 8  # taps up to which torch's own gradient is faster than that of a band; measured on a CPU, 256 channels
BLOCK = 32  # tokens of a block of a band; measured with kernels of 3 to 31


class SlidingConfig(MixerConfig):
    """How wide the kernel is, and whether it looks ahead."""

    kernel: Size = 3  # taps
    causal: Flag = True  # else the kernel is centred: as many tokens ahead as behind; then it does not stream

    @model_validator(mode="after")
    def _centred(self) -> Self:
        if not self.causal and self.kernel % 2 == 0:
            raise ValueError(f"a kernel of {self.kernel} taps has no middle; use an odd one, or causal = true")
        return self


class Sliding(Mixer[Log]):
    """A mixer whose kernel slides over something that every token has: it remembers that of the last tokens."""

    def __init__(self, config: SlidingConfig, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.kernel, self.dilation, self.width = config.kernel, dilation, Dim("width", width)
        far = (config.kernel - 1) * dilation
        self.reach = Reach(far, 0) if config.causal else Reach(far // 2, far // 2)

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        name = "(kernel - 1)" if self.dilation == 1 else "(kernel - 1)·dilation"
        weight = next(self.parameters())
        return Slot(((self.width,),), Entries(each=1, cap=Dim(name, self.reach.back or 0)), weight.dtype)

    def line(self, value: Tensor, where: Where, state: Log | None) -> tuple[Line, Log | None]:
        """What the kernel slides over in this call, and what is kept. [B, T, width], zeros at the padding"""
        seen, state = remember(state, where, value)
        return Line(where, seen, self.reach.back or 0, self.reach.ahead or 0), state


class Line:
    """What a call sees, side by side by order: from `back` before its first token to `ahead` after its last one."""

    def __init__(self, where: Stamps, seen: Seen, back: int, ahead: int) -> None:
        self.where, self.seen, self.back, self.ahead = where, seen, back, ahead
        self.straight = seen.span.run  # known without looking: columns are orders
        self.before = seen.shape[1] - where.shape[1]  # columns of what was remembered, if they come first

    @cached_property
    def values(self) -> Tensor:
        """[B, back + G + ahead, ...] where G are the orders from the first token of a call to the last one."""
        return self._put(self.seen.parts[0])

    def filled(self, places: int, blank: Tensor) -> Tensor:
        """The same where each of the orders 0 .. places-1 that has no token has what a `blank` one would have. [...]"""
        there = self._put(self.seen.real)
        order = self._first[:, None] - self.back + torch.arange(there.shape[1], device=there.device)
        lacking = ~there & (order >= 0) & (order < places)
        return torch.where(lacking.reshape(*lacking.shape, *(1,) * blank.dim()), blank, self.values)

    def spread(self, x: Tensor) -> Tensor:
        """What each token of the call has, at its place. [B, T, ...] -> [B, G, ...]"""
        return x if self.straight else _placed(x, self.where, self._first, self._extent)

    def take(self, y: Tensor) -> Tensor:
        """The way back. [B, G, ...] -> [B, T, ...]"""
        if self.straight:
            return y
        index = (self.where.order - self._first[:, None]).clamp(min=0)  # padding gets what is another token's
        return y.take_along_dim(index.reshape(*index.shape, *(1,) * (y.dim() - 2)), 1)

    def _put(self, x: Tensor) -> Tensor:
        if not self.straight:
            return _placed(x, self.seen, self._first - self.back, self.back + self._extent + self.ahead)
        held = min(self.before, self.back)
        return F.pad(x[:, self.before - held :], (0, 0) * (x.dim() - 2) + (self.back - held, self.ahead))

    @cached_property
    def _first(self) -> Tensor:
        """The order of each row's first token in this call. [B], or [1] where rows are alike"""
        order = self.where.order
        if self.straight:
            return torch.full((1,), self.seen.span.first + self.before, device=order.device)
        found = order.masked_fill(~self.where.real, torch.iinfo(order.dtype).max).amin(1)
        return torch.where(self.where.real.any(1), found, 0)

    @cached_property
    def _extent(self) -> int:
        """Orders from the first to the last token of a call, in the row that has most."""
        if self.where.shape[1] == 1:
            return 1
        return max(1, int((self.where.order.amax(1) - self._first).max()) + 1)


def depthwise(line: Tensor, taps: Tensor, dilation: int = 1) -> Tensor:
    """y_ic = Σ_k taps[h(c), k] · line[i + k·dilation, c], where head h has consecutive channels.

    [B, L, C], [H, K] -> [B, L - (K - 1)·dilation, C]
    """
    channels, (heads, kernel) = line.shape[2], taps.shape
    learns = torch.is_grad_enabled() and (line.requires_grad or taps.requires_grad)
    if learns and kernel > FEW and dilation == 1 and heads < channels:
        block = min(BLOCK, line.shape[1] - kernel + 1)
        blocks = _blocks(line, kernel, block, heads)  # [B, n, H, R, block + K - 1]
        band = _band(taps[:, None].expand(heads, block, kernel))  # [H, block, block + K - 1]
        y = torch.einsum("bnhrs,hts->bnthr", blocks, band)
        return y.flatten(3).flatten(1, 2)[:, : line.shape[1] - kernel + 1]
    every = taps.repeat_interleave(channels // heads, 0)[:, None, None]  # [C, 1, 1, K]
    # As an image of one row whose channels are innermost in memory: torch then copies nothing.
    return F.conv2d(line.mT[:, :, None], every, groups=channels, dilation=(1, dilation)).squeeze(2).mT


def dynamic(line: Tensor, kernels: Tensor) -> Tensor:
    """y_ic = Σ_k kernels[i, h(c), k] · line[i + k, c], every token with a kernel of its own.

    [B, G + K - 1, C], [B, G, H, K] -> [B, G, C]. Block by block, a band of kernels times what it slides over: a token
    costs two kernels or so of memory, and nothing is copied once for each tap.
    """
    rows, tokens, heads, kernel = kernels.shape
    block = min(BLOCK, tokens)
    lacking = -tokens % block
    kernels = F.pad(kernels, (0, 0, 0, 0, 0, lacking))
    kernels = torch.unflatten(kernels, 1, (-1, block)).transpose(2, 3)  # [B, n, H, block, K]
    y = _band(kernels) @ _blocks(line, kernel, block, heads).mT  # [B, n, H, block, R]
    return y.transpose(2, 3).reshape(rows, tokens + lacking, -1)[:, :tokens]


def _blocks(line: Tensor, kernel: int, block: int, heads: int) -> Tensor:
    """What each block of tokens sees, by heads. [B, L, C] -> [B, n, H, C / H, block + K - 1]"""
    lacking = -(line.shape[1] - kernel + 1) % block
    return torch.unflatten(F.pad(line, (0, 0, 0, lacking)).unfold(1, block + kernel - 1, block), 2, (heads, -1))


def _band(kernels: Tensor) -> Tensor:
    """Each kernel one place further to the right than the one above it. [..., block, K] -> [..., block, block + K - 1]

    Rows of block + K numbers, read as rows of one number less, move by one from row to row.
    """
    block, kernel = kernels.shape[-2:]
    wide = block + kernel - 1
    return torch.unflatten(F.pad(kernels, (0, block)).flatten(-2)[..., : block * wide], -1, (block, wide))


def _placed(x: Tensor, stamps: Stamps, first: Tensor, length: int) -> Tensor:
    """Entries of the orders first .. first + length - 1 at their places, zeros elsewhere.

    [B, N, ...] -> [B, length, ...]
    """
    place = stamps.order - first[:, None]
    place = torch.where(stamps.real & (place >= 0) & (place < length), place, length)
    index = place.reshape(*place.shape, *(1,) * (x.dim() - 2)).expand_as(x)
    return x.new_zeros(x.shape[0], length + 1, *x.shape[2:]).scatter(1, index, x)[:, :length]
