"""Kernels of a distance: attention pooling as it was before attention (Nadaraya 1964, Watson 1964)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ...core.config import Flag, Positive
from .base import Scale, Score, ScoreConfig, alike


class Kernel(Score):
    """K(u) of the distance u = |q - k| / width: kernel regression (Nadaraya 1964, Watson 1964).

    A kernel is a weight already, so it is normalised as it is, without an exponential. Beyond its support it is zero,
    and a query with no key in reach gets zeros. T·N·d numbers exist at once.
    """

    def __init__(self, query_size: int, key_size: int, width: float = 1.0, *, learned: bool = False) -> None:
        super().__init__(*alike("a distance", query_size, key_size))
        self.width = Scale(width, learned=learned)

    @abstractmethod
    def profile(self, u: Tensor) -> Tensor:
        """K(u) for distances measured in widths; any constant factor cancels."""

    def distance(self, query: Tensor, key: Tensor) -> Tensor:
        """|q - k| / width. [..., T, N]"""
        gap = query.unsqueeze(-2) - key.unsqueeze(-3)  # [..., T, N, d]
        length: Tensor = torch.linalg.vector_norm(gap, dim=-1)
        return length / self.width.value

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return self.profile(self.distance(query, key))

    def weigh(self, score: Tensor, visible: Tensor | None) -> Tensor:
        weight = score if visible is None else score.masked_fill(~visible, 0.0)
        total = weight.sum(-1, keepdim=True)
        return weight / total.masked_fill(total == 0, 1.0)


class KernelConfig(ScoreConfig):
    """A kernel with a width, which is fixed or learned."""

    width: Positive = 1.0  # of the kernel: how far a key may be
    learned: Flag = False


class Gaussian(Kernel):
    """K(u) = exp(-u²/2), which is a softmax of -u²/2 and is computed as one: a far query does not underflow to 0/0."""

    class Config(KernelConfig):
        kind: Literal["gaussian"] = "gaussian"

        def build(self, query_size: int, key_size: int) -> Gaussian:
            return Gaussian(query_size, key_size, self.width, learned=self.learned)

    def profile(self, u: Tensor) -> Tensor:
        return torch.exp(-(u**2) / 2)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return -(self.distance(query, key) ** 2) / 2

    weigh = Score.weigh


class Boxcar(Kernel):
    """K(u) = 1 if u < 1, else 0: the mean of whatever is nearer than the width."""

    class Config(KernelConfig):
        kind: Literal["boxcar"] = "boxcar"

        @model_validator(mode="after")
        def _fixed(self) -> Self:
            if self.learned:
                raise ValueError(
                    "the width of a boxcar has no gradient, so it cannot be learned; "
                    "choose it, or use epanechnikov, triangular or gaussian"
                )
            return self

        def build(self, query_size: int, key_size: int) -> Boxcar:
            return Boxcar(query_size, key_size, self.width, learned=self.learned)

    def profile(self, u: Tensor) -> Tensor:
        return (u < 1).to(u.dtype)


class Triangular(Kernel):
    """K(u) = max(0, 1 - u). This is what the d2l book calls "epanechikov"."""

    class Config(KernelConfig):
        kind: Literal["triangular"] = "triangular"

        def build(self, query_size: int, key_size: int) -> Triangular:
            return Triangular(query_size, key_size, self.width, learned=self.learned)

    def profile(self, u: Tensor) -> Tensor:
        return (1 - u).clamp(min=0)


class Epanechnikov(Kernel):
    """K(u) = max(0, 1 - u²): of all kernels the one with the least mean squared error (Epanechnikov 1969)."""

    class Config(KernelConfig):
        kind: Literal["epanechnikov"] = "epanechnikov"

        def build(self, query_size: int, key_size: int) -> Epanechnikov:
            return Epanechnikov(query_size, key_size, self.width, learned=self.learned)

    def profile(self, u: Tensor) -> Tensor:
        return (1 - u**2).clamp(min=0)


class Constant(Kernel):
    """K(u) = 1: all keys count alike, which gives the mean. It has no width; it is the baseline of the others."""

    class Config(ScoreConfig):
        kind: Literal["constant"] = "constant"

        def build(self, query_size: int, key_size: int) -> Constant:
            return Constant(query_size, key_size)

    def profile(self, u: Tensor) -> Tensor:
        return torch.ones_like(u)
