"""LoRA: a frozen layer and a trainable update of low rank beside it (Hu et al. 2021)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .dropout import Dropout
from .linear import LinearLike, matrix_of, no_weight


class LoraLinear(LinearLike):
    """y = base(x) + alpha/r · B A dropout(x), with A [r, in], B [out, r] and B = 0 at first (Hu et al. 2021, LoRA).

    Costs r·(in + out) weights and as many multiplications per token, beside the layer's own.
    """

    def __init__(self, layer: nn.Linear | LinearLike, rank: int, scale: float, dropout: float = 0.0) -> None:
        super().__init__(layer)
        self.base, self.scale, self.dropout = layer, scale, Dropout(dropout)
        shapes = (rank, self.in_features), (self.out_features, rank)
        self.a, self.b = (nn.Parameter(layer.weight.new_empty(shape)) for shape in shapes)
        nn.init.normal_(self.a, std=self.in_features**-0.5)  # A x is about as large as x
        nn.init.zeros_(self.b)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        return y + F.linear(F.linear(self.dropout(x), self.a), self.b) * self.scale

    @property
    def change(self) -> Tensor:
        """The update of the base weight. [out, in]"""
        return self.b @ self.a * self.scale

    @property
    def matrix(self) -> Tensor:
        return matrix_of(self.base) + self.change

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # there is none to set
        return no_weight(self.a, self.out_features, self.in_features)

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]  # that of the base layer
        return self.base.bias
