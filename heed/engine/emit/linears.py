"""Weights of linear layers as kernels read them: float32, int8, groups of 8 or 4 bits, ternary.

Each gives the matrix, and the register that it is multiplied with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...kernels.abi import Matrix, Weights
from ...kernels.linear import matrix
from ..program import must

if TYPE_CHECKING:
    from ...parts.layers.bitnet import PackedTernaryLinear
    from ...parts.layers.linear import LinearLike
    from ...parts.layers.quantised import GroupedLinear, Int8Linear
    from .emitter import Emitter


def plain(e: Emitter, layer: nn.Linear, source: int) -> tuple[Matrix, int]:
    """A matrix of float32, as steps or passes read it."""
    bias: Tensor | None = layer.bias
    must(all(tensor is None or tensor.dtype == torch.float32 for tensor in (layer.weight, bias)), layer, "not float32")
    return e.float32(layer), source


def int8(e: Emitter, layer: Int8Linear, source: int) -> tuple[Matrix, int]:
    """8 bits by rows; tokens of 16 or of 8 bits."""
    kind = Weights.INT8 if layer.channels == 16 else Weights.W8A8
    return _quantised(e, layer, kind, layer.codes, layer.scale, layer.bias), source


def grouped(e: Emitter, layer: GroupedLinear, source: int) -> tuple[Matrix, int]:
    """8 or 4 bits, a scale per group of 32."""
    kind = Weights.GROUPS8 if layer.bits == 8 else Weights.GROUPS4
    return _quantised(e, layer, kind, layer.codes, layer.scale, layer.bias), source


def ternary(e: Emitter, layer: PackedTernaryLinear, source: int) -> tuple[Matrix, int]:
    """-1, 0 and 1 in two bits; tokens are normed before, if the layer has a norm."""
    made = _quantised(e, layer, Weights.TERNARY, layer.codes, layer.scale, layer.shift)
    if layer.norm is None:
        return made, source
    normed = e.builder.register("quantised", layer.in_features)
    e.norm(layer.norm, source, normed)
    return made, normed


def _quantised(
    e: Emitter, layer: LinearLike, kind: Weights, codes: Tensor, scale: Tensor, bias: Tensor | None
) -> Matrix:
    must(bias is None or bias.dtype == torch.float32, layer, "a bias that is not float32")
    for tensor in (codes, scale, bias):
        e.builder.keep(tensor)
    return matrix(kind, codes, scale, bias, layer.out_features, layer.in_features)
