"""Log-sum-exp merge: one softmax over keys that lie in several places, each piece attended alone, then all merged.

    y_i = Σ_p e^(l_ip - l_i) y_ip,   l_i = log Σ_p e^l_ip

where y_ip is what query i takes from piece p alone and l_ip the logarithm of the sum that its softmax divided by. This
is the softmax over the union of the pieces, a key that lies in two of them counted twice: the way of FlashAttention
(Dao et al. 2022) from tile to tile, here from pattern to pattern. Neither scores nor weights are held where the fused
kernel can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .sdpa import How, Pairs, widened

FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FUSED_BACK = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


EVERYBODY = Pairs()


@dataclass(frozen=True, eq=False)
class Piece:
    """Some queries beside some keys, in an arrangement of their own.

    `take` arranges anything that every query has, [B, T, H, *] -> [R, t, h, *]; `put` is the way back, with zeros for
    queries that this piece does not hold. Keys and values [R, N, h, *] are arranged already.
    """

    key: Tensor
    value: Tensor
    take: Callable[[Tensor], Tensor]
    put: Callable[[Tensor], Tensor]
    pairs: Pairs = EVERYBODY


def merged(query: Tensor, pieces: Sequence[Piece], how: How, *, detached: bool = False) -> Tensor:
    """The softmax attention of `query` [B, T, H, d] over all pieces. A query that sees nothing gets zeros.

    With `detached` the shares e^(l_ip - l_i) have no gradient: backwards, every piece is a softmax of its own.
    """
    learnt = any(piece.pairs.added is not None and piece.pairs.added.requires_grad for piece in pieces)
    detached = detached and torch.is_grad_enabled()
    if how.cap is None and not how.dropout and not learnt and not detached and query.device.type == "cpu":
        size = pieces[0].value.shape[-1]
        widest = max(size, query.shape[-1])
        tensors = [widened(x, widest) for piece in pieces for x in (piece.take(query), piece.key, piece.value)]
        y: Tensor = _Merged.apply(pieces, how.scale, *tensors)  # type: ignore[no-untyped-call]
        return y[..., :size]
    each = [_partial(piece.take(query), piece, how) for piece in pieces]
    sums = torch.stack([_put_sums(piece, total) for piece, (_, total) in zip(pieces, each, strict=True)])
    share = _shares(sums.detach() if detached else sums)
    return sum(
        (piece.put(y) * w[..., None] for piece, (y, _), w in zip(pieces, each, share, strict=True)),
        start=query.new_zeros(()),
    )


class _Merged(torch.autograd.Function):
    """The fused form. Backwards every piece is told the output and the sum of *all*: with P_ij = e^(s_ij - l_i) its
    scores get dS_ij = P_ij (dP_ij - dy_i·y_i), which is the gradient of the merged softmax.
    """

    @staticmethod
    def forward(ctx: Any, pieces: Sequence[Piece], scale: float, *tensors: Tensor) -> Tensor:
        outputs, sums = [], []
        for piece, (query, key, value) in zip(pieces, _threes(tensors), strict=True):
            y, total = FUSED(
                *(x.transpose(1, 2) for x in (query, key, value)),
                is_causal=piece.pairs.triangle,
                attn_mask=piece.pairs.offset(query.dtype),
                scale=scale,
            )
            visible = piece.pairs.visible
            total = total if visible is None else total.masked_fill(~visible.any(-1), float("-inf"))
            outputs.append(piece.put(y.transpose(1, 2)))
            sums.append(_put_sums(piece, total.transpose(1, 2)))
        stacked = torch.stack(sums)
        y = sum(
            (y * w[..., None] for y, w in zip(outputs, _shares(stacked), strict=True)), start=tensors[0].new_zeros(())
        )
        ctx.pieces, ctx.scale = pieces, scale
        ctx.save_for_backward(y, stacked.logsumexp(0), *tensors)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, total, *tensors = ctx.saved_tensors
        total = total.masked_fill(total.isneginf(), 0)  # a query that sees nothing has no scores
        made: list[Tensor | None] = [None, None]
        for piece, three in zip(ctx.pieces, _threes(tensors), strict=True):
            grads_y, outputs = (piece.take(x).transpose(1, 2) for x in (grad, y))
            found = FUSED_BACK(
                grads_y,
                *(x.transpose(1, 2) for x in three),
                outputs,
                piece.take(total[..., None])[..., 0].transpose(1, 2).contiguous(),
                0.0,
                piece.pairs.triangle,
                attn_mask=piece.pairs.offset(grad.dtype),
                scale=ctx.scale,
            )
            made += [one.transpose(1, 2) for one in found]
        return tuple(made)


def _partial(query: Tensor, piece: Piece, how: How) -> tuple[Tensor, Tensor]:
    """A piece by itself, written out: [R, t, h, e], and the logarithm of its sums [R, t, h]."""
    score = how.capped(torch.einsum("bthd,bnhd->bhtn", query, piece.key) * how.scale)
    pairs = piece.pairs.cut(slice(None), 0, query.shape[1], query.device) if piece.pairs.triangle else piece.pairs
    score = score if pairs.added is None else score + pairs.added
    blind = None if pairs.visible is None else ~pairs.visible.any(-1)
    if pairs.visible is not None and blind is not None:
        score = score.masked_fill(~(pairs.visible | blind[..., None]), -torch.inf)
    total = score.logsumexp(-1)
    weight = (score - total[..., None]).exp()
    weight = F.dropout(weight, how.dropout) if how.dropout else weight
    y = torch.einsum("bhtn,bnhe->bthe", weight, piece.value)
    total = total if blind is None else total.masked_fill(blind, -torch.inf)
    return y, total.transpose(1, 2)


def _put_sums(piece: Piece, total: Tensor) -> Tensor:
    """The logarithms of sums in the order of the queries; -inf for those that a piece does not hold. [B, T, H]"""
    seen = ~total.isneginf()
    back = piece.put(total.masked_fill(~seen, 0)[..., None])[..., 0]
    held = piece.put(seen.to(total.dtype)[..., None])[..., 0] > 0
    return back.masked_fill(~held, float("-inf"))


def _shares(sums: Tensor) -> Tensor:
    """What share of a query's weight each piece has; none for a query that sees nothing. [P, B, T, H]"""
    blind = sums.isneginf().all(0, keepdim=True)
    return sums.masked_fill(blind, 0).softmax(0).masked_fill(blind, 0)


def _threes(tensors: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    return [tensors[first : first + 3] for first in range(0, len(tensors), 3)]
