"""Recurrent Memory Transformer (Bulatov, Kuratov & Burtsev 2022): memory tokens carried from segment to segment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, cast

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Size
from ...core.contract import NOTHING, Given, Reach, Where
from ...core.errors import ConfigError, InputError
from ...core.spec import Dim, Entries, Slot, Spec
from ...core.state import Cell, Leaf, Log, State
from ..block import States
from ..decoder import Decoder


class RMT(Decoder):
    """A decoder over segments, each between two copies of the memory tokens: [memory; segment; memory].

        y_s, h_{s+1} = stack([h_s; x_s; h_s])       h_0 is learnt

    The segment attends to the copy in front; the output of the copy behind is the memory of the next segment. Any
    causal mixers will do; positions restart in every segment, and gradients flow through the memory as far back as a
    call reaches.

    Bulatov et al. 2022. Within a segment all tokens at once, segments one after the other: n tokens in segments of L
    with m tokens of memory cost n/L times what the stack costs over L + 2m tokens. Remembers m vectors, and what the
    stack remembers of the segment that is open.
    """

    once = False  # as often as the longest row has segments

    class Config(Decoder.Config):
        kind: Literal["rmt"] = "rmt"  # type: ignore[assignment]  # a shape of its own
        segment: Size = 64  # tokens
        memory: Size = 4  # tokens

        @model_validator(mode="after")
        def _alone(self) -> Self:
            if self.cross is not None:
                raise ValueError("the memory of an rmt begins with nothing but itself; leave cross unset")
            if self.narrow is not None:
                raise ValueError(
                    "memory and tokens stand in one row, so embeddings are as wide as the stream; drop narrow"
                )
            return self

        def build(self) -> RMT:
            return RMT(self)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.segment, self.tokens = config.segment, config.memory
        _must_fit(self, config)
        self.memory = nn.Parameter(torch.randn(config.memory, config.width) * config.width**-0.5)
        self.reach = Reach(None, 0)

    @property
    def longest(self) -> int | None:
        return None  # positions restart in every segment

    def spec(self) -> Spec:
        width = Dim("width", self.memory.shape[1])
        held = Slot(((Dim("memory", self.tokens), width),), Entries(fixed=1), self.memory.dtype)
        return held, _within(self.stack.spec(), self.tokens, self.segment)

    def start(self, rows: int, given: Given = NOTHING) -> States:
        return Cell(self.memory.expand(rows, -1, -1).clone()), self.stack.start(rows)

    def hidden(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        stream, state = self.remember(x, where, state)
        return self.narrowed(stream), state

    def remember(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """The hidden states of these tokens, from bare embeddings on, and the state after them."""
        x, pieces = where.blank(x), Pieces.of(where, self.segment, self.tokens)
        if state is None:
            pieces.must_begin()
            memory, inner = self.memory.expand(len(x), -1, -1), None
        else:
            (memory,), inner = cast(Cell, state[0]).take(), cast(States, state[1])
        made = []
        for number in range(len(pieces.count)):
            index, here = pieces.columns(number)
            first, last = pieces.reached[number]
            given = torch.cat((memory, x[:, first:last]), 1).take_along_dim(index[..., None], 1)
            y, inner = self.stack(self.embeddings.place(given, here), here, inner)
            made.append(y)
            over = pieces.over[number]
            if bool(over.any()):
                written = y.take_along_dim(pieces.memory_after(number)[..., None], 1)
                memory = torch.where(over[:, None, None], written, memory)
                inner = None if inner is None else self._restarted(inner, over)
        stream = torch.cat(made, 1).take_along_dim(pieces.back[..., None], 1)
        return where.blank(stream), None if inner is None else (Cell(memory), inner)

    def _restarted(self, inner: States, over: Tensor) -> States:
        """What the stack remembers, and nothing in rows whose segment is over."""
        fresh = self.stack.start(len(over))
        return fresh if bool(over.all()) else cast(States, _mixed(inner, fresh, over))


@dataclass(frozen=True, eq=False)
class Pieces:
    """The tokens of a call, cut at the ends of segments: round i takes the i-th piece of every row.

    A piece is what a row's segment gets in this call: the memory, if it begins here; tokens; and the memory again, if
    it is over with them. Everything is by round and row, [R, B].
    """

    where: Where
    length: int
    memory: int
    low: Tensor  # the order of the first token
    count: Tensor  # of tokens

    @classmethod
    def of(cls, where: Where, length: int, memory: int) -> Pieces:
        order = where.order
        first, tokens = order[:, 0].clamp(min=0), where.real.sum(1)
        expected = first[:, None] + torch.arange(order.shape[1], device=order.device)
        if bool((where.real & (order != expected)).any()):
            raise InputError(
                "segments are read token by token: the orders of a row must follow one another without a gap"
            )
        end = first + tokens
        rounds = int((-(-end // length) - first // length).clamp(min=1).max())
        segment = first // length + torch.arange(rounds, device=order.device)[:, None]
        low = torch.maximum(first, segment * length)
        return cls(where, length, memory, low, (torch.minimum(end, (segment + 1) * length) - low).clamp(min=0))

    def must_begin(self) -> None:
        """Raise unless every row begins with a segment: without a state nothing is known of what came before."""
        if bool((self.low[0] % self.length)[self.count[0] > 0].any()):
            raise InputError(
                f"without a state a row begins with the first token of a segment of {self.length}; it begins with the "
                f"orders {self.low[0].tolist()}. Pass the state that the tokens before them left"
            )

    @cached_property
    def lead(self) -> Tensor:
        """Memory tokens in front."""
        return ((self.count > 0) & (self.low % self.length == 0)) * self.memory

    @cached_property
    def over(self) -> Tensor:
        """Whether the segment is over with this piece."""
        return (self.count > 0) & ((self.low + self.count) % self.length == 0)

    @cached_property
    def sizes(self) -> Tensor:
        """Tokens and memory tokens."""
        return self.lead + self.count + self.over * self.memory

    @cached_property
    def reached(self) -> list[tuple[int, int]]:
        """From which column to which the pieces of a round lie, over all rows."""
        column = torch.where(self.count > 0, self.low - self.low[:1], self.where.shape[1])
        last = torch.where(self.count > 0, column + self.count, 0)
        return [(min(a, b), b) for a, b in zip(column.amin(1).tolist(), last.amax(1).tolist(), strict=True)]

    def columns(self, number: int) -> tuple[Tensor, Where]:
        """Where the entries of a round stand beside one another in (memory, reached columns), and their stamps."""
        low, count, lead = (part[number][:, None] for part in (self.low, self.count, self.lead))
        place = torch.arange(int(self.sizes[number].max().clamp(min=1)), device=low.device) - lead  # 0 = first token
        token = (low - self.low[0][:, None] - self.reached[number][0]) + place + self.memory
        index = torch.where(place < 0, place + lead, torch.where(place < count, token, place - count))
        order = self.memory + torch.where(place < count, low % self.length, self.length - count) + place
        order = torch.where(place < 0, place + lead, order)
        real = place + lead < self.sizes[number][:, None]
        return index.masked_fill(~real, 0), Where(order.masked_fill(~real, -1), order.masked_fill(~real, 0))

    def memory_after(self, number: int) -> Tensor:
        """Where the memory behind the tokens of a round stands; anything in rows without. [B, memory]"""
        end = (self.lead + self.count)[number][:, None] + torch.arange(self.memory, device=self.low.device)
        return end.clamp(max=int(self.sizes[number].max()) - 1)

    @cached_property
    def back(self) -> Tensor:
        """Where each token of the call stands in the rounds, side by side. [B, T]"""
        widths = self.sizes.amax(1).clamp(min=1)
        begin = (widths.cumsum(0) - widths)[:, None] + self.lead - self.low  # [R, B]
        order = self.where.order.clamp(min=0)
        number = (order // self.length - self.low[:1].mT // self.length).clamp(0, len(self.low) - 1)
        place = order + begin.mT.take_along_dim(number, 1)
        return place.masked_fill(~self.where.real, 0)


def _must_fit(model: RMT, config: RMT.Config) -> None:
    if model.stack.reach.ahead != 0:
        raise ConfigError("what a memory holds must not depend on tokens to come; use mixers that look back only")
    width = config.wiring.leaves(config.width)
    if width != config.width:
        raise ConfigError(
            f"the memory leaves a stack of width {config.width} {width} channels wide; use another wiring"
        )
    position = model.embeddings.position
    needed = config.segment + 2 * config.memory
    if position is not None and position.longest is not None and position.longest < needed:
        raise ConfigError(
            f"a segment of {config.segment} between twice {config.memory} tokens of memory has {needed} positions, the "
            f"position code {position.longest}; set segment = {max(1, position.longest - 2 * config.memory)}"
        )


def _within(spec: Spec, memory: int, segment: int) -> Spec:
    """What a stack remembers of the memory in front and of a segment that is not over, at most."""
    if isinstance(spec, tuple):
        return tuple(_within(part, memory, segment) for part in spec)
    entries = spec.entries
    if not entries.each:
        return spec
    lead, most = -(-memory // entries.each), -(-(memory + segment - 1) // entries.each)
    if entries.cap is not None:
        lead, most = min(lead, entries.cap), min(most, entries.cap)
    return replace(spec, entries=replace(entries, lead=lead, cap=most - lead))


def _mixed(old: State, new: State, chosen: Tensor) -> State:
    """Rows of `new` where chosen, else of `old`."""
    if isinstance(old, tuple) and isinstance(new, tuple):
        return tuple(_mixed(a, b, chosen) for a, b in zip(old, new, strict=True))
    before, after = cast(Leaf, old).tensors(), cast(Leaf, new).tensors()
    if isinstance(old, Log):
        most = max(before[0].shape[1], after[0].shape[1])
        before, after = _holed(before, most), _holed(after, most)
    rows = [torch.where(chosen.reshape(-1, *(1,) * (a.dim() - 1)), b, a) for a, b in zip(before, after, strict=True)]
    if isinstance(old, Log):
        held = (rows[0] >= 0).any(0)  # columns that only rows of the other state had filled are dropped
        rows = [part[:, held] for part in rows]
    return cast(State, cast(Leaf, old).rebuild(rows))


def _holed(held: tuple[Tensor, ...], length: int) -> tuple[Tensor, ...]:
    """The stamps and parts of a log, behind as many holes as fill it up to this length."""
    order, *parts = held
    lacking = length - order.shape[1]
    hole = order.new_full((order.shape[0], lacking), -1)
    filled = [torch.cat((p.new_zeros(p.shape[0], lacking, *p.shape[2:]), p), 1) for p in parts]
    return (torch.cat((hole, order), 1), *filled)
