"""Attention of Transformer-XL (Dai et al. 2019): segment-level recurrence over hidden states, relative positions."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Count, Flag, Share, Size
from ..core.contract import Mixer, MixerConfig, Where
from ..core.errors import ConfigError
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Span, Stamps
from ..core.state import Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.look import Look
from ..parts.masks import Causal, Mask, Segments, Window
from ..parts.positions import Relative
from ..parts.segments.transformer_xl import Recalled, in_passes

Begins: TypeAlias = Literal["empty", "zeros", "learned"]


class TransformerXLAttention(Mixer[Log]):
    """Causal attention to the own segment and to `memory` tokens before it, with relative positions.

        y_i = W_o Σ_j softmax_j( ( (q_i + u)·k_j + (q_i + v)·W_r R(i - j) ) / √d ) v_j,   b - memory <= j <= i
        q = W_q x,   k_j, v_j = (W_k, W_v) x_j of the own segment,   (W_k, W_v) SG(x_j) of tokens before its begin b

    Dai et al. 2019, Transformer-XL. Segments are `length` tokens each, counted from the first. SG stops the gradient:
    what came before a segment is read, W_k and W_v learn from it, but it does not learn from being read; so the cost of
    a training step does not depend on how far back its memory reaches. Costs O(n·(memory + length)·d) time and memory
    over n tokens. Remembers inputs, half of what keys and values would take, of the last memory + length - 1 tokens. As
    q·(W_k x) is (W_kᵀ q)·x, few queries beside many tokens are taken to the inputs, whose keys and values are then
    never made (`absorbed`).
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Dai et al. 2019, Transformer-XL, arXiv 1901.02860"

        kind: Literal["transformer_xl"] = "transformer_xl"
        heads: Size = 4
        head_size: Size | None = None  # width / heads
        length: Size = 4  # tokens of a segment
        memory: Count = 4  # tokens before it that it sees
        stopped: Flag = True  # no gradient from a segment to what came before it
        same_length: Flag = False  # every token sees just `memory` tokens, itself among them (in evaluation)
        begins: Begins = "empty"  # what is in the memory before the first token, and is seen ("zeros" in transformers)
        position: Relative.Config = Relative.Config()
        dropout: Share = 0.0  # of the weights

        @model_validator(mode="after")
        def _sees(self) -> Self:
            if self.memory == 0 and self.same_length:
                raise ValueError("same_length shows a token the last `memory` tokens; with memory = 0 it sees nothing")
            if self.memory == 0 and self.begins != "empty":
                raise ValueError(f"a memory of 0 tokens cannot begin with {self.begins!r}; use begins = 'empty'")
            return self

        def size(self, width: int) -> int:
            """Channels per head."""
            if self.head_size is None and width % self.heads:
                raise ConfigError(
                    f"width {width} does not divide into {self.heads} heads; use a multiple of {self.heads}, or set "
                    "head_size"
                )
            return self.head_size or width // self.heads

        def build(self, width: int) -> TransformerXLAttention:
            return TransformerXLAttention(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            clamped = Relative.Config(clamp=5, width=10)
            return (
                *(cls(), cls(length=3, memory=5, stopped=False), cls(length=4, memory=1), cls(length=1, memory=3)),
                *(cls(length=3, memory=0), cls(length=2, memory=3, heads=3, head_size=10, position=clamped)),
                *(cls(length=4, memory=6, same_length=True), cls(length=3, memory=4, begins="zeros")),
                cls(length=2, memory=3, begins="learned", stopped=False),
                cls(length=5, memory=2, begins="learned", same_length=True),
                cls(length=20, memory=3, begins="learned"),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.heads, self.head_size, self.width = config.heads, config.size(width), Dim("width", width)
        self.memory, self.same_length = config.memory, config.same_length
        self.stopped, self.begins, self.dropout = config.stopped, config.begins, config.dropout
        inner = self.heads * self.head_size
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, width, bias=False)
        self.position = config.position.build(self.heads, self.head_size)
        self.before = nn.Parameter(torch.empty(width)) if config.begins == "learned" else None
        if self.before is not None:
            nn.init.normal_(self.before, std=0.02)
        self.weights = Look()
        self.cut(config.length)

    def cut(self, length: int) -> None:
        """Segments have this length from now on. Weights do not know it, but a state that has begun does."""
        self.length = length
        self.mask: Mask = Causal() & Segments(length=length, memory=self.memory)
        if self.same_length:
            self.mask = Window(back=self.memory - 1)
        self.reach = self.mask.reach

    def spec(self) -> Spec:
        name = "(memory - 1)" if self.same_length else "(memory + length - 1)"
        return Slot(((self.width,),), Entries(each=1, cap=Dim(name, self.reach.back or 0)), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        x = where.blank(x)
        query = self.query(x).unflatten(-1, (self.heads, self.head_size))
        seen, state = remember(state, where, x)
        held = self._held(where, seen)
        self.weights(lambda: self._looked(query, held))
        form = self._within if held.rows.count == 1 else self._across
        y: Tensor = self.out(form(query, held).flatten(2))
        return y, state

    def _held(self, where: Where, seen: Seen) -> Held:
        """What this call looks at: what it has seen, after what stood in the memory before the first token."""
        level = where.span.run and where.position is where.order and seen.position is where.position
        live = seen.parts[0]
        stopped = live.detach() if self.stopped and torch.is_grad_enabled() else None
        span = where.span
        if self.begins == "empty" or span.first // self.length * self.length >= self.memory:
            return Held(Recalled(where, seen, self.length, self.memory), live, stopped, level)
        before = live.new_zeros(self.width) if self.before is None else self.before
        before = before.expand(len(live), self.memory, -1)
        shift = -(-self.memory // self.length) * self.length  # whole segments, so that orders stay above 0
        rows = Recalled(_later(where, shift), _after(seen, self.memory, shift), self.length, self.memory)
        stopped = None if stopped is None else torch.cat((before, stopped), 1)
        return Held(rows, torch.cat((before, live), 1), stopped, level and span.first == 0)

    def _within(self, query: Tensor, held: Held) -> Tensor:
        """Every row is within one segment: what came before that is stopped, all else is as it is."""
        rows, states = held.rows, held.live
        if held.stopped is not None:
            states = torch.where((rows.seen.order < rows.begin)[..., None], held.stopped, states)
        form = self.absorbed if self._few(query.shape[1], states.shape[1]) else self.expanded
        return form(query, states, rows.where, rows.seen)

    def _across(self, query: Tensor, held: Held) -> Tensor:
        """Segments side by side, each beside its memory and itself."""
        rows = held.rows
        where, seen = rows.stamps
        key, value = (rows.keys(*(self._split(net, x) for x in held.states)) for net in (self.key, self.value))

        def some(query: Tensor, key: Tensor, value: Tensor, *stamps: Tensor) -> Tensor:
            where, seen = Stamps(*stamps[:2]), Stamps(*stamps[2:])
            places = rows.places(len(query)) if held.level else (where, seen)
            bias = self.position.term(query, key, *places)
            return attend(query, key, value, self.mask(where, seen), bias=bias, dropout=self._drop)

        stamps = (where.order, where.position, seen.order, seen.position)
        scores = self.heads * where.shape[1] * seen.shape[1]
        return rows.back(in_passes(some, scores, rows.queries(query), key, value, *stamps))

    def expanded(self, query: Tensor, states: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """The equation as it stands. Queries [B, T, H, d], inputs [B, N, D]; gives [B, T, H, d]."""
        key, value = self._split(self.key, states), self._split(self.value, states)
        sight = self.mask(where, seen)
        return attend(query, key, value, sight, bias=self.position.term(query, key, where, seen), dropout=self._drop)

    def absorbed(self, query: Tensor, states: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """The same over inputs: the one key that all heads share, and the value but for its projection."""
        key, value = (net.weight.view(self.heads, self.head_size, -1) for net in (self.key, self.value))
        asked = torch.einsum("bthd,hdw->bthw", query + self.position.u, key)
        bias, scale = self.position.place(query, where, seen), float(self.head_size**-0.5)
        states, sight = states.unsqueeze(2), self.mask(where, seen)  # [B, N, 1, D]
        if query.shape[1] == 1:  # one token: its heads are so many queries of one head
            visible, asked, bias = sight.pairs(1), asked.transpose(1, 2), bias.transpose(1, 2)
            y = attend(asked, states, states, visible, bias=bias, scale=scale, dropout=self._drop)
            y = where.blank(y.transpose(1, 2))
        else:
            y = attend(asked, states, states, sight, bias=bias, scale=scale, dropout=self._drop)
        return torch.einsum("bthw,hdw->bthd", y, value)

    def _few(self, queries: int, keys: int) -> bool:
        """Whether the absorbed form takes fewer multiplications."""
        inner = self.heads * self.head_size
        expanded = keys * inner * (self.width + queries)
        absorbed = queries * self.width * (inner + keys * self.heads)
        plain = type(self.key) is nn.Linear and type(self.value) is nn.Linear  # edited ones are only called
        return plain and absorbed < expanded

    def _looked(self, query: Tensor, held: Held) -> Tensor:
        key, value = self._split(self.key, held.live), self._split(self.value, held.live)
        sight = self.mask(held.rows.where, held.rows.seen)
        return written_out(query, key, value, sight, bias=self.position.bias)[1]

    def _split(self, net: nn.Linear, states: Tensor) -> Tensor:
        projected: Tensor = net(states)
        return projected.view(*states.shape[:2], self.heads, self.head_size)

    @property
    def _drop(self) -> float:
        return self.dropout if self.training else 0.0


class Held(NamedTuple):
    """What a call attends to, by segments."""

    rows: Recalled
    live: Tensor  # [B, N, D] inputs
    stopped: Tensor | None  # the same without their gradients; None: they stay
    level: bool  # known without looking: positions are orders, without gaps

    @property
    def states(self) -> tuple[Tensor, ...]:
        """Once or twice."""
        return (self.live,) if self.stopped is None else (self.live, self.stopped)


def _later(where: Stamps, shift: int) -> Stamps:
    """The same tokens, as if so many had been revealed before them."""
    later = Stamps(torch.where(where.real, where.order + shift, -1), where.position)
    span = where.span
    later.known(Span(span.first + shift, span.last + shift, span.run, span.padded))
    return later


def _after(seen: Stamps, memory: int, shift: int) -> Stamps:
    """The same entries `shift` later, after `memory` others that stand before position 0."""
    later, rows = _later(seen, shift), len(seen.order)
    before = torch.arange(-memory, 0, device=seen.order.device).expand(rows, -1)
    both = Stamps(torch.cat((before + shift, later.order), 1), torch.cat((before, seen.position), 1))
    span = later.span
    if span.run and span.first == shift:
        both.known(Span(shift - memory, max(span.last, shift - 1), run=True, padded=span.padded))
    return both
