"""Tables of tokens in few bits, which stand where an nn.Embedding stood. Edits put them in (`heed.weights.edits`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...kernels import by_group, ungrouped
from ...kernels.abi import Weights
from .linears import Grouped, HalfSteps, Int8


class Rounded(HalfSteps, nn.Embedding):
    """E[i] = s_i · E'_i: rows are whole numbers of 8 bits times one step, or of 8 or 4 bits times one per 32 of them.

    Codes and steps are those of a layer of few bits (`Int8`, `Grouped`), and the very same tensors: a head that is tied
    to its table holds them once. A row is looked up first and made numbers of then; nothing else of the table is.
    """

    codes: Tensor  # [tokens, width] of 8 bits, or [tokens, width / 2]
    scale: Tensor  # [tokens], or [tokens, width / 32]

    def __init__(self, layer: Int8 | Grouped) -> None:
        nn.Module.__init__(self)  # a table of numbers is not made
        self.num_embeddings, self.embedding_dim = layer.out_features, layer.in_features
        self.padding_idx, self.max_norm, self.norm_type = None, None, 2.0
        self.scale_grad_by_freq, self.sparse = False, False
        self.register_buffer("codes", layer.codes)
        self.register_buffer("scale", layer.scale)

    def forward(self, index: Tensor) -> Tensor:
        codes = F.embedding(index, self.codes)
        if self.grouped:
            steps = F.embedding(index, self.scale).to(self.weight.dtype).unsqueeze(-1)
            return (by_group(ungrouped(codes)).to(steps) * steps).flatten(-2)
        steps = F.embedding(index, self.scale[:, None])
        return codes.to(steps) * steps

    @property
    def grouped(self) -> bool:
        """Whether a row has many steps."""
        return self.scale.dim() == 2

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # there is none to set
        """Tells shape, precision and place of numbers that are not there: whoever computes with them computes NaN."""
        nothing = torch.full((), torch.nan, dtype=torch.promote_types(self.scale.dtype, torch.float32))
        return nothing.to(self.scale.device).expand(self.num_embeddings, self.embedding_dim)


def as_read(table: nn.Embedding) -> tuple[Weights, Tensor, Tensor | None]:
    """A table as kernels read it: how it is held, its numbers or codes, its steps."""
    if not isinstance(table, Rounded):
        return Weights.FLOAT32, table.weight, None
    if not table.grouped:
        return Weights.INT8, table.codes, table.scale
    return Weights.GROUPS8 if table.codes.dtype == torch.int8 else Weights.GROUPS4, table.codes, table.scale
