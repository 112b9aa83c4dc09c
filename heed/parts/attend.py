"""The one softmax attention: every mixer that weighs with a softmax comes through here.

    y_i = Σ_j softmax_j( scale · q_i·k_j + bias_ij  | j visible from i ) v_j            (Vaswani et al. 2017, eq. 1)

`written_out` is the specification. `attend` gives the same numbers faster: torch's fused kernel, without any mask where
the spans of the tokens tell that none is needed, and block by block where the mask reaches only so far, so that a
window costs O(n·w) in time and memory. A token that sees nothing gets zeros, and finite gradients everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.contract import Where
from ..core.errors import InputError
from ..core.stamps import Stamps
from .masks import Mask, Sight

Term: TypeAlias = Callable[[Tensor, Tensor, Stamps, Stamps], Tensor]  # (query, key, their stamps) -> [B|1, H|1, T, N]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sight: Sight | Mask | Tensor | None = None,
    *,
    bias: Tensor | Term | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention of `query` [B, T, H, d] over `key` [B, N, K, d] and `value` [B, N, K, e]; gives [B, T, H, e].

    H is a multiple of K: query head h reads key head h // (H/K) (Ainslie et al. 2023). `sight` says who sees whom: a
    mask applied to stamped tokens, a bare mask (the queries are then the last T of the N tokens), a boolean tensor
    [B|1, H|1, T, N] with True = visible, or None for everybody. `bias` is added to the scores, `scale` defaults to
    d^-1/2.
    """
    _check(query, key, value)
    sight = _seen_from(query, key, sight)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if isinstance(sight, Sight):
        block = _block(sight, bias)
        if block:
            y = _banded(query, key, value, sight, block=block, bias=bias, scale=scale, dropout=dropout)
        else:
            y = _fused(query, key, value, sight, bias=bias, scale=scale, dropout=dropout)
        return sight.query.blank(y)
    return _fused(query, key, value, sight, bias=bias, scale=scale, dropout=dropout)


def written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sight: Sight | Mask | Tensor | None = None,
    *,
    bias: Tensor | Term | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The equation as it stands, with its weights [B, H, T, N]: what `attend` must equal, and what one looks at."""
    _check(query, key, value)
    sight = _seen_from(query, key, sight)
    heads, groups = query.shape[2], query.shape[2] // key.shape[2]
    key, value = key.repeat_interleave(groups, 2), value.repeat_interleave(groups, 2)
    scale = query.shape[-1] ** -0.5 if scale is None else scale

    score = torch.einsum("bthd,bnhd->bhtn", query, key) * scale
    if bias is not None:
        score = score + _bias(bias, query, key, sight)
    weight = masked_softmax(score, sight.pairs(heads) if isinstance(sight, Sight) else sight)
    return torch.einsum("bhtn,bnhe->bthe", weight, value), weight


def masked_softmax(score: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the last axis, of what is visible; all zeros where nothing is.

    A row without anything visible keeps its scores for the softmax and loses them after it: an all-hidden softmax would
    be 0/0 and its gradient would poison the whole batch.
    """
    if visible is None:
        return score.softmax(-1)
    blind = ~visible.any(-1, keepdim=True)
    weight = score.masked_fill(~(visible | blind), float("-inf")).softmax(-1)
    return weight.masked_fill(~visible, 0.0)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sight: Sight | Tensor | None,
    *,
    bias: Tensor | Term | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """torch's kernel, told as little about the mask as the spans of the tokens allow."""
    heads = query.shape[2]
    triangle = bias is None and isinstance(sight, Sight) and sight.triangle
    mask: Tensor | None = None
    if isinstance(sight, Sight):
        mask = None if triangle or sight.whole else sight.pairs(heads)
    elif sight is not None:
        mask = sight
    if bias is not None:
        added = _bias(bias, query, key, sight)
        mask = added if mask is None else added.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=triangle,
        scale=scale,
        enable_gqa=key.shape[2] != heads,
    ).transpose(1, 2)


