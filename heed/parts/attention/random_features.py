"""Random features: a kernel of two vectors as the product of what each of them becomes by itself.

    K(q, k) ≈ φ(q)·φ(k),   φ positive, of m features drawn at random

A kernel gives the logarithms of its features, so that their sum can be taken at a scale at which nothing overflows
and nothing vanishes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from ...core.config import Config, OneOf, Positive


class FeatureMapConfig(Config):
    """A kernel by its features. `projection` holds a direction per feature. [m, d]"""

    paper: ClassVar[str] = "Choromanski et al. 2021, Rethinking Attention with Performers, arXiv 2009.14794"
    at_once: ClassVar[bool] = False  # whether the features of a key depend on other keys of its row

    @abstractmethod
    def queries(self, query: Tensor, projection: Tensor) -> Tensor:
        """log φ(q). [..., d] -> [..., m]"""

    @abstractmethod
    def keys(self, key: Tensor, projection: Tensor, real: Tensor) -> Tensor:
        """log φ(k); `real` tells tokens from padding. [B, N, K, d], [B, N] -> [B, N, K, m]"""


class SoftmaxKernel(FeatureMapConfig):
    """exp(q·k), without a bias: φ(x) = m^-1/2 exp( Ωx - |x|²/2 ) (the paper's Lemma 1)."""

    kind: Literal["softmax"] = "softmax"

    def queries(self, query: Tensor, projection: Tensor) -> Tensor:
        return query @ projection.mT - _half_square(query) - math.log(len(projection)) / 2

    def keys(self, key: Tensor, projection: Tensor, real: Tensor) -> Tensor:
        return self.queries(key, projection)


class ReluKernel(FeatureMapConfig):
    """φ(x) = relu(Ωx) + eps: no softmax any more, but often as good (the paper's sec. 4)."""

    kind: Literal["relu"] = "relu"
    eps: Positive = 1e-3

    def queries(self, query: Tensor, projection: Tensor) -> Tensor:
        return ((query @ projection.mT).relu() + self.eps).log()

    def keys(self, key: Tensor, projection: Tensor, real: Tensor) -> Tensor:
        return self.queries(key, projection)


class FlooredKernel(FeatureMapConfig):
    """The softmax kernel as the authors' code has it: φ(x) = m^-1/2 ( exp( Ωx - |x|²/2 - c ) + eps ).

    c is the largest Ωx of a query, and of all keys of a row and head: the floor of a key depends on the others.
    """

    kind: Literal["floored"] = "floored"
    eps: Positive = 1e-4

    at_once: ClassVar[bool] = True

    def queries(self, query: Tensor, projection: Tensor) -> Tensor:
        along = query @ projection.mT
        return self._floored(along - _half_square(query) - along.amax(-1, keepdim=True).detach(), len(projection))

    def keys(self, key: Tensor, projection: Tensor, real: Tensor) -> Tensor:
        along = key @ projection.mT
        most = along.detach().masked_fill(~real[..., None, None], float("-inf")).amax((1, 3), keepdim=True)
        return self._floored(along - _half_square(key) - most.clamp(min=torch.finfo(key.dtype).min), len(projection))

    def _floored(self, exponent: Tensor, features: int) -> Tensor:
        return (exponent.exp() + self.eps).log() - math.log(features) / 2


KERNELS: tuple[type[FeatureMapConfig], ...] = (SoftmaxKernel, ReluKernel, FlooredKernel)
AnyKernel = Annotated[FeatureMapConfig, OneOf(lambda: KERNELS)]


def orthogonal(features: int, size: int, seed: int) -> Tensor:
    """Directions as of a normal distribution, but in blocks of `size` at right angles to one another. [m, d]

    Each is as long as a vector of normal numbers, so that every one by itself is distributed like one.
    """
    draw = torch.Generator().manual_seed(seed)

    def normal(rows: int) -> Tensor:
        return torch.randn(rows, size, generator=draw, dtype=torch.float64, device="cpu")

    blocks = [_rotation(normal(size)) for _ in range(-(-features // size))]
    lengths = normal(features).square().sum(1, keepdim=True).sqrt()
    return lengths * torch.cat(blocks)[:features]


def _rotation(drawn: Tensor) -> Tensor:
    """An orthogonal matrix out of a normal one, as likely as any other: the signs that QR chooses are undone."""
    turned, triangle = torch.linalg.qr(drawn)
    rotation: Tensor = turned * triangle.diagonal().sign()
    return rotation.mT


def _half_square(x: Tensor) -> Tensor:
    return x.square().sum(-1, keepdim=True) / 2
