"""Normalisations over the channels of one token."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Config, Flag, OneOf, Positive, Share
from ...core.errors import InputError
from ...core.stamps import Stamps


class NormConfig(Config):
    """How to build a norm."""

    @abstractmethod
    def build(self, width: int) -> nn.Module:
        """The norm for a stream of this width."""


class LayerNorm(NormConfig):
    """γ ⊙ (x - mean) / sqrt(var + eps) + β, with the biased variance (Ba et al. 2016)."""

    kind: Literal["layernorm"] = "layernorm"
    eps: Positive = 1e-5
    bias: Flag = True  # β is there and trained
    gain: Flag = True  # without it there is no bias, either

    def build(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, eps=self.eps, bias=self.bias, elementwise_affine=self.gain)


class RMSNorm(NormConfig):
    """γ ⊙ x / sqrt(mean(x²) + eps): no centring, no shift (Zhang & Sennrich 2019)."""

    kind: Literal["rmsnorm"] = "rmsnorm"
    eps: Positive = 1e-6
    gain: Flag = True  # γ is there and trained
    from_one: Flag = False  # the weights are γ - 1, so that they decay towards no gain at all (Gemma)

    @model_validator(mode="after")
    def _has_gain(self) -> Self:
        if self.from_one and not self.gain:
            raise ValueError("from_one says how the gain is stored; leave gain on, or from_one off")
        return self

    def build(self, width: int) -> nn.Module:
        if self.from_one:
            return FromOne(width, self.eps)
        return nn.RMSNorm(width, eps=self.eps, elementwise_affine=self.gain)


class FromOne(nn.Module):
    """An RMSNorm whose gain is one more than its weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        exact = torch.promote_types(x.dtype, torch.float32)  # in half precision 1 + w would lose most of w
        gain = 1.0 + self.weight.to(exact)
        return nn.functional.rms_norm(x.to(exact), self.weight.shape, gain, self.eps).to(x.dtype)


class GatedNorm(NormConfig):
    """γ ⊙ x / sqrt(mean(x²) + eps) ⊙ σ(w ⊙ x): what is large also lets more of itself through (RETRO-pytorch)."""

    kind: Literal["gatednorm"] = "gatednorm"
    eps: Positive = 1e-6

    def build(self, width: int) -> nn.Module:
        return _GatedNorm(width, self.eps)


class _GatedNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))  # γ
        self.gate = nn.Parameter(torch.ones(width))  # w

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self.eps) * torch.sigmoid(self.gate * x)


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


class BatchNorm(NormConfig):
    """γ ⊙ (x - mean) / sqrt(var + eps) + β, mean and variance of a channel over all real tokens of a batch.

    Ioffe & Szegedy 2015. While learning, tokens and rows are normed by one another, so that laws about rows and cuts
    hold in evaluation alone, where the running statistics stand in their place. Padding counts for neither.
    """

    kind: Literal["batchnorm"] = "batchnorm"
    eps: Positive = 1e-5
    momentum: Share = 0.1  # share of a batch in the running statistics

    def build(self, width: int) -> nn.Module:
        return OverTokens(width, self.eps, self.momentum)


class OverTokens(nn.Module):
    """A norm over the tokens of a batch. Which of them are real it is told before it is called."""

    def __init__(self, width: int, eps: float, momentum: float) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.mean: Tensor
        self.variance: Tensor
        self.real: Tensor | None = None  # [B, T]; None: all of them

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self._measured(x) if self.training else (self.mean, self.variance)
        return self.weight * (x - mean) * torch.rsqrt(variance + self.eps) + self.bias

    def _measured(self, x: Tensor) -> tuple[Tensor, Tensor]:
        some = x.flatten(0, -2) if self.real is None else x[self.real]  # [tokens, D]
        if len(some) < 2:
            raise InputError(
                f"batch norm learns from the spread of a batch, which holds {len(some)} token; give it two or more, or "
                "call model.eval()"
            )
        variance, mean = torch.var_mean(some, 0, correction=0)
        with torch.no_grad():  # the unbiased variance is what is kept, as the paper has it
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance * (len(some) / (len(some) - 1)), self.momentum)
        return mean, variance


def tell(norms: Iterable[nn.Module], where: Stamps) -> None:
    """Norms over tokens learn which tokens are real."""
    for norm in norms:
        if isinstance(norm, OverTokens):
            norm.real = where.real if where.span.padded else None


NORMS: tuple[type[NormConfig], ...] = (LayerNorm, RMSNorm, GatedNorm, StdNorm)
STACK_NORMS: tuple[type[NormConfig], ...] = (*NORMS, BatchNorm)  # a stack says which tokens are padding
AnyNorm = Annotated[NormConfig, OneOf(lambda: NORMS)]
AnyStackNorm = Annotated[NormConfig, OneOf(lambda: STACK_NORMS)]