def _banded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sight: Sight,
    *,
    block: int,
    bias: Tensor | Term | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """A mask of finite reach: every block of queries beside just the blocks of keys it can see, all blocks as rows.

    What the mask says inside a block is read from the stamps as always, so any mask of finite reach takes this road.
    """
    back, ahead = (far or 0 for far in sight.mask.reach)  # neither is None: _block saw to it
    rows, tokens = query.shape[:2]
    count = -(-tokens // block)
    before, after = -(-back // block), -(-ahead // block)
    offset = sight.query.span.first - sight.key.span.first - before * block  # column of the first key needed
    width = (count + before + after) * block

    def blocks(tensor: Tensor, fill: float = 0.0) -> Tensor:  # keys: overlapping groups of blocks
        column = _columns(tensor, offset, width, fill).reshape(rows, count + before + after, block, *tensor.shape[2:])
        parts = [column[:, shift : shift + count] for shift in range(before + 1 + after)]
        return torch.cat(parts, 2).flatten(0, 1)

    def own(tensor: Tensor, fill: float = 0.0) -> Tensor:  # queries: one block each
        return _columns(tensor, 0, count * block, fill).reshape(rows * count, block, *tensor.shape[2:])

    queries = Stamps(own(sight.query.order, -1), own(sight.query.position))
    keys = Stamps(blocks(sight.key.order, -1), blocks(sight.key.position))
    near = Sight(sight.mask, queries, keys)
    y = _fused(own(query), blocks(key), blocks(value), near, bias=bias, scale=scale, dropout=dropout)
    return y.reshape(rows, count * block, *y.shape[2:])[:, :tokens]


def _block(sight: Sight, bias: Tensor | Term | None) -> int:
    """The block size for the banded form, or 0 where it would not pay or cannot be used."""
    back, ahead = sight.mask.reach
    query, key = sight.query.span, sight.key.span
    if back is None or ahead is None or not query.run or not key.run or isinstance(bias, Tensor):
        return 0
    block = max(32, min(128, 1 << max(back, ahead, 1).bit_length() - 1))
    tokens, keys = sight.query.shape[1], sight.key.shape[1]
    seen = -(-back // block) * block + block + -(-ahead // block) * block
    return block if tokens > block and 2 * seen <= keys else 0


def _columns(tensor: Tensor, begin: int, width: int, fill: float) -> Tensor:
    """Columns begin .. begin+width-1 of every row, filled up where there are none."""
    length = tensor.shape[1]
    low, high = max(begin, 0), min(begin + width, length)
    pad = (*(0, 0) * (tensor.dim() - 2), low - begin, begin + width - high)
    return F.pad(tensor[:, low:high], pad, value=fill)


def _bias(bias: Tensor | Term, query: Tensor, key: Tensor, sight: Sight | Tensor | None) -> Tensor:
    if isinstance(bias, Tensor):
        return bias
    if not isinstance(sight, Sight):
        raise InputError("a bias that is computed from positions needs stamped tokens; pass sight=mask(where, seen)")
    return bias(query, key, sight.query, sight.key)


def _seen_from(query: Tensor, key: Tensor, sight: Sight | Mask | Tensor | None) -> Sight | Tensor | None:
    rows, tokens, heads = query.shape[:3]
    wanted = (rows, heads, tokens, key.shape[1])
    if isinstance(sight, Mask):
        if tokens > key.shape[1]:
            raise InputError(
                f"{tokens} queries cannot be the last of {key.shape[1]} keys; pass sight=mask(where, seen)"
            )
        last = Where.run(rows, tokens, start=key.shape[1] - tokens, device=query.device)
        return sight(last, Where.run(rows, key.shape[1], device=query.device))
    if isinstance(sight, Tensor):
        if sight.dtype != torch.bool:
            raise InputError(
                f"a mask tensor must be boolean with True = visible, not {sight.dtype}; use bias= for scores"
            )
        if sight.dim() != len(wanted) or any(a not in (1, b) for a, b in zip(sight.shape, wanted, strict=True)):
            raise InputError(
                f"the mask has shape {tuple(sight.shape)}; needed is [rows, heads, queries, keys] = {wanted}, "
                "where any of them may be 1"
            )
    elif sight is not None and (sight.query.shape != (rows, tokens) or sight.key.shape != (rows, key.shape[1])):
        raise InputError(
            f"the mask is about {tuple(sight.query.shape)} queries and {tuple(sight.key.shape)} keys, "
            f"the tensors hold {(rows, tokens)} and {(rows, key.shape[1])} (rows, tokens)"
        )
    return sight


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 4:
        raise InputError(f"attend needs [rows, tokens, heads, size] three times, got {shapes}")
    if key.shape[:3] != value.shape[:3] or query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        raise InputError(
            f"{shapes} do not fit: rows must be equal, key and value must agree in tokens and heads, "
            "query and key in size"
        )
    if query.shape[2] % key.shape[2]:
        raise InputError(
            f"{query.shape[2]} query heads cannot share {key.shape[2]} key heads evenly; "
            f"use a number of query heads that is a multiple of {key.shape[2]}"
        )
