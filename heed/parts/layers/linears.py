"""Layers that stand where an nn.Linear stood: ternary or binary weights, four weights in a byte, a change of low rank.

A model does not know them when it is built: edits put them in from outside (`heed.weights.edits`). Whoever calls a
layer need not know either; whoever wants its matrix asks `matrix_of`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import kernels
from ...core.errors import ConfigError
from .dropout import Dropout

SMALLEST = 1e-5  # the least that is divided by
LARGEST = 127  # of 8 bits
FIELDS = 4  # weights in a byte
PIECE = 1 << 20  # weights that are rounded at once


class Whole(NamedTuple):
    """Numbers that are whole ones times a step."""

    numbers: Tensor
    step: Tensor

    @property
    def value(self) -> Tensor:
        return self.numbers * self.step


class Edited(nn.Module):
    """Stands where an nn.Linear stood."""

    in_features: int
    out_features: int
    weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Linear | Edited) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features

    @property
    @abstractmethod
    def matrix(self) -> Tensor:
        """What the input is multiplied with. [out, in]"""

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class Ternary(Edited):
    """y = x' W'ᵀ + b: weights are -1, 0 or 1 times one number, channels whole numbers of 8 bits times one per token.

        W' = β·clip( round(W / β), -1, 1 ),  β = mean|W|;     x' = γ·clip( round(x / γ), -128, 127 ),  γ = max|x| / 127

    Ma et al. 2024, BitNet b1.58. W stays in full precision and is what learns: gradients pass both roundings as if they
    were not there (Bengio et al. 2013). The product is one of small whole numbers, which float32 holds exactly up to
    131,072 inputs: it does not depend on how tokens are batched. `norm` comes before, if there is one.
    """

    def __init__(self, layer: nn.Linear, norm: nn.Module | None = None) -> None:
        super().__init__(layer)
        self.weight, self.bias, self.norm = layer.weight, layer.bias, norm

    def forward(self, x: Tensor) -> Tensor:
        return product(x if self.norm is None else self.norm(x), ternary(self.weight), self.bias)

    @property
    def matrix(self) -> Tensor:
        return ternary(self.weight).value


class Packed(Edited):
    """What `Ternary` computes, to the last bit, from two bits per weight: a sixteenth of float32.

    A byte of `codes` holds four rows: of R = ⌈out / 4⌉ rows of bytes, bits 2f and 2f + 1 of row r are weight r + f·R,
    plus one. `scale` is β. Weights are unpacked in every call, so that only one layer at a time takes room for them.
    With `scaled_bias` the bias is times β, too: so does the reference where it stores ternary weights as numbers.
    """

    codes: Tensor  # [⌈out / 4⌉, in]
    scale: Tensor  # [1]

    def __init__(self, layer: nn.Linear | Ternary, norm: nn.Module | None = None, *, scaled_bias: bool = False) -> None:
        super().__init__(layer)
        self.scaled_bias = scaled_bias
        rows, weight = -(-self.out_features // FIELDS), layer.weight.detach()
        if weight.is_meta:  # to be loaded
            codes, scale = weight.new_empty(rows, self.in_features, dtype=torch.uint8), weight.new_empty(1)
        else:
            codes, scale = packed(ternary(weight).numbers), ternary(weight).step.reshape(1)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.bias = layer.bias
        self.norm = layer.norm if isinstance(layer, Ternary) else norm

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.norm is None else self.norm(x)
        return kernels.two_bits(x, self.codes, self.scale, self.shift, self.out_features)

    @property
    def shift(self) -> Tensor | None:
        """What is added: the bias, perhaps times β."""
        return self.bias * self.scale if self.scaled_bias and self.bias is not None else self.bias

    @property
    def matrix(self) -> Tensor:
        return self._weights.value

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # there is none to set
        return _unreadable(self, self.scale)

    @property
    def _weights(self) -> Whole:
        return Whole(unpacked(self.codes, self.out_features).to(self.scale), self.scale)


class Int8(Edited):
    """y = s ⊙ t · (W' x') + b: weights are whole numbers of 8 bits times one step per row, channels of 16 per token.

        W' = round(W / s),  s = max|W_n| / 127;     x' = round(x / t),  t = max|x| / R

    R is as large as 32 bits allow for the sum (`kernels/linear.py`): rounding x costs next to nothing, and products
    are exact, however tokens are batched. A quarter of float32's bytes. Dettmers et al. 2022 round by rows, too. With
    channels of 8 bits, R = 127: many tokens are then multiplied twice as fast, and less exactly.
    """

    codes: Tensor  # [out, in]
    scale: Tensor  # [out]

    def __init__(self, layer: nn.Linear | Edited, channels: Literal[16, 8] = 16) -> None:
        super().__init__(layer)
        weight, self.channels = matrix_of(layer).detach(), channels
        if weight.is_meta:  # to be loaded
            codes, scale = weight.new_empty(weight.shape, dtype=torch.int8), weight.new_empty(len(weight))
        else:
            codes, scale = by_rows(weight)
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
        return _unreadable(self, self.scale)


class HalfSteps(nn.Module):
    """Steps in half precision, which stay so when a model becomes float32: that is exact, and what kernels read."""

    scale: Tensor

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        held = self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if (held.dtype, self.scale.dtype) == (torch.float16, torch.float32):
            self.scale = held if self.scale.device == held.device else self.scale.half()
        return self


class Grouped(HalfSteps, Edited):
    """y = t · Σ_g s_g (W'_g x'_g) + b: weights are whole numbers of 8 or 4 bits, times one step for 32 inputs.

    The formats q8_0 and q4_0 of GGUF. Steps are half precision: 8.5 or 4.5 bits per weight. Channels of a token are
    whole numbers of 16 bits, as in `Int8`.
    """

    codes: Tensor  # [out, in] of 8 bits, or [out, in / 2]
    scale: Tensor  # [out, in / 32]

    def __init__(self, layer: nn.Linear | Edited, bits: int) -> None:
        super().__init__(layer)
        if self.in_features % kernels.GROUP:
            raise ConfigError(f"{self.in_features} inputs do not divide into groups of {kernels.GROUP}; use int8")
        weight, self.bits = matrix_of(layer).detach(), bits
        if weight.is_meta:  # to be loaded
            narrow = self.in_features if bits == 8 else self.in_features // 2
            codes = weight.new_empty(len(weight), narrow, dtype=torch.int8 if bits == 8 else torch.uint8)
            scale = weight.new_empty(len(weight), self.in_features // kernels.GROUP, dtype=torch.float16)
        else:
            codes, scale = by_groups(weight, bits)
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
        return _unreadable(self, self.scale.to(torch.promote_types(self.scale.dtype, torch.float32)))


class Binary(Edited):
    """y = β·γ/Q · sign(W - mean W) q(norm x) + b,  q(x) = clip( round(x·Q/γ), 1 - Q, Q - 1 ),  β = mean|W|, γ = max|x|.

    Wang et al. 2023, BitNet, with Q = 2⁷ and sign(0) = -1. γ is that of a token, as the paper has it for inference; its
    γ of a whole batch in training would let tokens know of one another. `norm` comes before (SubLN); gradients pass.
    """

    def __init__(self, layer: nn.Linear, norm: nn.Module | None = None) -> None:
        super().__init__(layer)
        self.weight, self.bias, self.norm = layer.weight, layer.bias, norm

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.norm is None else self.norm(x)
        return product(x, binary(self.weight), self.bias, LARGEST + 1, -LARGEST)

    @property
    def matrix(self) -> Tensor:
        return binary(self.weight).value


class LowRank(Edited):
    """y = base(x) + alpha/r · B A dropout(x), with A [r, in], B [out, r] and B = 0 at first (Hu et al. 2021, LoRA).

    Costs r·(in + out) weights and as many multiplications per token, beside the layer's own.
    """

    def __init__(self, layer: nn.Linear | Edited, rank: int, scale: float, dropout: float = 0.0) -> None:
        super().__init__(layer)
        self.base, self.scale, self.dropout = layer, scale, Dropout(dropout)
        shapes = (rank, self.in_features), (self.out_features, rank)
        self.a, self.b = (nn.Parameter(layer.weight.new_empty(shape)) for shape in shapes)
        nn.init.normal_(self.a, std=self.in_features**-0.5)  # what it makes of x is about as large as x
        nn.init.zeros_(self.b)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        return y + F.linear(F.linear(self.dropout(x), self.a), self.b) * self.scale

    @property
    def change(self) -> Tensor:
        """What is added to the matrix below. [out, in]"""
        return self.b @ self.a * self.scale

    @property
    def matrix(self) -> Tensor:
        return matrix_of(self.base) + self.change

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # there is none to set
        return _unreadable(self, self.a)

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]  # that of the layer below
        return self.base.bias


def matrix_of(layer: nn.Linear | Edited) -> Tensor:
    """What a layer multiplies with, whatever it is made of. [out, in]"""
    return layer.matrix if isinstance(layer, Edited) else layer.weight


def ternary(weight: Tensor) -> Whole:
    """The weights as -1, 0 and 1, and what these are times: the mean of their magnitudes."""
    exact = weight.to(torch.promote_types(weight.dtype, torch.float32))
    mean = exact.detach().abs().mean().clamp(min=SMALLEST)
    return Whole(_rounded(exact * (1.0 / mean), -1, 1), mean)


def by_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights as whole numbers of 8 bits, and what each row of them is times. [N, K] -> [N, K], [N]"""
    return _piece_by_piece(weight, _by_rows)


