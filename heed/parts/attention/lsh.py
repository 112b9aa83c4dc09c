"""Locality-sensitive hashing by random rotations: near vectors fall into the same bucket (Andoni et al. 2015).

    h(x) = argmax( [xR; -xR] ),   R a random matrix

Attention then needs to look at the pairs that share a bucket only (`bucketed`): tokens are sorted by bucket, and every
block of queries is put beside just those tiles of keys that its buckets span.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.stamps import Stamps

BLOCK = 32  # queries per block, and keys per tile
FEW = 4  # queries that are compared with every key one by one, without sorting


@lru_cache(maxsize=64)
def drawn(seed: int, *shape: int) -> Tensor:
    """Random numbers that depend on nothing but the seed and the shape, in float32 on the CPU."""
    with torch.inference_mode(False), torch.device("cpu"):
        return torch.randn(shape, dtype=torch.float32, generator=torch.Generator().manual_seed(seed))


def hashed(x: Tensor, rotation: Tensor, factors: tuple[int, ...]) -> Tensor:
    """The bucket of every vector in every round. [B, T, H, d] and [H, d, rounds, Σ factors / 2] -> [B, T, H, rounds]

    With several factors a bucket is one bucket of each, like the digits of a number. Which bucket it is has no
    gradient, and is found in float32 at least: a bucket must not depend on how a number is rounded.
    """
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    turned = torch.einsum("bthd,hdrk->bthrk", x, rotation.to(x))
    bucket = torch.zeros(turned.shape[:-1], dtype=torch.long, device=x.device)
    base = 1
    for part, factor in zip(torch.split(turned, [factor // 2 for factor in factors], -1), factors, strict=True):
        bucket = bucket + base * torch.cat((part, -part), -1).argmax(-1)
        base *= factor
    return bucket


@dataclass(frozen=True, eq=False)
class Asking:
    """Queries and keys with their buckets in every round, and their stamps."""

    query: Tensor  # [B, T, H, d]
    key: Tensor  # [B, N, H, d]
    value: Tensor  # [B, N, H, e]
    query_bucket: Tensor  # [B, T, H, rounds]
    key_bucket: Tensor  # [B, N, H, rounds]
    where: Stamps
    seen: Stamps
    causal: bool
    buckets: int  # in all

    def visible(self) -> Tensor:
        """Which key shares a bucket with which query in some round, itself left out. [B, T, N, H]"""
        shared = (self.query_bucket[:, :, None] == self.key_bucket[:, None]).any(-1)
        query, key = self.where.order[:, :, None], self.seen.order[:, None]
        before = key < query if self.causal else key != query
        return shared & (before & (query >= 0) & (key >= 0))[..., None]


def bucketed(ask: Asking, own: Tensor, dropout: float = 0.0) -> Tensor:
    """y_i = Σ_j softmax_j( q_i·k_j | j in a bucket of i, j ≠ i ) v_j; its `own` if there is none. [B, T, H, e]"""
    rows, tokens, heads, size = own.shape
    pairs = _one_by_one(ask) if tokens <= FEW else _tiled(ask)
    count, asker = rows * tokens * heads, pairs.asker.flatten()
    best = pairs.score.new_full((count,), -torch.inf)
    best = best.scatter_reduce(0, asker, pairs.score.detach().amax(-1).flatten(), "amax")
    best = best.masked_fill(best.isneginf(), 0)  # a token alone has nothing to be shifted
    weight = (pairs.score - best[pairs.asker][..., None]).exp() * pairs.share
    total = weight.new_zeros(count).index_add(0, asker, weight.sum(-1).flatten())
    weight = F.dropout(weight, dropout) if dropout else weight
    mixed = own.new_zeros(count, size).index_add(0, asker, (weight @ pairs.value).flatten(0, 1))
    alone = total == 0
    y = mixed / total.masked_fill(alone, 1)[:, None]
    return torch.where(alone[:, None], own.reshape(count, size), y).view_as(own)


@dataclass(frozen=True, eq=False)
class BucketPairs:
    """Queries beside keys, some of each at a time."""

    asker: Tensor  # [P, q] the number of a query, over rows, tokens and heads
    score: Tensor  # [P, q, k] -inf where nothing is seen
    share: Tensor  # [P, q, k] how much of a pair this is: one that meets in n rounds is there n times
    value: Tensor  # [P, k, e]


def _one_by_one(ask: Asking) -> BucketPairs:
    """Every pair that shares a bucket, by itself."""
    tokens, heads = ask.query.shape[1:3]
    row, query, key, head = ask.visible().nonzero(as_tuple=True)
    score = (ask.query[row, query, head] * ask.key[row, key, head]).sum(-1)[:, None, None]
    asker = ((row * tokens + query) * heads + head)[:, None]
    return BucketPairs(asker, score, torch.ones_like(score), ask.value[row, key, head][:, None])


def _tiled(ask: Asking) -> BucketPairs:
    """Blocks of queries beside tiles of keys, both sorted by bucket."""
    tokens, heads, rounds = ask.query_bucket.shape[1:]
    tiles = _tiles(ask)
    row, head, query, key = tiles.row, tiles.head, tiles.query, tiles.key
    score = ask.query[row, query, head] @ ask.key[row, key, head].mT  # [P, q, k]
    one, other = ask.query_bucket[row, query, head], ask.key_bucket[row, key, head]  # [P, ., rounds]
    meets = torch.zeros_like(score)
    for index in range(rounds):
        meets = meets + (one[..., index][:, :, None] == other[..., index][:, None])
    turn = tiles.turn[..., None]
    here = one.take_along_dim(turn, -1) == other.take_along_dim(turn, -1).mT
    asks, stands = ask.where.order[row, query][..., None], ask.seen.order[row, key][:, None]
    before = stands < asks if ask.causal else stands != asks
    visible = here & before & (asks >= 0) & (stands >= 0) & tiles.fresh[..., None] & tiles.there[:, None]
    asker = (row * tokens + query) * heads + head
    share = visible / meets.clamp(min=1)
    return BucketPairs(asker, score.masked_fill(~visible, -torch.inf), share, ask.value[row, key, head])


@dataclass(frozen=True, eq=False)
class Tiles:
    """Which queries meet which keys: blocks and tiles of one row, one head and one round each."""

    row: Tensor  # [P, 1]
    head: Tensor  # [P, 1]
    turn: Tensor  # [P, 1] the round
    query: Tensor  # [P, q] columns
    key: Tensor  # [P, k] columns
    fresh: Tensor  # [P, q] False where the last query is named again to fill a block
    there: Tensor  # [P, k] False past the last key that the block needs


def _tiles(ask: Asking) -> Tiles:
    """A block of sorted queries needs the keys from where its first bucket begins to its last query or bucket's end."""
    tokens, heads, rounds = ask.query_bucket.shape[1:]
    far = max(ask.where.span.last, ask.seen.span.last, 0) + 1
    code, column = _sortable(ask.query_bucket, ask.where.order, far, ask.buckets + 1).sort(-1)  # [B, H, R, T]
    key_code, key_column = _sortable(ask.key_bucket, ask.seen.order, far, ask.buckets).sort(-1)  # [B, H, R, N]

    size = min(BLOCK, tokens)
    spare = -tokens % size
    code, column = (
        torch.cat((x, x[..., -1:].expand(*x.shape[:-1], spare)), -1).view(*x.shape[:-1], -1, size)
        for x in (code, column)
    )  # [B, H, R, blocks, q]
    begin = (code[..., 0] // far * far).contiguous()
    end = (code[..., -1] if ask.causal else code[..., -1] // far * far + far - 1).contiguous()
    low, high = torch.searchsorted(key_code, begin), torch.searchsorted(key_code, end, right=True)

    each = (-((low - high) // BLOCK)).flatten()  # tiles of every block
    block = torch.repeat_interleave(each)  # [P]
    rank = torch.arange(len(block), device=block.device) - (each.cumsum(0) - each)[block]
    place = (low.flatten()[block] + rank * BLOCK)[:, None] + torch.arange(BLOCK, device=block.device)
    group, number = block // column.shape[3], block % column.shape[3]
    return Tiles(
        row=(group // (heads * rounds))[:, None],
        head=(group // rounds % heads)[:, None],
        turn=(group % rounds)[:, None],
        query=column.flatten(0, 3)[block],
        key=key_column.flatten(0, 2)[group[:, None], place.clamp(max=key_code.shape[-1] - 1)],
        fresh=number[:, None] * size + torch.arange(size, device=block.device) < tokens,
        there=place < high.flatten()[block][:, None],
    )


def _sortable(bucket: Tensor, order: Tensor, far: int, nowhere: int) -> Tensor:
    """One number by which tokens sort into buckets, and in each by order. Padding has a bucket of its own.

    [B, T, H, rounds] -> [B, H, rounds, T]
    """
    bucket = bucket.movedim(1, -1).masked_fill((order < 0)[:, None, None], nowhere)
    return bucket * far + order.clamp(min=0)[:, None, None]


def even(factors: int | tuple[int, ...]) -> tuple[int, ...]:
    """The factors of a number of buckets, each of which must be even: a direction and its opposite."""
    several = factors if isinstance(factors, tuple) else (factors,)
    odd = [factor for factor in several if factor % 2]
    if odd or not several or prod(several) > 1 << 40:
        raise ValueError(f"buckets come in pairs, a direction and its opposite, so {factors} cannot be; use even sizes")
    return several
