"""Block-gather attention: many small rows whose keys lie scattered in one store, gathered some rows at a time.

Gathering all at once would hold every key as often as it is seen. Here no more than PASS numbers are, forwards and
backwards, where they are gathered again; the gradients of a key from all queries that see it are added up in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .merge import FUSED, FUSED_BACK
from .sdpa import How, Pairs, kernel, widened

PASS = 1 << 20  # numbers that are gathered at once: what stays in a cache


def gathered(query: Tensor, key: Tensor, value: Tensor, index: Tensor, pairs: Pairs, how: How) -> Tensor:
    """Softmax attention of the rows `query` [R, t, d]; row r sees the blocks `index[r]` of [R, k] of the store.

    The store is `key` [N, s, d] and `value` [N, s, e]; `pairs` are about [R, 1, t, k·s]. Gives [R, t, e].
    """
    learnt = pairs.added is not None and pairs.added.requires_grad
    if how.cap is not None or how.dropout or learnt or query.device.type != "cpu":
        keys, values = (x[index].flatten(1, 2).unsqueeze(2) for x in (key, value))
        return kernel(query.unsqueeze(2), keys, values, pairs, how).squeeze(2)
    size = value.shape[2]
    widest = max(size, key.shape[2])
    three = (widened(x, widest) for x in (query, key, value))
    y: Tensor = _Gathered.apply(*three, index, pairs.offset(query.dtype), how.scale)  # type: ignore[no-untyped-call]
    return y if size == widest else y[..., :size]


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, index: Tensor, offset: Tensor | None, scale: float
    ) -> Tensor:
        y, total = torch.empty_like(query), query.new_empty(query.shape[0], 1, query.shape[1])
        for rows, three, mask in _passes(query, key, value, index, offset):
            part, total[rows] = FUSED(*three, attn_mask=mask, scale=scale)
            y[rows] = part.squeeze(1)
        ctx.scale = scale
        ctx.save_for_backward(query, key, value, index, offset, y, total)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, index, offset, y, total = ctx.saved_tensors
        total = total.masked_fill(~total.isfinite(), 0)  # a query that sees nothing has no scores
        asked, found = torch.empty_like(query), [torch.zeros_like(x) for x in (key, value)]
        for rows, three, mask in _passes(query, key, value, index, offset):
            given = (grad[rows].unsqueeze(1), *three, y[rows].unsqueeze(1), total[rows])
            own, *near = FUSED_BACK(*given, 0.0, False, attn_mask=mask, scale=ctx.scale)
            asked[rows] = own.squeeze(1)
            for sums, part in zip(found, near, strict=True):
                sums.index_add_(0, index[rows].flatten(), part.reshape(-1, *sums.shape[1:]))
        return asked, *found, None, None, None


def _passes(
    query: Tensor, key: Tensor, value: Tensor, index: Tensor, offset: Tensor | None
) -> Iterator[tuple[slice, tuple[Tensor, Tensor, Tensor], Tensor | None]]:
    """Some rows after the other: which, their tensors as the kernel takes them, and their mask."""
    step = max(1, PASS // max(1, index.shape[1] * key[0].numel()))
    for begin in range(0, len(query), step):
        rows = slice(begin, begin + step)
        seen = index[rows]
        near = (x.index_select(0, seen.flatten()).view(len(seen), 1, -1, x.shape[2]) for x in (key, value))
        mask = offset if offset is None or len(offset) == 1 else offset[rows]
        yield rows, (query[rows].unsqueeze(1), *near), mask  # type: ignore[misc]
