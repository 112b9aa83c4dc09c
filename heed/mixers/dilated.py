"""Dilated attention of LongNet (Ding et al. 2023): dense near by, sparser with distance, at linear cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from annotated_types import MinLen
from pydantic import model_validator
from torch import Tensor

from ..core.config import Flag, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Stamps
from ..core.state import Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.attention.merge import Piece, merged
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.attention.sdpa import How, Pairs
from ..parts.layers.norms import LayerNorm
from ..parts.masks import AnyMask, Causal, Whole
from ..parts.positions import AnyRelative, NoPosition, Rope, XPos

Sizes = Annotated[tuple[Size, ...], MinLen(1)]


class Dilated(Headed[Log]):
    """Attention within segments of several lengths, the longer ones more sparsely, in one softmax over all of them.

        y_i = W_o Σ_p a_ip Σ_j softmax_j(q_i·k_j / √d) v_j,   a_ip = Z_ip / Σ_p' Z_ip',   Z_ip = Σ_j e^(q_i·k_j / √d)
        over j in the segment of w_p tokens that i is in, j <= i, and i ≡ j ≡ o_h (mod r_p), counted from its beginning

    Ding et al. 2023. Pattern p has segments of w_p tokens and a dilation of r_p; the heads, in r_p groups, begin at
    o_h = 0, 1, 2 ... A key that two patterns show counts twice; a token that all patterns of a head skip gets zeros.
    Segments are counted in the order of tokens, so any cut into calls is the same. Costs O(n·Σ_p w_p/r_p²·d) time over
    n tokens, and remembers the keys and values of the last tokens, at most of the longest segment.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Ding et al. 2023, LongNet, arXiv 2307.02486"

        kind: Literal["dilated"] = "dilated"
        segments: Sizes = (64, 128, 256)  # tokens
        dilations: Sizes = (1, 2, 4)  # of each segment length: every how many-th token is seen
        mask: AnyMask = Causal()  # or Whole: then it does not stream
        position: AnyRelative = NoPosition.Config()
        detached: Flag = False  # the shares a of the patterns have no gradient (their code)
        filled: Flag = False  # where it looks both ways, zeros that fill up a row's segments are seen (their code)

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if len(self.segments) != len(self.dilations):
                raise ValueError(
                    f"{len(self.segments)} segments have {len(self.dilations)} dilations; give each one of its own"
                )
            if type(self.mask) not in (Causal, Whole):
                raise ValueError(f"within segments the mask is causal or whole, not {self.mask!r}")
            if self.filled and isinstance(self.mask, Causal):
                raise ValueError("filled shows what lies after a row's end, where causal attention does not look")
            if self.position.how == "scores":
                raise ValueError(f"{self.position!r} adds to the scores; use a code that rotates, such as rope or xpos")
            return self

        def build(self, width: int) -> Dilated:
            return Dilated(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            small = partial(cls, segments=(2, 4, 8), dilations=(1, 2, 4))
            odd = partial(cls, segments=(3, 5), dilations=(2, 3))  # some heads skip some tokens altogether
            return (
                *(cls(), small(), small(kv_heads=2, position=Rope.Config(), norm=LayerNorm())),
                *(odd(heads=5, head_size=4), cls(segments=(1, 30), dilations=(3, 7), kv_heads=1, bias=False)),
                *(small(detached=True, position=XPos.Config()), small(mask=Whole(), scale=0.3)),
                *(odd(mask=Whole(), filled=True), odd(mask=Whole(), filled=True, detached=True)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.causal, self.detached, self.filled = isinstance(config.mask, Causal), config.detached, config.filled
        self.patterns = tuple(Pattern(w, r) for w, r in zip(config.segments, config.dilations, strict=True))
        self.position = config.position.build(self.heads, self.head_size)
        far = max(pattern.reach for pattern in self.patterns)
        self.reach = Reach(far, 0 if self.causal else far)

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        entries = Entries(each=1, cap=Dim("segment", self.reach.back or 0))
        return Slot(((self.kv_heads, self.head_size),) * 2, entries, self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        x = where.blank(x)
        query, key = self.position.turn(self.queries(x), where), self.position.turn(self.keys(x), where)
        seen, state = remember(state, where, key, self.position.turn_value(self.values(x), where))
        key, value = seen.parts
        query, key = self.position.meet(query, key, where, seen)
        self.weights(lambda: self._weights(query, key, value, where, seen))
        boards = [Board.of(pattern, where, seen) for pattern in self.patterns]
        apart = self.filled or (self.detached and torch.is_grad_enabled())
        if not apart and query.shape[1] * key.shape[1] <= sum(board.pairs for board in boards):
            y = self._few(query, key, value, where, seen)
        else:
            how = How(None, self.scale, self.drop)
            pieces = [self._piece(board, key, value, seen) for board in boards]
            y = merged(query, pieces, how, detached=self.detached)
        return self.merge(where.blank(y)), state

    def _few(self, query: Tensor, key: Tensor, value: Tensor, where: Where, seen: Seen) -> Tensor:
        """Few queries: all keys in one softmax, each as often as patterns show it."""
        times = self._times(where, seen).to(query.dtype)
        return attend(query, key, value, times > 0, bias=times.log(), scale=self.scale, dropout=self.drop)

    def _piece(self, board: Board, key: Tensor, value: Tensor, seen: Seen) -> Piece:
        """One pattern: the tokens of a segment that a head keeps are the rows of one call."""
        if self.filled:
            key, value = seen.blank(key), seen.blank(value)
        key, value = (board.taken(self.each_head(x), seen) for x in (key, value))

        def take(x: Tensor) -> Tensor:
            return board.taken(x, board.query)

        return Piece(key, value, take, board.put, self._pairs(board, seen))

    def _pairs(self, board: Board, seen: Seen) -> Pairs:
        """The mask among the kept tokens: every slot holds a token, unless the row has ended or has holes."""
        if self.causal and board.run:
            return Pairs(triangle=True)
        there = board.filled(seen) if self.filled else board.arranged(seen.real, seen)  # [B, n, w]
        there = board.kept(there[..., None, None].expand(*there.shape, self.heads, 1))  # [R, l, H, 1]
        visible = there.permute(0, 2, 3, 1)  # [R, H, 1, l]
        if self.causal:
            place = torch.arange(visible.shape[-1], device=visible.device)
            visible = visible & (place <= place[:, None])
        return Pairs(visible)

    def _times(self, where: Where, seen: Seen) -> Tensor:
        """How many patterns show every key to every query. [B, H, T, N]"""
        query, key = where.order[:, None, :, None], seen.order[:, None, None, :]
        allowed = (query >= 0) & (key >= 0)
        allowed = allowed & (key <= query) if self.causal else allowed
        shown = (allowed & pattern.shows(query, key, self.heads) for pattern in self.patterns)
        return sum((pairs.long() for pairs in shown), start=torch.zeros((), dtype=torch.long, device=key.device))

    def _weights(self, query: Tensor, key: Tensor, value: Tensor, where: Where, seen: Seen) -> Tensor:
        """The weights of all pairs, written out; zeros that are seen take a share that is lost. [B, H, T, N]"""
        times = self._times(where, seen)
        if self.filled:
            full = sum(board.many(where, self.heads) for board in (Board.of(p, where, seen) for p in self.patterns))
            rest = (full - times.sum(-1))[..., None].masked_fill(~where.real[:, None, :, None], 0)
            times = torch.cat((times, rest), -1)
            key, value = F.pad(key, (0, 0, 0, 0, 0, 1)), F.pad(value, (0, 0, 0, 0, 0, 1))
        bias = times.clamp(min=1).to(query.dtype).log()
        weights = written_out(query, key, value, times > 0, bias=bias, scale=self.scale)[1]
        return weights[..., : seen.shape[1]]


@dataclass(frozen=True)
class Pattern:
    """Segments of `segment` tokens, of which a head keeps every `dilation`-th."""

    segment: int
    dilation: int

    @property
    def reach(self) -> int:
        """How far apart two tokens are at most that see one another."""
        return (self.segment - 1) // self.dilation * self.dilation

    def offsets(self, heads: int, device: torch.device) -> Tensor:
        """With which token of a segment each head begins: one more from group to group. [H]"""
        return torch.arange(heads, device=device) // self.group(heads)

    def group(self, heads: int) -> int:
        """How many heads begin alike."""
        return -(-heads // self.dilation)

    def shows(self, query: Tensor, key: Tensor, heads: int) -> Tensor:
        """Whether queries and keys of these orders are kept by a head, and in one segment. [B, H, T, N]"""
        offset = self.offsets(heads, key.device)[:, None, None]
        kept = (order % self.segment % self.dilation == offset for order in (query, key))
        both = next(kept) & next(kept)
        return both & (query // self.segment == key // self.segment)


@dataclass(frozen=True, eq=False)
class Board:
    """The tokens of a call, arranged in segments by their order: [B, n, w, ...], and w in steps of the dilation."""

    pattern: Pattern
    query: Stamps
    base: Tensor | int  # [B, 1] the order that the first slot of each row has
    run: bool  # the tokens of all rows stand side by side, from one order on
    segments: int  # n
    width: int  # w: as long as a segment, or as the tokens where there are fewer

    @classmethod
    def of(cls, pattern: Pattern, query: Stamps, seen: Stamps) -> Board:
        if query.span.run and seen.span.run:
            first = query.span.first // pattern.segment * pattern.segment
            base: Tensor | int = first
            extent = query.span.last + 1 - first
        else:
            last = query.order.amax(1, keepdim=True)
            begin = torch.where(query.real, query.order, last).amin(1, keepdim=True).clamp(min=0)
            base = begin // pattern.segment * pattern.segment
            extent = int((last + 1 - base).max())
        width = max(1, min(pattern.segment, extent))
        return cls(pattern, query, base, isinstance(base, int), max(1, -(-extent // width)), width)

    @property
    def steps(self) -> int:
        """How many tokens of a segment a head keeps at most."""
        return -(-self.width // self.pattern.dilation)

    @property
    def pairs(self) -> int:
        """Scores of a head."""
        return self.segments * self.steps**2

    def arranged(self, x: Tensor, stamps: Stamps) -> Tensor:
        """Everything in the slot of its order; zeros where there is nothing. [B, N, ...] -> [B, n, w, ...]"""
        room = self.segments * self.width
        if isinstance(self.base, int):
            front = stamps.span.first - self.base
            x = x[:, max(0, -front) :][:, : room - max(0, front)]
            front = max(0, front)
            x = F.pad(x, (*(0, 0) * (x.dim() - 2), front, room - front - x.shape[1]))
        else:
            slot = self._slots(stamps).reshape(*stamps.shape, *(1,) * (x.dim() - 2)).expand_as(x)
            x = x.new_zeros(len(x), room + 1, *x.shape[2:]).scatter(1, slot, x)[:, :room]
        return x.reshape(len(x), self.segments, self.width, *x.shape[2:])

    def kept(self, slots: Tensor) -> Tensor:
        """Of every segment what each head keeps. [B, n, w, H, *] -> [B·n, l, H, *]"""
        group, step = self.pattern.group(slots.shape[3]), self.pattern.dilation
        more = self.steps * step - slots.shape[2]
        slots = F.pad(slots, (*(0, 0) * (slots.dim() - 3), 0, more)) if more else slots
        cut = slots.reshape(*slots.shape[:2], self.steps, step, *slots.shape[3:])  # [B, n, l, r, H, *]
        parts = [
            cut[:, :, :, offset, begin : begin + group] for offset, begin in enumerate(range(0, cut.shape[4], group))
        ]
        return torch.cat(parts, 3).flatten(0, 1)

    def taken(self, x: Tensor, stamps: Stamps) -> Tensor:
        """[B, N, H, *] -> [B·n, l, H, *]"""
        return self.kept(self.arranged(x, stamps))

    def put(self, y: Tensor) -> Tensor:
        """The way back, for queries; zeros for those that a head skips. [B·n, l, H, *] -> [B, T, H, *]"""
        group, step = self.pattern.group(y.shape[2]), self.pattern.dilation
        y = y.reshape(-1, self.segments, *y.shape[1:])  # [B, n, l, H, *]
        wide = y.new_zeros(*y.shape[:3], step, *y.shape[3:])
        for offset, begin in enumerate(range(0, y.shape[3], group)):
            wide[:, :, :, offset, begin : begin + group] = y[:, :, :, begin : begin + group]
        slots = wide.flatten(2, 3)[:, :, : self.width].flatten(1, 2)
        if isinstance(self.base, int):
            front = self.query.span.first - self.base
            slots = F.pad(slots, (*(0, 0) * (slots.dim() - 2), 0, max(0, front + self.query.shape[1] - slots.shape[1])))
            return slots[:, front : front + self.query.shape[1]]
        slot = self._slots(self.query).clamp(max=slots.shape[1] - 1)
        return slots.take_along_dim(slot.reshape(*slot.shape, *(1,) * (slots.dim() - 2)), 1)

    def filled(self, seen: Stamps) -> Tensor:
        """The slots of each row's segments, the last one filled up, and each up to a multiple of the dilation.

        A row that is shorter than a segment is one segment. [B, n, w up to a multiple of r]
        """
        tokens, width = self._own()
        step = self.pattern.dilation
        slot = torch.arange(self.steps * step, device=tokens.device)
        segment = torch.arange(self.segments, device=tokens.device)[:, None]
        return (segment * width < tokens) & (slot < (width + step - 1) // step * step)

    def many(self, where: Stamps, heads: int) -> Tensor:
        """How many slots a query sees where segments are filled up; none if its head skips it. [B, H, T]"""
        _, width = self._own()
        step = self.pattern.dilation
        kept = where.order[:, None] % self.pattern.segment % step == self.pattern.offsets(heads, width.device)[:, None]
        return kept * ((width[..., 0] + step - 1) // step)[:, None]

    def _own(self) -> tuple[Tensor, Tensor]:
        """Tokens of each row, and how long its segments are. [B, 1, 1] both"""
        tokens = (self.query.order.amax(1)[:, None] + 1 - self.base).clamp(min=0)[..., None]
        return tokens, tokens.clamp(max=self.pattern.segment)

    def _slots(self, stamps: Stamps) -> Tensor:
        """Where each token of rows that differ lies; padding, and what is in earlier segments, beside the board."""
        room = self.segments * self.width
        slot = stamps.order - self.base
        return slot.masked_fill((stamps.order < 0) | (slot < 0) | (slot >= room), room)
