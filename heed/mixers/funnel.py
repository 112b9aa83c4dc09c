"""Attention of Funnel-Transformer (Dai et al. 2020): relative positions, segments, and queries that may be pooled."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from ..core.config import Count, Flag
from ..core.contract import MixerConfig, Reach, Where
from ..core.errors import ConfigError, InputError
from ..core.spec import Spec
from ..core.state import Seen
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.masks import Whole
from ..parts.positions.waves import angles, frequencies

Nothing: TypeAlias = "tuple[()]"
BOTH = 2  # a segment that counts as every other one: that of the first token


class FunnelAttention(Headed[Nothing]):
    """Bidirectional attention whose scores add content, relative position and segment terms.

        y_i = W_o Σ_j softmax_j( (q_i + u)·k_j + (q_i + v)·W_r R(p_i - p_j) + (q_i + s)·e_[same segment] ) v_j

    Dai et al. 2020, sec. 2.2 and appendix A.2, with q scaled by d^-1/2 and u, v, s likewise; R are sinusoids. With
    `separate` the first token stands apart: no distance and no segment counts for it. Distances are written as
    sin(a-b) = sin a cos b - cos a sin b (the paper's factorised form, of which its relative shift is another way to
    compute the same numbers), so that all three terms are one product and no weight need be held.

    The keys are the tokens themselves or, where a pooled layer is given longer ones beside it (`where.given.shared`),
    those. Costs O(n²·heads·width) time and O(n·heads·width) memory; looks ahead, so it remembers nothing.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Dai et al. 2020, Funnel-Transformer, arXiv 2006.03236"

        kind: Literal["funnel"] = "funnel"
        separate: Flag = True  # the first token stands apart
        segments: Count = 3  # different ones; 2 is that of the first token. 0: they are not compared

        def build(self, width: int) -> FunnelAttention:
            return FunnelAttention(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return cls(), cls(separate=False, segments=0), cls(heads=3, head_size=5, bias=False, kv_heads=1)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        if width % 2:
            raise ConfigError(f"distances are sines and cosines, so width must be even, not {width}")
        if config.bias:  # u stands for it
            self.query = nn.Linear(width, self.heads * self.head_size, bias=False)
        self.separate, self.segments = config.separate, config.segments
        self.frequency = frequencies(width // 2, 10000.0)
        self.content_bias, self.position_bias, self.segment_bias = (
            nn.Parameter(torch.empty(self.heads, self.head_size)) for _ in range(3)
        )
        self.position_kernel = nn.Parameter(torch.empty(width, self.heads, self.head_size))
        self.segment_table = nn.Parameter(torch.empty(2, self.heads, self.head_size))  # of another one, of the same
        learnt = (self.content_bias, self.position_bias, self.segment_bias, self.position_kernel, self.segment_table)
        for parameter in learnt:
            nn.init.uniform_(parameter, b=0.1)
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        """`where.given.shared` may bring keys: their stream, their segments and what is added to their scores."""
        x, segment = where.blank(x), self._segment(where)
        seen = where.given.shared or Seen.of(where, x, segment)
        other, theirs, *added = seen.parts
        query = self.queries(x) * self.scale
        key, value = (self.each_head(part) for part in (self.keys(other), self.values(other)))
        queries = [query + self.content_bias * self.scale, self._distances(query, where)]
        keys = [key, self._places(seen).to(key.dtype)[:, :, None].expand(-1, -1, self.heads, -1)]
        if self.segments:
            queries.append(self._alike(query, segment, where))
            keys.append(self._marks(theirs, seen).to(key.dtype)[:, :, None].expand(-1, -1, self.heads, -1))
        query, key = torch.cat(queries, -1), torch.cat(keys, -1)
        bias = added[0][:, None, None] if added else None
        sight = Whole()(where, seen)
        self.weights(lambda: written_out(query, key, value, sight, bias=bias, scale=1.0)[1])
        y = attend(query, key, value, sight, bias=bias, scale=1.0, dropout=self.drop)
        return self.merge(y), state

    def _segment(self, where: Where) -> Tensor:
        given = where.given.segment
        segment = where.blank(torch.zeros_like(where.order) if given is None else given)
        if self.segments and segment.numel() and not 0 <= int(segment.min()) <= int(segment.max()) < self.segments:
            low, high = int(segment.min()), int(segment.max())
            raise InputError(f"segments from {low} to {high} were given, the model compares 0 to {self.segments - 1}")
        return segment

    def _waves(self, position: Tensor) -> Tensor:
        """sin and cos of a place at every frequency. [B, T] -> [2, B, T, width / 2]"""
        angle = angles(position, self.frequency)
        return torch.stack((angle.sin(), angle.cos()))

    def _apart(self, order: Tensor) -> Tensor:
        """True at the first token, if it stands apart. [B, T]"""
        return (order == 0) & self.separate

    def _places(self, seen: Seen) -> Tensor:
        """The position term of keys: cos and sin. [B, N, width]"""
        sine, cosine = self._waves(seen.position)
        return torch.cat((cosine, sine), -1).masked_fill(self._apart(seen.order)[..., None], 0)

    def _distances(self, query: Tensor, where: Where) -> Tensor:
        """The position term of queries. [B, T, H, width]"""
        wanted = torch.einsum("bihd,whd->bihw", query + self.position_bias * self.scale, self.position_kernel)
        along, across = wanted.chunk(2, -1)  # of the sine and of the cosine of a distance
        sine, cosine = self._waves(where.position).to(query.dtype)[:, :, :, None]
        turned = torch.cat((along * sine + across * cosine, across * sine - along * cosine), -1)
        return turned.masked_fill(self._apart(where.order)[..., None, None], 0)

    def _marks(self, segment: Tensor, seen: Seen) -> Tensor:
        """The segments of keys, one-hot. [B, N, segments]"""
        mark = nn.functional.one_hot(segment.clamp(min=0), self.segments)
        return mark.masked_fill(self._apart(seen.order)[..., None], 0)

    def _alike(self, query: Tensor, segment: Tensor, where: Where) -> Tensor:
        """The segment term of queries. [B, T, H, segments]"""
        other, same = torch.einsum("bihd,shd->sbih", query + self.segment_bias * self.scale, self.segment_table)
        kinds = torch.arange(self.segments, device=segment.device)
        alike = (segment[..., None] == kinds) | (segment[..., None] == BOTH) | (kinds == BOTH)  # [B, T, segments]
        term = torch.where(alike[:, :, None], same[..., None], other[..., None])
        return term.masked_fill(self._apart(where.order)[..., None, None], 0)
