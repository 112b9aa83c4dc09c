"""Clustered attention (Vyas, Katharopoulos & Fleuret 2020): similar queries share one row of attention weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.config import Count, Seed, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.spec import Spec
from ..parts.attention.lsh import drawn
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.attention.sdpa import masked_softmax
from ..parts.layers.norms import RMSNorm

Nothing: TypeAlias = "tuple[()]"


class Clustered(Headed[Nothing]):
    """Queries are clustered into C groups; the centroid of each attends to all tokens, for all members of its cluster.

        a_c = softmax_j( q̄_c·k_j / √d ),   y_i = W_o Σ_j a_cj v_j   for every i in cluster c

    Vyas et al. 2020. With `top` (their improved form) the keys of a cluster with the largest weights share their weight
    by the scores of each member itself: for j in the top k of a_c

        w_ij = ( Σ_l∈top a_cl ) · softmax_j∈top( q_i·k_j / √d ),   and w_ij = a_cj for all others,

    which is never farther from full attention than a_c (their proposition 2). Clusters come from K-means on the signs
    of random projections (`bits` of them, from the seed), in Hamming distance, beginning with tokens spread evenly
    over the text; every row and head has its own, from its own tokens. The assignment has no gradient, the centroids
    have one. Costs O(n·C·d) time and O(n·(C + k·d)) memory over n tokens; looks ahead, so it remembers nothing.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Vyas et al. 2020, Fast Transformers with Clustered Attention, arXiv 2007.04825"

        kind: Literal["clustered"] = "clustered"
        clusters: Size = 100  # C
        top: Count = 32  # keys of a cluster that its members weigh for themselves; 0 = none
        bits: Size = 31  # random projections that queries are compared by
        iterations: Size = 10  # of k-means
        seed: Seed = 0

        def build(self, width: int) -> Clustered:
            return Clustered(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(clusters=3, top=0), cls(clusters=3, top=2), cls(clusters=1, top=20, bits=4)),
                cls(clusters=5, top=3, heads=3, head_size=5, scale=0.3, bias=False, iterations=1, seed=7),
                cls(clusters=4, top=2, kv_heads=2, head_norm=RMSNorm()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.clusters, self.top = config.clusters, config.top
        self.bits, self.iterations, self.seed = config.bits, config.iterations, config.seed
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        x = where.blank(x)
        query = self.queries(x).transpose(1, 2)  # [B, H, T, d]
        key, value = (self.each_head(part).transpose(1, 2) for part in (self.keys(x), self.values(x)))
        plane = drawn(self.seed, int(self.head_size), self.bits)
        member = grouped(query, where.real, plane, self.clusters, self.iterations)  # [B, H, T]
        mean = _means(query, where.real, member, self.clusters)
        visible = where.real[:, None, None]
        weight = masked_softmax(mean @ key.mT * self.scale, visible)  # [B, H, C, N]
        if self.top:
            y, shown = self._improved(query, key, value, member, weight, visible)
        else:
            y = _taken(F.dropout(weight, self.drop) @ value, member)
            shown = None
        self.weights(lambda: (_taken(weight, member) if shown is None else shown()) * where.real[:, None, :, None])
        return where.blank(self.merge(y.transpose(1, 2))), state

    def _improved(
        self, query: Tensor, key: Tensor, value: Tensor, member: Tensor, weight: Tensor, visible: Tensor
    ) -> tuple[Tensor, Callable[[], Tensor]]:
        """The top keys of each cluster, weighed by its members. [B, H, T, e], and a function that gives all weights."""
        many = min(self.top, key.shape[2])
        best = weight.detach().masked_fill(~visible, -1).topk(many, -1).indices  # [B, H, C, k]
        mass = weight.gather(-1, best).sum(-1, keepdim=True)  # [B, H, C, 1]
        rest = weight.scatter(-1, best, 0.0)
        near = _taken(best, member)  # [B, H, T, k]
        score = (query[..., None, :] @ _picked(key, near).mT).squeeze(-2) * self.scale
        seen = visible.expand(*weight.shape[:2], 1, -1).expand(*near.shape[:3], -1).gather(-1, near)
        own = _taken(mass, member) * masked_softmax(score, seen)
        y = (F.dropout(own, self.drop)[..., None, :] @ _picked(value, near)).squeeze(-2)
        y = y + _taken(F.dropout(rest, self.drop) @ value, member)
        return y, lambda: _taken(rest, member).scatter(-1, near, own)


def grouped(query: Tensor, real: Tensor, plane: Tensor, clusters: int, iterations: int) -> Tensor:
    """Which cluster every query is in. [B, H, T, d], [B, T] and [d, bits] -> [B, H, T]

    K-means on signs: the centre of a cluster is what most of its members have, bit by bit. Counts are whole numbers, so
    nothing depends on the order of sums; of two centres equally near, the first is taken.
    """
    with torch.no_grad():
        wide = query.to(torch.promote_types(query.dtype, torch.float32))
        sign = torch.where(wide @ plane.to(wide) > 0, 1.0, -1.0).to(wide)  # [B, H, T, bits]
        tokens = real.sum(1)[:, None]
        first = torch.arange(clusters, device=real.device) * tokens // clusters  # [B, C]
        rank = (~real).byte().argsort(dim=1, stable=True)  # real tokens first
        first = rank.gather(1, first.clamp(max=max(real.shape[1] - 1, 0)))
        centre = sign.take_along_dim(first[:, None, :, None], 2)  # [B, H, C, bits]
        sign = sign * real[:, None, :, None]
        order = torch.arange(clusters, device=real.device)
        for _ in range(iterations):
            member = ((sign @ centre.mT) * clusters - order).argmax(-1)
            votes = torch.zeros_like(centre).scatter_add(2, member[..., None].expand_as(sign), sign)
            centre = torch.where(votes == 0, centre, votes.sign())
        return ((sign @ centre.mT) * clusters - order).argmax(-1)


def _means(query: Tensor, real: Tensor, member: Tensor, clusters: int) -> Tensor:
    """The mean query of every cluster; zero where it is empty. [B, H, T, d] -> [B, H, C, d]"""
    there = real[:, None].expand(member.shape).to(query.dtype)
    total = query.new_zeros(*query.shape[:2], clusters, query.shape[-1])
    total = total.scatter_add(2, member[..., None].expand_as(query), query * there[..., None])
    count = query.new_zeros(*query.shape[:2], clusters).scatter_add(2, member, there)
    return total / count.clamp(min=1)[..., None]


def _taken(of_clusters: Tensor, member: Tensor) -> Tensor:
    """What belongs to the cluster of each token. [B, H, C, *] -> [B, H, T, *]"""
    return of_clusters.take_along_dim(member[..., None], 2)


def _picked(vector: Tensor, index: Tensor) -> Tensor:
    """Vectors of the tokens that are named. [B, H, N, d] and [B, H, T, k] -> [B, H, T, k, d]"""
    flat = vector.take_along_dim(index.flatten(2)[..., None], 2)
    return flat.view(*index.shape, vector.shape[-1])
