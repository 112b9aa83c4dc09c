"""Transient-global attention of LongT5 (Guo et al. 2022): a sliding window and a summary token per block."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

import torch
from pydantic import model_validator
from torch import Tensor

from ..core.config import Count, Flag, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.spec import Spec
from ..core.stamps import Stamps
from ..parts.attention.attend import written_out
from ..parts.attention.merge import Piece, merged
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.attention.row_by_row import Row, row_by_row
from ..parts.attention.sdpa import How, Pairs
from ..parts.attention.sparse import pieces
from ..parts.layers.norms import AnyNorm, LayerNorm, RMSNorm
from ..parts.masks import Window
from ..parts.positions import Buckets

Nothing: TypeAlias = "tuple[()]"
BOTH_WAYS = Buckets.Config(both_ways=True)


class Distances(Buckets):
    """Bucketed distances from token to token and, in a table of their own, from block to block."""

    def __init__(self, config: Buckets.Config, heads: int, size: int) -> None:
        super().__init__(config, heads, size)
        self.far = config.build(heads, size)


class TransientGlobal(Headed[Nothing]):
    """Sliding-window attention and, in the same softmax, attention to one summary of every block of tokens.

        y_i = W_o ( Σ_j a_ij v_j + Σ_b a_ib v_b ),   a_ij ∝ exp(q_i·k_j / √d + B[j - i]),
        a_ib ∝ exp(q_i·k_b / √d + B'[b - block of i]),   all of i together one,   |i - j| <= r
        k_b = W_k s_b, v_b = W_v s_b,   s_b = norm(Σ_j x_j over the tokens j of block b)

    Guo et al. 2022, LongT5. A block is `block` tokens of a row, by their order; tokens after the last whole block are
    counted to that, and a row without a whole block has no summary. Costs O(n·(r + n/block)·d) time over n tokens and,
    while B and B' are learnt, n·(r + n/block) numbers of memory per head: quadratic in the end, but `block` times
    later. It looks ahead, so it remembers nothing. What is shown of it is its weights of all tokens, then of all
    summaries.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Guo et al. 2022, LongT5, arXiv 2112.07916"

        kind: Literal["transient_global"] = "transient_global"
        radius: Count = 127  # tokens to either side
        block: Size = 16  # tokens per summary
        position: Buckets.Config = BOTH_WAYS  # of tokens, and of blocks
        summary_norm: AnyNorm = RMSNorm()
        rounded: Flag = False  # blocks are counted in float32, by adding 1/block for every token: so does their code

        @model_validator(mode="after")
        def _both_ways(self) -> Self:
            if not self.position.both_ways:
                raise ValueError("tokens look ahead and back; set both_ways of the position")
            return self

        def build(self, width: int) -> TransientGlobal:
            return TransientGlobal(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            few = Buckets.Config(buckets=8, distance=20, both_ways=True)
            return (
                *(cls(), cls(radius=2, block=3, position=few), cls(radius=0, block=2, kv_heads=2, bias=False)),
                cls(radius=1, block=1, kv_heads=1, summary_norm=LayerNorm()),
                cls(radius=3, block=5, heads=3, head_size=5, scale=0.3, head_norm=RMSNorm(), rounded=True),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.config = config
        self.mask = Window(back=config.radius, ahead=config.radius)
        self.position = Distances(config.position, self.heads, self.head_size)
        self.summary_norm = config.summary_norm.build(width)
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        x, block = where.blank(x), self.blocks(where)
        summary = self.summary_norm(_summed(x, block))  # [B, G, D]
        query = self.queries(x)
        key, value = (Both(*(self.each_head(part(one)) for one in (x, summary))) for part in (self.keys, self.values))
        self.weights(lambda: self._weights(query, key, value, where, block))
        y = row_by_row(where, lambda row: self._row(row, row.of(query), key.of(row), value.of(row), row.of(block)))
        return self.merge(y), state

    def blocks(self, where: Stamps) -> Tensor:
        """Which block every token is counted to; -1 = none. [B, T]"""
        size, order = self.config.block, where.order
        whole = ((order % size == size - 1) & where.real).sum(1, keepdim=True)  # blocks whose last token is there
        number = _rounded(order.clamp(min=0), size) if self.config.rounded else order // size
        return torch.minimum(number, whole - 1).masked_fill(~where.real, -1)

    def _row(self, row: Row, query: Tensor, key: Both, value: Both, block: Tensor) -> Tensor:
        """Of one row, the band and the summaries in one softmax. [1, t, H, e]"""
        if not query.shape[1]:
            return query
        how = How(self.position.bias, self.scale, self.drop)
        made = pieces(query, key.near, value.near, self.mask(row.stamps, row.stamps), how)
        if key.far.shape[1]:
            made.append(Piece(key.far, value.far, _same, _same, Pairs(*self._far(query, key.far, block))))
        return merged(query, made, how)

    def _far(self, query: Tensor, key: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
        """Who sees which summary, namely all of its own row; and what is added. [B, 1, T, G], [B, H, T, G]"""
        number = torch.arange(key.shape[1], device=block.device)[None]
        added = self.position.far.term(query, key, Stamps(block, block), Stamps(number, number))
        visible = (block >= 0)[..., None] & (number <= block.amax(1, keepdim=True))[:, None]
        return visible[:, None], added

    def _weights(self, query: Tensor, key: Both, value: Both, where: Where, block: Tensor) -> Tensor:
        """Of tokens and summaries, written out. [B, H, T, N + G]"""
        rows, tokens = query.shape[:2]
        visible, added = self._far(query, key.far, block)
        near, beside = self.mask(where, where).pairs(1), self.position.term(query, key.near, where, where)
        visible = torch.cat([one.expand(rows, 1, tokens, -1) for one in (near, visible)], -1)
        bias = torch.cat([one.expand(rows, -1, -1, -1) for one in (beside, added)], -1)
        return written_out(query, torch.cat(key, 1), torch.cat(value, 1), visible, bias=bias, scale=self.scale)[1]


class Both(NamedTuple):
    """Keys, or values, of tokens and of summaries. [B, T, H, d], [B, G, H, d]"""

    near: Tensor
    far: Tensor

    def of(self, row: Row) -> Both:
        """The same of one row."""
        return Both(row.of(self.near), self.far[row.number : row.number + 1])


def _summed(x: Tensor, block: Tensor) -> Tensor:
    """The sums of all blocks of a batch. [B, T, D] -> [B, G, D]"""
    many = int(block.max()) + 1 if block.numel() else 0
    index = block.masked_fill(block < 0, many)[..., None].expand_as(x)  # tokens of no block land beside them
    return x.new_zeros(len(x), many + 1, x.shape[2]).scatter_add(1, index, x)[:, :many]


def _rounded(order: Tensor, size: int) -> Tensor:
    """order / size, cut, where every share 1/size was added in its turn, in the order of their code."""
    share = torch.full((int(order.max()) + 1 if order.numel() else 0,), 1 / size, dtype=torch.float32)
    number = (1.0 + (share.cumsum(0) - share) - 1.0).floor().long()
    return number.to(order.device)[order]


def _same(x: Tensor) -> Tensor:
    return x
