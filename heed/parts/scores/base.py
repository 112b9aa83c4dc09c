"""How well a key answers a query: score functions, and the weighted mean they lead to.

    y_i = Σ_j α_ij v_j        α_ij = exp(s_ij) / Σ exp(s_il)   for a score,    α_ij = K(u_ij) / Σ K(u_il)   for a kernel

A score says for itself how its numbers become weights (`weigh`), so `pool` is the same few lines for all of them. A
query that may look at nothing, or lies outside the support of a kernel, gets zeros, and finite gradients everywhere.
Costs below are for T queries, N keys and vectors of size d; every score holds the T·N numbers it gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...core.config import Config
from ...core.errors import ConfigError, InputError
from ...core.stamps import Stamps
from ..attention.attend import masked_softmax


class ScoreConfig(Config):
    """How to build a score function. Every score nests one."""

    @abstractmethod
    def build(self, query_size: int, key_size: int) -> Score:
        """The score of queries of one size and keys of another."""


class Score(nn.Module, ABC):
    """Compares every query with every key."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.query_size, self.key_size = query_size, key_size

    @abstractmethod
    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """[..., T, q] and [..., N, k] give [..., T, N]."""

    def asked(self, query: Tensor) -> Tensor:
        """What is made of a query by itself, before it meets any key: here, nothing. [..., q]"""
        return query

    def held(self, key: Tensor) -> Tensor:
        """What is made of a key by itself, before it is remembered: here, nothing. [..., k]"""
        return key

    def between(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """The scores of heads, whose tokens are stamped. [B, T, H, q] and [B, N, K, k] give [B, H, T, N]."""
        groups = query.shape[2] // key.shape[2]
        return self.compare(query.transpose(1, 2), key.repeat_interleave(groups, 2).transpose(1, 2))

    def weigh(self, score: Tensor, visible: Tensor | None) -> Tensor:
        """Scores to weights: every row sums to one, or is all zeros where nothing is visible."""
        return masked_softmax(score, visible)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """The score of every pair. [..., T, q] and [..., N, k] give [..., T, N]"""
        for name, tensor, size in (("queries", query, self.query_size), ("keys", key, self.key_size)):
            if tensor.dim() < 2 or tensor.shape[-1] != size:
                raise InputError(
                    f"{type(self).__name__} was built for {name} of size {size}, got shape {tuple(tensor.shape)}; "
                    f"give [..., {name}, {size}], or build it with another size"
                )
        return self.compare(query, key)

    if TYPE_CHECKING:  # nn.Module's own __call__ is untyped

        def __call__(self, query: Tensor, key: Tensor) -> Tensor: ...


class Product(Score):
    """A score that is a dot product of what is made of a query and of a key, each by itself: scale · asked(q)·held(k).

    So attention by it goes to the fused kernel, and a key is prepared once, when it is remembered.
    """

    scale = 1.0

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        score: Tensor = self.asked(query) @ self.held(key).mT
        return score if self.scale == 1.0 else score * self.scale


class Pooling(nn.Module):
    """The mean of the values, weighted by how well their keys answer the query."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Output and weights; see `pool`."""
        return pool(self.score, query, key, value, visible)


class Scale(nn.Module):
    """A positive number: fixed, or learned as its logarithm, so that no step of an optimiser can make it negative."""

    def __init__(self, value: float, *, learned: bool) -> None:
        super().__init__()
        self.fixed = value
        self.log = nn.Parameter(torch.tensor(log(value))) if learned else None

    @property
    def value(self) -> Tensor | float:
        """The number as it is now."""
        return self.fixed if self.log is None else self.log.exp()


def pool(
    score: Score, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Output [..., T, e] and weights [..., T, N] of `query` [..., T, q] over `key` [..., N, k], `value` [..., N, e].

    `visible` is boolean, [..., T or 1, N], True = may be looked at. What no query may look at is not read at all:
    it may hold anything, even NaN.
    """
    if value.dim() < 2 or value.shape[-2] != key.shape[-2]:
        raise InputError(f"key {tuple(key.shape)} and value {tuple(value.shape)} must agree in their last but one axis")
    if visible is not None:
        queries, keys = query.shape[-2], key.shape[-2]
        if visible.dtype != torch.bool or visible.shape[-2:] not in ((queries, keys), (1, keys)):
            raise InputError(
                f"visible is {visible.dtype} of shape {tuple(visible.shape)}; needed is a boolean tensor, "
                f"True = may be looked at, of shape [..., {queries} or 1, {keys}]"
            )
        seen = visible.any(-2).unsqueeze(-1)  # [..., N, 1]
        key, value = torch.where(seen, key, 0.0), torch.where(seen, value, 0.0)
    weight = score.weigh(score(query, key), visible)
    return weight @ value, weight


def max_pool(value: Tensor, visible: Tensor | None = None, queries: int = 1) -> tuple[Tensor, Tensor]:
    """Of every channel the greatest value: output [..., T, e] and shares [..., T, N] of `value` [..., N, e].

    The other old way to make one vector of many, beside the mean: no key is asked, and gradients reach the winner of a
    channel alone. A share is that of the channels in which a value won (the first, of equal ones), so that it can be
    looked at as weights can. A query that may look at nothing gets zeros.
    """
    if visible is not None and (visible.dtype != torch.bool or visible.shape[-1] != value.shape[-2]):
        raise InputError(
            f"visible is {visible.dtype} of shape {tuple(visible.shape)}; needed is a boolean tensor, True = may be "
            f"looked at, of shape [..., queries or 1, {value.shape[-2]}]"
        )
    each = value.unsqueeze(-3)  # [..., 1, N, e]
    if visible is None:
        each = each.expand(*value.shape[:-2], queries, *value.shape[-2:])
    else:
        each = torch.where(visible.unsqueeze(-1), each, -torch.inf)
    best, winner = each.max(-2)  # [..., T, e]
    won = torch.nn.functional.one_hot(winner, value.shape[-2]).to(value.dtype).mean(-2)  # [..., T, N]
    if visible is None:
        return best, won
    sees = visible.any(-1, keepdim=True)
    return torch.where(sees, best, 0.0), torch.where(sees, won, 0.0)


def valid_lengths(lengths: Tensor, queries: int, keys: int) -> Tensor:
    """What is visible when only the first `lengths` keys count, per row [B] or per query [B, T]. [B, T, N], boolean"""
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise InputError(f"valid lengths must be whole numbers, not {lengths.dtype}; they count keys, they are no mask")
    if lengths.dim() not in (1, 2) or lengths.shape[1:] not in ((), (queries,)):
        raise InputError(
            f"valid lengths have shape {tuple(lengths.shape)}; "
            f"give one number per row, [B], or one per query, [B, {queries}]"
        )
    if bool(((lengths < 0) | (lengths > keys)).any()):
        raise InputError(f"valid lengths must be 0 to {keys}, the number of keys; got {lengths.tolist()}")
    per_query = lengths[:, None].expand(-1, queries) if lengths.dim() == 1 else lengths
    return torch.arange(keys, device=lengths.device) < per_query[..., None]


def alike(what: str, query_size: int, key_size: int) -> tuple[int, int]:
    """The two sizes, which must be one."""
    if query_size != key_size:
        raise ConfigError(
            f"{what} needs queries and keys of one size, got {query_size} and {key_size}; "
            "use general or additive, which learn to compare different sizes"
        )
    return query_size, key_size
