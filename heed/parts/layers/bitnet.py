"""BitNet: ternary and binary weights, quantised in every call while training, and packed to two bits for use."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import kernels
from .linear import LinearLike, no_weight

SMALLEST = 1e-5  # the least that is divided by
LARGEST = 127  # of int8
PER_BYTE = 4  # ternary weights in a byte


class Quantised(NamedTuple):
    """Integer codes, held as floats, and their scale: what they stand for is codes · scale."""

    codes: Tensor
    scale: Tensor

    @property
    def value(self) -> Tensor:
        return self.codes * self.scale


class TernaryLinear(LinearLike):
    """y = x' W'ᵀ + b with weights -1, 0 or 1 times one scale, and int8 activations with one scale per token.

        W' = β·clip( round(W / β), -1, 1 ),  β = mean|W|;     x' = γ·clip( round(x / γ), -128, 127 ),  γ = max|x| / 127

    Ma et al. 2024, BitNet b1.58. W stays in full precision and is trained: gradients pass both roundings straight
    through (Bengio et al. 2013). The product is one of small integers, which float32 holds exactly up to 131,072
    inputs: it does not depend on how tokens are batched. `norm` comes before, if there is one.
    """

    def __init__(self, layer: nn.Linear, norm: nn.Module | None = None) -> None:
        super().__init__(layer)
        self.weight, self.bias, self.norm = layer.weight, layer.bias, norm

    def forward(self, x: Tensor) -> Tensor:
        return quantised_linear(x if self.norm is None else self.norm(x), quantise_ternary(self.weight), self.bias)

    @property
    def matrix(self) -> Tensor:
        return quantise_ternary(self.weight).value


class PackedTernaryLinear(LinearLike):
    """What `TernaryLinear` computes, to the last bit, from two bits per weight: a sixteenth of float32.

    A byte of `codes` holds four rows: of R = ⌈out / 4⌉ rows of bytes, bits 2f and 2f + 1 of row r are weight r + f·R,
    plus one. `scale` is β. Weights are unpacked in every call, so that only one layer at a time takes room for them.
    With `scaled_bias` the bias is times β, too: so does the reference where it stores ternary weights as numbers.
    """

    codes: Tensor  # [⌈out / 4⌉, in]
    scale: Tensor  # [1]

    def __init__(
        self, layer: nn.Linear | TernaryLinear, norm: nn.Module | None = None, *, scaled_bias: bool = False
    ) -> None:
        super().__init__(layer)
        self.scaled_bias = scaled_bias
        rows, weight = -(-self.out_features // PER_BYTE), layer.weight.detach()
        if weight.is_meta:  # to be loaded
            codes, scale = weight.new_empty(rows, self.in_features, dtype=torch.uint8), weight.new_empty(1)
        else:
            made = quantise_ternary(weight)
            codes, scale = pack_ternary(made.codes), made.scale.reshape(1)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.bias = layer.bias
        self.norm = layer.norm if isinstance(layer, TernaryLinear) else norm

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.norm is None else self.norm(x)
        return kernels.two_bits(x, self.codes, self.scale, self.shift, self.out_features)

    @property
    def shift(self) -> Tensor | None:
        """What is added: the bias, perhaps times β."""
        return self.bias * self.scale if self.scaled_bias and self.bias is not None else self.bias

    @property
    def matrix(self) -> Tensor:
        return unpack_ternary(self.codes, self.out_features).to(self.scale) * self.scale

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # there is none to set
        return no_weight(self.scale, self.out_features, self.in_features)


class BinaryLinear(LinearLike):
    """y = β·γ/Q · sign(W - mean W) q(norm x) + b,  q(x) = clip( round(x·Q/γ), 1 - Q, Q - 1 ),  β = mean|W|, γ = max|x|.

    Wang et al. 2023, BitNet, with Q = 2⁷ and sign(0) = -1. γ is that of a token, as the paper has it for inference; its
    γ of a whole batch in training would let tokens know of one another. `norm` comes before (SubLN); gradients pass
    straight through.
    """

    def __init__(self, layer: nn.Linear, norm: nn.Module | None = None) -> None:
        super().__init__(layer)
        self.weight, self.bias, self.norm = layer.weight, layer.bias, norm

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.norm is None else self.norm(x)
        return quantised_linear(x, quantise_binary(self.weight), self.bias, LARGEST + 1, -LARGEST)

    @property
    def matrix(self) -> Tensor:
        return quantise_binary(self.weight).value


def quantise_ternary(weight: Tensor) -> Quantised:
    """Weights as -1, 0 and 1; their scale is the mean of their magnitudes."""
    exact = weight.to(torch.promote_types(weight.dtype, torch.float32))
    mean = exact.detach().abs().mean().clamp(min=SMALLEST)
    return Quantised(_rounded(exact * (1.0 / mean), -1, 1), mean)


def quantise_binary(weight: Tensor) -> Quantised:
    """Weights as -1 and 1, by the side of their mean that they are on; their scale is the mean of their magnitudes."""
    exact = weight.to(torch.promote_types(weight.dtype, torch.float32))
    held = exact.detach()
    mean = held.abs().mean().clamp(min=SMALLEST)
    signs = torch.where(held > held.mean(), 1.0, -1.0).to(held)
    return Quantised(_straight_through(exact * (1.0 / mean), signs), mean)


def quantise_tokens(x: Tensor, levels: int = LARGEST, low: int = -LARGEST - 1) -> Quantised:
    """Every token as int8 codes with a scale of its own; its largest channel is ±levels before it is cut to 8 bits.

    [..., D] -> [..., D] and [..., 1]
    """
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    factor = levels / exact.detach().abs().amax(-1, keepdim=True).clamp(min=SMALLEST)
    return Quantised(_rounded(exact * factor, low, LARGEST), 1.0 / factor)


def quantised_linear(
    x: Tensor, weights: Quantised, bias: Tensor | None, levels: int = LARGEST, low: int = -LARGEST - 1
) -> Tensor:
    """x' W'ᵀ + b: a product of integer codes, then times both scales."""
    tokens = quantise_tokens(x, levels, low)
    y = F.linear(tokens.codes, weights.codes.to(tokens.codes)) * (weights.scale * tokens.scale)
    return (y if bias is None else y + bias).to(x.dtype)


def pack_ternary(codes: Tensor) -> Tensor:
    """Rows of -1, 0 and 1, four of them in a row of bytes. [out, in] -> [⌈out / 4⌉, in]"""
    rows = -(-len(codes) // PER_BYTE)
    fields = F.pad((codes + 1).to(torch.uint8), (0, 0, 0, rows * PER_BYTE - len(codes)))
    return (fields.view(PER_BYTE, rows, -1) << _shifts(codes.device)).sum(0, dtype=torch.uint8).contiguous()


def unpack_ternary(codes: Tensor, rows: int) -> Tensor:
    """So many rows of -1, 0 and 1. [⌈rows / 4⌉, in] -> [rows, in]"""
    fields = (codes >> _shifts(codes.device)) & 3
    return fields.flatten(0, 1)[:rows].to(torch.int8) - 1


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(0, 2 * PER_BYTE, 2, dtype=torch.uint8, device=device)[:, None, None]


def _rounded(x: Tensor, low: int, high: int) -> Tensor:
    return _straight_through(x, x.detach().round().clamp_(low, high))


def _straight_through(exact: Tensor, rounded: Tensor) -> Tensor:
    made: Tensor = _StraightThrough.apply(exact, rounded)  # type: ignore[no-untyped-call]
    return made


class _StraightThrough(torch.autograd.Function):
    """The second value with the gradient of the first: the straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, exact: Tensor, rounded: Tensor) -> Tensor:
        return rounded.view_as(rounded)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None
