"""Two-stream attention of XLNet (Yang et al. 2019): a content stream, and a query stream blind to its own token."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Flag
from ..core.contract import MixerConfig, Where
from ..core.errors import InputError
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Stamps
from ..core.state import Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.attention.sdpa import Term
from ..parts.look import Look
from ..parts.masks import AnyMask, Causal, Mask, Segments, Sight, Whole, Window
from ..parts.positions.scored import Relative

ITSELF = Window(back=0)


class TwoStream(Headed[Log]):
    """Attention in any factorisation order: the content stream x sees tokens revealed up to itself, the query stream g
    those revealed before it, with the same weights.

        x_i ← W_o Σ_j softmax_j( s_ij ) v_j, q = W_q x,   j revealed up to i      (a call of the mixer)
        g_i ← W_o Σ_j softmax_j( s_ij ) v_j, q = W_q g,   j revealed before i     (`ask`)
        s_ij = ( (q_i + u)·k_j + (q_i + v)·W_r R(i - j) + (q_i + w)·E[segments of i and j differ] ) / √d

    Yang et al. 2019. The order of revelation is `order`, the place in the text, from which i - j is measured, is
    `position`: a permutation of the factorisation order is nothing but its stamps, and a permuted text may be cut into
    calls like any other. R(k) = [ sin(k·ω) | cos(k·ω) ] is the code of Transformer-XL, of signed distances. With a mask
    that looks ahead every token sees all others and `ask` all but its own. Costs O(n²·d) time over n tokens, O(n·w·d)
    with a mask of reach w and no segments; remembers the keys, the values and the segment of every token, or of the
    last w.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Yang et al. 2019, XLNet, arXiv 1906.08237"

        kind: Literal["two_stream"] = "two_stream"
        bias: Flag = False
        mask: AnyMask = Causal()
        position: Relative.Config = Relative.Config(both_ways=True)
        segments: Flag = False  # whether scores have a term for the same and for other segments

        @model_validator(mode="after")
        def _one_scale(self) -> Self:
            if self.scale is not None:
                raise ValueError("the relative code scales its term by head_size^-1/2; leave scale unset")
            return self

        def build(self, width: int) -> TwoStream:
            return TwoStream(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            near = Relative.Config(base=100.0, clamp=3, both_ways=True)
            recurrent: Mask = Causal() & Segments(length=4, memory=3)
            return (
                *(cls(), cls(segments=True), cls(segments=True, kv_heads=2, bias=True, position=near)),
                *(cls(mask=Whole(), segments=True), cls(mask=Window(back=3), segments=True), cls(mask=recurrent)),
                cls(mask=Window(back=2), heads=3, head_size=4, kv_heads=1, clip=0.5),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.mask, self.others, self.reach = config.mask, config.mask - ITSELF, config.mask.reach
        self.position = config.position.build(self.heads, self.head_size)  # W_r, u and v
        shape = (self.heads, self.head_size)
        self.segment = nn.Parameter(torch.empty(2, *shape)) if config.segments else None  # E
        self.segment_bias = nn.Parameter(torch.empty(*shape)) if config.segments else None  # w
        for start in (self.segment, self.segment_bias):
            if start is not None:
                nn.init.normal_(start, std=0.02)
        self.asked = Look()  # the weights of the query stream, beside those of the content stream

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        window = None if self.reach.back is None else Dim("window", self.reach.back)
        each: tuple[tuple[int, ...], ...] = ((self.kv_heads, self.head_size),) * 2
        parts = each if self.segment is None else (*each, ())
        return Slot(parts, Entries(each=1, cap=window), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        seen, state = remember(state, where, *self.entries(x, where))
        return self.known(x, where, seen), state

    def entries(self, x: Tensor, where: Where) -> tuple[Tensor, ...]:
        """What both streams look at: the keys, the values and, if they count, the segments of these tokens."""
        x = where.blank(x)
        pair = self.keys(x), self.values(x)
        return pair if self.segment is None else (*pair, where.blank(segments(where)).to(x.dtype))

    def known(self, x: Tensor, where: Where, seen: Seen) -> Tensor:
        """The content stream: what the mask allows. [B, T, D]"""
        return self.merge(self.attended(self.queries(where.blank(x)), where, seen, self.mask(where, seen)))

    def ask(self, g: Tensor, where: Where, seen: Seen) -> Tensor:
        """The query stream at the places `where`: what the mask allows but the place itself. [B, M, D]

        A place before which nothing was revealed gets zeros.
        """
        query = self.queries(where.blank(g))
        return self.merge(self.attended(query, where, seen, self.others(where, seen), point=self.asked))

    def attended(
        self,
        query: Tensor,
        where: Where,
        seen: Seen,
        sight: Sight | None,
        *,
        added: Tensor | None = None,
        point: Look | None = None,
    ) -> Tensor:
        """What these queries take from `seen`, by heads. `added` comes on top of their scores. [B, T, H, d]"""
        key, value = seen.parts[:2]
        bias = self._bias(query, key, where, seen, sight, added)
        show = self.weights if point is None else point
        show(lambda: written_out(query, key, value, sight, bias=bias, scale=self.scale)[1])
        return attend(query, key, value, sight, bias=bias, scale=self.scale, dropout=self.drop)

    def _bias(
        self,
        query: Tensor,
        key: Tensor,
        where: Where,
        seen: Seen,
        sight: Sight | None,
        added: Tensor | None,
    ) -> Tensor | Term:
        """All of the scores but q·k. The code of positions alone may be computed block by block along a window."""
        if self.segment is None and added is None and sight is not None:
            return self.position.term
        term = self.position.term(query, key, where, seen)
        if self.segment is not None and self.segment_bias is not None:
            both = torch.einsum("bthd,shd->bhts", query + self.segment_bias, self.segment) * self.scale
            differ = (segments(where)[:, :, None] != seen.parts[2][:, None, :])[:, None]  # [B, 1, T, N]
            term = term + torch.where(differ, both[..., 1:], both[..., :1])
        return term if added is None else term + added


def segments(where: Where) -> Tensor:
    """Which segment each token is of; 0 if none is given. [B, T]"""
    given = where.given.segment
    if given is None:
        return torch.zeros_like(where.order)
    must_be_beside(given, where)
    return given


def must_be_beside(segment: Tensor, where: Stamps) -> None:
    """Raise unless every token has a segment."""
    if segment.shape != where.shape:
        raise InputError(
            f"segments have the shape {list(segment.shape)} beside tokens of {list(where.shape)} (rows, tokens); "
            "give the segments of just the tokens of a call"
        )
