"""Quantised linear layers: int8 with one scale per row, or 8 and 4 bits with one scale per group of 32 (GGUF)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

import torch
from torch import Tensor, nn

from ... import kernels
from ...core.errors import ConfigError
from .linear import LinearLike, matrix_of, no_weight

LARGEST = 127  # of int8
PIECE = 1 << 20  # weights that are quantised at once


class Int8Linear(LinearLike):
    """y = s ⊙ t · (W' x') + b: int8 weights with one scale per row, int16 activations with one scale per token.

        W' = round(W / s),  s = max|W_n| / 127;     x' = round(x / t),  t = max|x| / R

    R is as large as 32 bits allow for the sum (`kernels/linear.py`): quantising x costs next to no precision, and
    products are exact, however tokens are batched. A quarter of float32's bytes. Dettmers et al. 2022 quantise by rows,
    too. With `channels` of 8 bits (W8A8), R = 127: many tokens are then multiplied twice as fast, and less exactly.
    """

    codes: Tensor  # [out, in]
    scale: Tensor  # [out]

    def __init__(self, layer: nn.Linear | LinearLike, channels: Literal[16, 8] = 16) -> None:
        super().__init__(layer)
        weight, self.channels = matrix_of(layer).detach(), channels
        if weight.is_meta:  # to be loaded
            codes, scale = weight.new_empty(weight.shape, dtype=torch.int8), weight.new_empty(len(weight))
        else:
            codes, scale = quantise_rows(weight)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        product = kernels.int8 if self.channels == 16 else kernels.w8a8
        return product(x, self.codes, self.scale, self.bias)

    @property
    def matrix(self) -> Tensor:
        return self.codes.to(self.scale) * self.scale[:, None]

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # there is none to set
        return no_weight(self.scale, self.out_features, self.in_features)


class HalfScales(nn.Module):
    """Scales in half precision, which stay so when a model becomes float32: that is exact, and what kernels read."""

    scale: Tensor

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        held = self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if (held.dtype, self.scale.dtype) == (torch.float16, torch.float32):
            self.scale = held if self.scale.device == held.device else self.scale.half()
        return self


class GroupedLinear(HalfScales, LinearLike):
    """y = t · Σ_g s_g (W'_g x'_g) + b: weights of 8 or 4 bits, one scale per group of 32 inputs.

    The formats q8_0 and q4_0 of GGUF. Scales are half precision: 8.5 or 4.5 bits per weight. Activations are int16 with
    one scale per token, as in `Int8Linear`.
    """

    codes: Tensor  # [out, in] of 8 bits, or [out, in / 2]
    scale: Tensor  # [out, in / 32]

    def __init__(self, layer: nn.Linear | LinearLike, bits: int) -> None:
        super().__init__(layer)
        if self.in_features % kernels.GROUP:
            raise ConfigError(f"{self.in_features} inputs do not divide into groups of {kernels.GROUP}; use int8")
        weight, self.bits = matrix_of(layer).detach(), bits
        if weight.is_meta:  # to be loaded
            narrow = self.in_features if bits == 8 else self.in_features // 2
            codes = weight.new_empty(len(weight), narrow, dtype=torch.int8 if bits == 8 else torch.uint8)
            scale = weight.new_empty(len(weight), self.in_features // kernels.GROUP, dtype=torch.float16)
        else:
            codes, scale = quantise_groups(weight, bits)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return kernels.grouped(x, self.codes, self.scale, self.bias)

    @property
    def matrix(self) -> Tensor:
        return kernels.matrix_of_groups(self.codes, self.scale)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # there is none to set
        exact = self.scale.to(torch.promote_types(self.scale.dtype, torch.float32))
        return no_weight(exact, self.out_features, self.in_features)


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 codes and one scale per row. [N, K] -> [N, K], [N]"""
    return _piece_by_piece(weight, _quantise_rows)


def quantise_groups(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes of 8 or 4 bits and one scale per group of 32. [N, K] -> codes, [N, K / 32]

    With four bits the largest in magnitude becomes -8, the end that reaches farther, as in GGUF's q4_0.
    """
    return _piece_by_piece(weight, lambda some: _quantise_groups(some, bits))


def _piece_by_piece(weight: Tensor, way: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Some rows at a time: what is made on the way takes next to no room."""
    parts = [way(some.float()) for some in torch.split(weight, max(1, PIECE // weight.shape[1]))]
    codes, scale = (torch.cat(side) for side in zip(*parts, strict=True))
    return codes, scale


def _quantise_rows(exact: Tensor) -> tuple[Tensor, Tensor]:
    scale = (exact.abs().amax(1) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (exact / scale[:, None]).round().to(torch.int8).contiguous(), scale


def _quantise_groups(exact: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    groups = kernels.by_group(exact.contiguous())
    if bits == 8:
        scale = (groups.abs().amax(-1) / LARGEST).half()
        return _divided(groups, scale).round().clamp(-LARGEST, LARGEST).to(torch.int8).flatten(-2), scale
    extreme = groups.gather(-1, groups.abs().argmax(-1, keepdim=True)).squeeze(-1)
    scale = (extreme / -8).half()
    codes = (_divided(groups, scale).round().clamp(-8, 7) + 8).to(torch.uint8)
    low, high = codes.chunk(2, -1)
    return (low | (high << 4)).flatten(-2), scale


def _divided(groups: Tensor, scale: Tensor) -> Tensor:
    exact = scale.float().unsqueeze(-1)
    return torch.where(exact == 0, 0.0, groups / exact)
