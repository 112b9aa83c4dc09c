"""Weights of one or two bits: BitNet and BitNet b1.58, in training and packed."""

from __future__ import annotations

from typing import Literal

from torch import nn

from ...core.config import Flag
from ...parts.layers.bitnet import BinaryLinear, PackedTernaryLinear, TernaryLinear
from ...parts.layers.norms import AnyNorm, LayerNorm
from .base import Layer, Patterns, Swap, plain

BLOCKS = ("*blocks.*",)  # embeddings and heads stay as they are


class BitLinear(Swap):
    """Weights are -1, 0 or 1, activations have 8 bits, both quantised in every call: BitNet b1.58 (Ma et al. 2024).

    A model learns so from the beginning, or goes on from what it has learnt; `Packed` then stores it.
    """

    kind: Literal["bitlinear"] = "bitlinear"
    on: Patterns = BLOCKS
    norm: AnyNorm | None = None  # of the channels, before they are quantised

    def swapped(self, name: str, layer: Layer) -> nn.Module:
        whole = plain(name, layer, "BitLinear")
        return TernaryLinear(whole, normed(self.norm, whole))


class BitLinearV1(Swap):
    """Weights are -1 or 1, channels have 8 bits and are normalised before: the first BitNet (Wang et al. 2023)."""

    kind: Literal["bitlinear_v1"] = "bitlinear_v1"
    on: Patterns = BLOCKS
    norm: AnyNorm | None = LayerNorm(gain=False, bias=False)  # SubLN

    def swapped(self, name: str, layer: Layer) -> nn.Module:
        whole = plain(name, layer, "BitLinearV1")
        return BinaryLinear(whole, normed(self.norm, whole))


class Packed(Swap):
    """Ternary weights, four of them in a byte: what BitLinear computes, to the last bit, in a sixteenth of the room.

    Layers that BitLinear made are stored as they are, others are quantised first. What is packed does not learn.
    """

    kind: Literal["packed"] = "packed"
    on: Patterns = BLOCKS
    norm: AnyNorm | None = None  # of a layer that BitLinear did not make
    scaled_bias: Flag = False  # what is stored is divided by the scale of the weights (transformers, offline)

    def swapped(self, name: str, layer: Layer) -> nn.Module:
        whole = layer if isinstance(layer, TernaryLinear) else plain(name, layer, "Packed")
        norm = None if isinstance(whole, TernaryLinear) else normed(self.norm, whole)
        return PackedTernaryLinear(whole, norm, scaled_bias=self.scaled_bias).requires_grad_(False)


def normed(norm: AnyNorm | None, layer: nn.Linear) -> nn.Module | None:
    """A norm of what a layer is given, in its place and precision."""
    return None if norm is None else norm.build(layer.in_features).to(layer.weight.device, layer.weight.dtype)
