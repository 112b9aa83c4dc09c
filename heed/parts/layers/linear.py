"""What stands in for an nn.Linear: the base of quantised, BitNet and LoRA layers, and the dense weight of any of them.

A model is built of plain nn.Linear layers; edits swap them from outside (`heed.weights.edits`). Code that calls a layer
need not know; code that reads its weight asks `matrix_of`.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn


class LinearLike(nn.Module):
    """A layer in the place of an nn.Linear."""

    in_features: int
    out_features: int
    weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Linear | LinearLike) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features

    @property
    @abstractmethod
    def matrix(self) -> Tensor:
        """The dense weight that it computes with. [out, in]"""

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def matrix_of(layer: nn.Linear | LinearLike) -> Tensor:
    """The dense weight of a layer, dequantised and with adapters added where there are any. [out, in]"""
    return layer.matrix if isinstance(layer, LinearLike) else layer.weight


def no_weight(like: Tensor, rows: int, columns: int) -> Tensor:
    """The `weight` of a layer that holds none: it tells shape, dtype and device; to compute with it gives NaN."""
    return like.new_full((), torch.nan).expand(rows, columns)
