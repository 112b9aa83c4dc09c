"""Normalisations over the channels of one token."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from ..core.config import Config, Flag, OneOf, Positive


class NormConfig(Config):
    """How to build a norm."""

    @abstractmethod
    def build(self, width: int) -> nn.Module:
        """The norm for a stream of this width."""


class LayerNorm(NormConfig):
    """γ ⊙ (x - mean) / sqrt(var + eps) + β, with the biased variance (Ba et al. 2016)."""

    kind: Literal["layernorm"] = "layernorm"
    eps: Positive = 1e-5
    bias: Flag = True

    def build(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, eps=self.eps, bias=self.bias)


class RMSNorm(NormConfig):
    """γ ⊙ x / sqrt(mean(x²) + eps): no centring, no shift (Zhang & Sennrich 2019)."""

    kind: Literal["rmsnorm"] = "rmsnorm"
    eps: Positive = 1e-6
    gain: Flag = True

    def build(self, width: int) -> nn.Module:
        return nn.RMSNorm(width, eps=self.eps, elementwise_affine=self.gain)


class StdNorm(NormConfig):
    """γ ⊙ (x - mean) / (std + eps) + β, with the unbiased deviation: the norm of the Annotated Transformer."""

    kind: Literal["stdnorm"] = "stdnorm"
    eps: Positive = 1e-6

    def build(self, width: int) -> nn.Module:
        return _StdNorm(width, self.eps)


class _StdNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred / (x.std(-1, keepdim=True) + self.eps) + self.bias


NORMS: tuple[type[NormConfig], ...] = (LayerNorm, RMSNorm, StdNorm)
AnyNorm = Annotated[NormConfig, OneOf(lambda: NORMS)]
