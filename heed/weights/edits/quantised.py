"""Weights of 8 or 4 bits, for models that have learnt: a quarter or an eighth of float32's bytes, and of their time."""

from __future__ import annotations

from typing import Literal, TypeAlias

from torch import nn

from ...kernels import GROUP
from ...parts import linears
from .base import Layer, Swap

Bits: TypeAlias = Literal["int8", "int4"]


class Quantised(Swap):
    """Matrices of few bits: "int8" has a step for every row, "int4" one for every 32 weights.

    A layer that is more than a matrix and a bias stays as it is, and so does, with "int4", one whose inputs do not
    divide by 32. What is quantised does not learn. `heed.load(path, quantise="int8")` does it as a checkpoint is read.
    """

    kind: Literal["quantised"] = "quantised"
    bits: Bits = "int8"

    def swapped(self, name: str, layer: Layer) -> nn.Module:
        if type(layer) is not nn.Linear or (self.bits == "int4" and layer.in_features % GROUP):
            return layer
        made = linears.Int8(layer) if self.bits == "int8" else linears.Grouped(layer, bits=4)
        return made.requires_grad_(False)
