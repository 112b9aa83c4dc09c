"""A step of iterative shrinkage and thresholding: tokens are rewritten as sparse codes, none of them negative."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.config import Number, Positive
from ...core.contract import MixerConfig, Where
from ..look import Look
from .mlp import Nothing, Positionwise, PositionwiseConfig


class Ista(Positionwise):
    """z ← relu( z + η Dᵀ(z - D z) - η λ ): one step towards a sparse code of the token in the dictionary D.

    Yu et al. 2023 (CRATE), eq. 17. It keeps the token itself, so nothing is added around it: see the wiring `unrolled`.
    `sparsity` shows which share of a token's channels is not zero. Costs O(d²) per token.
    """

    class Config(PositionwiseConfig):
        paper: ClassVar[str] = "Yu et al. 2023, White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129"

        kind: Literal["ista"] = "ista"
        step: Positive = 0.1  # η
        threshold: Number = 0.1  # λ

        def build(self, width: int) -> Ista:
            return Ista(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return cls(), cls(step=0.4, threshold=0.0)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.step, self.threshold = config.step, config.threshold
        self.dictionary = nn.Parameter(torch.empty(width, width))
        nn.init.kaiming_uniform_(self.dictionary)
        self.sparsity = Look()

    def alone(self, x: Tensor) -> Tensor:
        missed = x - F.linear(x, self.dictionary)  # what D does not explain
        return F.relu(x + self.step * (missed @ self.dictionary - self.threshold))

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        y = self.alone(x)
        self.sparsity(lambda: (y != 0).to(y.dtype).mean(-1))
        return y, state
