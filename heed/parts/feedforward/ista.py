"""CRATE's feed-forward, a step of ISTA (iterative shrinkage and thresholding), and the coding rate that it lowers."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.config import Number, Positive
from ...core.contract import MixerConfig, Where
from ..look import Look
from .mlp import Nothing, Positionwise, PositionwiseConfig

PRECISION = 0.1  # ε: how far a decoded vector may lie from its own, as the authors of CRATE measure


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


def coding_rate(x: Tensor, real: Tensor | None = None, *, precision: float = PRECISION) -> Tensor:
    """R(Z) = ½ log det( I + d / (N ε²) · Zᵀ Z ) for N vectors of d channels, in nats: few if they span little.

    Ma et al. 2007; Yu et al. 2023, eq. 2. Vectors that are not `real` [..., N] do not count. [..., N, d] -> [...]
    """
    size = x.shape[-1]
    if real is not None:
        x = x.masked_fill(~real[..., None], 0)
    count = torch.full(x.shape[:-2], x.shape[-2], device=x.device) if real is None else real.sum(-1)
    share = size / (count.clamp(min=1).to(x.dtype) * precision**2)
    spread = x.mT @ x * share[..., None, None]
    rate: Tensor = 0.5 * torch.linalg.slogdet(torch.eye(size, dtype=x.dtype, device=x.device) + spread).logabsdet
    return rate


def unit(x: Tensor) -> Tensor:
    """Vectors of length one: only their directions count. [..., d]"""
    return F.normalize(x, dim=-1)
