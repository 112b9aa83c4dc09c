"""One linear layer of BitNet b1.58, recorded alone: quantised per call, from two bits, and from ternary weights."""

from __future__ import annotations

import torch
from torch import nn

from ....core.config import Size, Theirs
from ....core.errors import WeightsError
from ....parts.layers.bitnet import PackedTernaryLinear, TernaryLinear, pack_ternary, quantise_ternary
from ...families.ternary import Reciprocal, Ternaries
from ...formats.folder import INPUTS, Folder
from ...rename import Same, load
from ..inputs import Outputs, understood


class Layer(Theirs):
    """The sizes of the layer."""

    in_features: Size
    out_features: Size


class Both(nn.Module):
    """The layer in training and in use."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.online, self.packed = TernaryLinear(layer), PackedTernaryLinear(layer)


def is_layer(folder: Folder) -> bool:
    """Whether a folder of the family `bitnet` holds one layer rather than a model."""
    return "in_features" in folder.config and "num_hidden_layers" not in folder.config


def outputs(folder: Folder) -> Outputs:
    """`online`, `packed_bitlinear`, `offline_autobitlinear`; the ternary weights, and the mean that they are times."""
    theirs = understood(folder, Layer)
    width, rows = theirs.in_features, theirs.out_features
    if max((tensor.numel() for tensor in map(folder.weights.like, folder.weights)), default=0) != width * rows:
        raise WeightsError(f"{folder.path}: a layer of {width} inputs and {rows} outputs has a weight of that size")
    with torch.device("meta"):
        both = Both(nn.Linear(width, rows, bias=False)).to(folder.dtype)
    load(
        both,
        folder.weights,
        (
            Same("weight", "online.weight"),
            Ternaries("packed_weight", "packed.codes", rows, stored=True),
            Reciprocal("packed_weight_scale_divisor", "packed.scale"),
        ),
    )
    x = folder.input("input")
    if x.shape[-1:] != (width,):
        raise WeightsError(
            f"{folder.path / INPUTS}: input has the shape {list(x.shape)}; its last axis must be {width}"
        )
    numbers, mean = quantise_ternary(both.online.weight)
    made = {"online": both.online(x), "packed_bitlinear": both.packed(x)}
    both.packed.codes, both.packed.scale = pack_ternary(numbers), mean.reshape(1)
    return made | {"offline_autobitlinear": both.packed(x), "ternary": numbers, "absmean": mean.reshape(1)}
