"""Quantised token embeddings, in the place of an nn.Embedding. Edits put them in (`heed.weights.edits`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...kernels import by_group, ungrouped
from ...kernels.abi import Weights
from .linear import no_weight
from .quantised import GroupedLinear, HalfScales, Int8Linear


class QuantisedEmbedding(HalfScales, nn.Embedding):
    """E[i] = s_i · E'_i: int8 rows with one scale each, or 8 or 4 bits with one scale per group of 32.

    Codes and scales are the very tensors of a quantised layer (`Int8Linear`, `GroupedLinear`): a head that is tied to
    its embedding holds them once. Only the rows that are looked up are dequantised.
    """

    codes: Tensor  # [tokens, width] of 8 bits, or [tokens, width / 2]
    scale: Tensor  # [tokens], or [tokens, width / 32]

    def __init__(self, layer: Int8Linear | GroupedLinear) -> None:
        nn.Module.__init__(self)  # no float weight is made
        self.num_embeddings, self.embedding_dim = layer.out_features, layer.in_features
        self.padding_idx, self.max_norm, self.norm_type = None, None, 2.0
        self.scale_grad_by_freq, self.sparse = False, False
        self.register_buffer("codes", layer.codes)
        self.register_buffer("scale", layer.scale)

    def forward(self, index: Tensor) -> Tensor:
        codes = F.embedding(index, self.codes)
        if self.grouped:
            scales = F.embedding(index, self.scale).to(self.weight.dtype).unsqueeze(-1)
            return (by_group(ungrouped(codes)).to(scales) * scales).flatten(-2)
        scales = F.embedding(index, self.scale[:, None])
        return codes.to(scales) * scales

    @property
    def grouped(self) -> bool:
        """Whether a row has one scale per group."""
        return self.scale.dim() == 2

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # there is none to set
        exact = self.scale.new_empty(0, dtype=torch.promote_types(self.scale.dtype, torch.float32))
        return no_weight(exact, self.num_embeddings, self.embedding_dim)


def stored_weights(table: nn.Embedding) -> tuple[Weights, Tensor, Tensor | None]:
    """An embedding as kernels read it: how its weights are stored, weights or codes, scales."""
    if not isinstance(table, QuantisedEmbedding):
        return Weights.FLOAT32, table.weight, None
    if not table.grouped:
        return Weights.INT8, table.codes, table.scale
    return Weights.GROUPS8 if table.codes.dtype == torch.int8 else Weights.GROUPS4, table.codes, table.scale
