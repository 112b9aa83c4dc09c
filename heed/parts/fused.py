"""The fast forms of softmax attention: torch's fused kernel over everything, or block by block along a band."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.contract import Where
from ..core.errors import InputError
from ..core.stamps import Stamps
from .masks import Sight

Term: TypeAlias = Callable[[Tensor, Tensor, Stamps, Stamps], Tensor]  # (query, key, their stamps) -> [B|1, H|1, T, N]
BLOCK = 64  # queries per block of a band: what benchmarks/window.py finds best for the forward form of its peer too


@dataclass(frozen=True, eq=False)
class How:
    """What is added to the scores, what they are multiplied by, and what share of the weights is dropped."""

    bias: Tensor | Term | None
    scale: float
    dropout: float = 0.0

    def added(self, query: Tensor, key: Tensor, sight: Sight | Tensor | None) -> Tensor | None:
        """The bias of these queries and keys."""
        if self.bias is None or isinstance(self.bias, Tensor):
            return self.bias
        if not isinstance(sight, Sight):
            raise InputError(
                "a bias that is computed from positions needs stamped tokens; pass sight=mask(where, seen)"
            )
        return self.bias(query, key, sight.query, sight.key)


def whole(query: Tensor, key: Tensor, value: Tensor, sight: Sight | Tensor | None, how: How) -> Tensor:
    """All queries beside all keys, told as little about the mask as the spans of the tokens allow."""
    added, visible, triangle = how.added(query, key, sight), None, False
    if isinstance(sight, Sight):
        triangle = added is None and sight.triangle
        visible = None if triangle or sight.whole else sight.pairs(query.shape[2])
    else:
        visible = sight
    return _kernel(query, key, value, _mask(visible, added), how, triangle=triangle)


def banded(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How) -> Tensor:
    """A mask of finite reach: every block of queries beside just the keys it can reach.

    The first queries, whose reach sticks out at the front, and the last, which do not fill a block, are called by
    themselves. In between all blocks of a row are the rows of one call, and their keys are overlapping views.
    """
    band = Band.of(sight)
    alike = sight.mask.uniform and (sight.clear if band.ahead == 0 else not sight.key.span.padded)
    pieces = []
    for first, last in pairwise((0, band.begin, band.end, query.shape[1])):
        low, high = band.near(first, last)
        near = Sight(sight.mask, sight.query.columns(first, last), sight.key.columns(low, high))
        form = partial(_blocks, lead=band.back, alike=alike) if first == band.begin else whole
        if first < last:
            pieces.append(form(query[:, first:last], key[:, low:high], value[:, low:high], near, how))
    return torch.cat(pieces, 1)


def pays(sight: Sight, how: How) -> bool:
    """Whether to go block by block: the mask must reach only so far, and spare at least half of the pairs."""
    back, ahead = sight.mask.reach
    if back is None or ahead is None or isinstance(how.bias, Tensor):
        return False
    if not sight.query.span.run or not sight.key.span.run:
        return False
    band = Band.of(sight)
    return band.shift >= 0 and band.begin < band.end and 2 * (band.back + BLOCK + band.ahead) <= band.keys


@dataclass(frozen=True)
class Band:
    """Which columns of the keys a run of queries can reach, and which queries come in whole blocks."""

    back: int  # rounded up to whole blocks, which the kernel takes faster; the mask hides what is too far
    ahead: int
    shift: int  # the column of the key that stands where the first query stands
    keys: int
    begin: int  # before it, the reach sticks out at the front
    end: int  # after it, a block would not be full

    @classmethod
    def of(cls, sight: Sight) -> Band:
        back, ahead = (-(-(far or 0) // BLOCK) * BLOCK for far in sight.mask.reach)
        tokens, keys = sight.query.shape[1], sight.key.shape[1]
        shift = sight.query.span.first - sight.key.span.first
        begin = min(max(0, back - shift), tokens)
        end = begin + max(0, min(tokens, keys - shift - ahead) - begin) // BLOCK * BLOCK
        return cls(back, ahead, shift, keys, begin, end)

    def near(self, first: int, last: int) -> tuple[int, int]:
        """The columns of the keys that the queries first .. last-1 can reach."""
        return max(0, first + self.shift - self.back), min(self.keys, last + self.shift + self.ahead)


def _blocks(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How, *, lead: int, alike: bool) -> Tensor:
    """Queries that fill blocks, beside the keys that they can reach, of which `lead` stand before the first query.

    `alike` says that every block sees what the next one sees, so that one mask serves all.
    """
    width = key.shape[1] - query.shape[1] + BLOCK  # keys per block

    def own(row: Tensor) -> Tensor:  # [T, ...] -> [T/b, b, ...]
        return row.reshape(-1, BLOCK, *row.shape[1:])

    def near(row: Tensor) -> Tensor:  # [N, ...] -> [T/b, width, ...], a view
        return row.unfold(0, width, BLOCK).movedim(-1, 1)

    shared = _one_block(sight, lead, width, query.shape[2]) if alike else None
    rows = []
    for row, tensors in enumerate(zip(query.unbind(), key.unbind(), value.unbind(), strict=True)):
        q, k, v = own(tensors[0]), near(tensors[1]), near(tensors[2])
        queries = Stamps(own(sight.query.order[row]), own(sight.query.position[row]))
        keys = Stamps(near(sight.key.order[row]), near(sight.key.position[row]))
        block = Sight(sight.mask, queries, keys)
        visible = block.pairs(query.shape[2]) if shared is None else shared
        rows.append(_kernel(q, k, v, _mask(visible, how.added(q, k, block)), how).flatten(0, 1))
    return torch.stack(rows) if len(rows) > 1 else rows[0][None]  # one row needs no copy


def _one_block(sight: Sight, lead: int, width: int, heads: int) -> Tensor:
    """Who sees whom in any block: what counts is the distance. [1, 1 or H, b, width]"""
    device = sight.key.order.device
    queries = Where.run(1, BLOCK, start=lead, device=device)
    return Sight(sight.mask, queries, Where.run(1, width, device=device)).pairs(heads)


def _mask(visible: Tensor | None, added: Tensor | None) -> Tensor | None:
    if visible is None or added is None:
        return visible if added is None else added
    return added.masked_fill(~visible, float("-inf"))


def _kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, how: How, *, triangle: bool = False
) -> Tensor:
    return F.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        dropout_p=how.dropout,
        is_causal=triangle,
        scale=how.scale,
        enable_gqa=key.shape[2] != query.shape[2],
    ).transpose(1, 2)
