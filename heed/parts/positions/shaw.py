"""Relative positions as vectors that are looked up (Shaw et al. 2018): of keys, and of values as well."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from ...core.config import Size
from ...core.stamps import Stamps
from ..attention.sdpa import Term
from .base import How, Relates, RelativeConfig, Takes, gaps


class ShawConfig(RelativeConfig):
    """How far distances are told apart."""

    how: ClassVar[How] = "scores"
    paper: ClassVar[str] = "Shaw et al. 2018, arXiv 1803.02155"
    distance: Size = 16  # k: beyond it, on either side, all are alike

    @classmethod
    def samples(cls) -> tuple[Self, ...]:
        return cls(), cls(distance=2)


class Shaw(Relates):
    """A vector for each distance, added to the key (Shaw et al. 2018, eq. 4): term_ij = q_i·a[clip(j - i)] / √d.

    The distances -k ... k have a vector each, which all heads share; what is farther counts as k. No vector is added to
    a remembered key: a query is compared with the 2k + 1 vectors, and every pair looks its product up.
    """

    class Config(ShawConfig):
        kind: Literal["shaw"] = "shaw"

        def build(self, heads: int, size: int) -> Shaw:
            return Shaw(self, size)

    def __init__(self, config: ShawConfig, size: int) -> None:
        super().__init__()
        self.farthest, self.scale = config.distance, float(size**-0.5)
        self.table = nn.Parameter(torch.empty(2 * config.distance + 1, size))
        nn.init.xavier_uniform_(self.table)

    @property
    def bias(self) -> Term:
        return self.term

    def term(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """q_i·a[clip(j - i)] / √d. [B, H, T, N]"""
        product = torch.einsum("bthd,gd->bhtg", query, self.table.to(query.dtype)) * self.scale
        return product.gather(-1, self.index(where, seen)[:, None].expand(*product.shape[:3], -1))

    def index(self, where: Stamps, seen: Stamps) -> Tensor:
        """Which vector a pair has. [B|1, T, N]"""
        return gaps(where, seen).neg().clamp(-self.farthest, self.farthest) + self.farthest


class ShawValues(Shaw, Takes):
    """A vector for each distance, added to the key, and another one to the value (Shaw et al. 2018, eq. 3 and 4).

        y_i = Σ_j α_ij (v_j + b[clip(j - i)])

    What a token takes of places is Σ_g b[g] · (the weights at distance g): no value is copied. All weights are held.
    """

    class Config(ShawConfig):
        kind: Literal["shaw_values"] = "shaw_values"

        def build(self, heads: int, size: int) -> ShawValues:
            return ShawValues(self, size)

    def __init__(self, config: ShawConfig, size: int) -> None:
        super().__init__(config, size)
        self.values = nn.Parameter(torch.empty_like(self.table))
        nn.init.xavier_uniform_(self.values)

    def taken(self, weight: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        index = self.index(where, seen)[:, None].expand_as(weight)
        share = weight.new_zeros(*weight.shape[:3], len(self.values)).scatter_add(
            -1, index, weight
        )  # [B, H, T, 2k + 1]
        return torch.einsum("bhtg,gd->bthd", share, self.values.to(weight.dtype))