def by_groups(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Weights as whole numbers of 8 or 4 bits, and what each 32 of them are times. [N, K] -> codes, [N, K / 32]

    With four bits the largest in magnitude becomes -8, the end that reaches farther, as in GGUF's q4_0.
    """
    return _piece_by_piece(weight, lambda some: _by_groups(some, bits))


def _piece_by_piece(weight: Tensor, way: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Some rows at a time: what is made on the way takes next to no room."""
    parts = [way(some.float()) for some in torch.split(weight, max(1, PIECE // weight.shape[1]))]
    codes, scale = (torch.cat(side) for side in zip(*parts, strict=True))
    return codes, scale


def _by_rows(exact: Tensor) -> tuple[Tensor, Tensor]:
    scale = (exact.abs().amax(1) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (exact / scale[:, None]).round().to(torch.int8).contiguous(), scale


def _by_groups(exact: Tensor, bits: int) -> tuple[Tensor, Tensor]:
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


def binary(weight: Tensor) -> Whole:
    """The weights as -1 and 1, by the side of their mean that they are on; and what these are times."""
    exact = weight.to(torch.promote_types(weight.dtype, torch.float32))
    held = exact.detach()
    mean = held.abs().mean().clamp(min=SMALLEST)
    signs = torch.where(held > held.mean(), 1.0, -1.0).to(held)
    return Whole(_through(exact * (1.0 / mean), signs), mean)


def eight_bits(x: Tensor, levels: int = LARGEST, low: int = -LARGEST - 1) -> Whole:
    """Every token as whole numbers, the largest of which is ±levels before it is cut to 8 bits. [..., D], [..., 1]"""
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = levels / exact.detach().abs().amax(-1, keepdim=True).clamp(min=SMALLEST)
    return Whole(_rounded(exact * scale, low, LARGEST), 1.0 / scale)


def product(x: Tensor, weights: Whole, bias: Tensor | None, levels: int = LARGEST, low: int = -LARGEST - 1) -> Tensor:
    """x' W'ᵀ + b: a product of whole numbers, then what they stand for."""
    channels = eight_bits(x, levels, low)
    y = F.linear(channels.numbers, weights.numbers.to(channels.numbers)) * (weights.step * channels.step)
    return (y if bias is None else y + bias).to(x.dtype)


def packed(whole: Tensor) -> Tensor:
    """Rows of -1, 0 and 1, four of them in a row of bytes. [out, in] -> [⌈out / 4⌉, in]"""
    rows = -(-len(whole) // FIELDS)
    codes = F.pad((whole + 1).to(torch.uint8), (0, 0, 0, rows * FIELDS - len(whole)))
    return (codes.view(FIELDS, rows, -1) << _shifts(whole.device)).sum(0, dtype=torch.uint8).contiguous()


def unpacked(codes: Tensor, rows: int) -> Tensor:
    """So many rows of -1, 0 and 1. [⌈rows / 4⌉, in] -> [rows, in]"""
    fields = (codes >> _shifts(codes.device)) & 3
    return fields.flatten(0, 1)[:rows].to(torch.int8) - 1


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(0, 2 * FIELDS, 2, dtype=torch.uint8, device=device)[:, None, None]


def _unreadable(layer: Edited, like: Tensor) -> Tensor:
    """Tells shape, precision and place of a matrix that is not there: whoever computes with it computes NaN."""
    return like.new_full((), torch.nan).expand(layer.out_features, layer.in_features)


def _rounded(x: Tensor, low: int, high: int) -> Tensor:
    return _through(x, x.detach().round().clamp_(low, high))


def _through(exact: Tensor, rounded: Tensor) -> Tensor:
    made: Tensor = _Through.apply(exact, rounded)  # type: ignore[no-untyped-call]
    return made


class _Through(torch.autograd.Function):
    """The second value with the gradient of the first: the straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, exact: Tensor, rounded: Tensor) -> Tensor:
        return rounded.view_as(rounded)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return slope, None
