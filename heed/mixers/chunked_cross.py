"""Chunked cross-attention of RETRO (Borgeaud et al. 2022): tokens attend to what was retrieved for the chunk before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..core.config import Flag, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.errors import InputError
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Stamps
from ..core.state import Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.layers.norms import RMSNorm
from ..parts.positions import Rope


class ChunkedCross(Headed[Log]):
    """Every token attends to the neighbours of the last complete chunk before it, and to no others.

        y_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j,   j in the neighbours of chunk u(i) = (i + 1) // C - 1, or nothing

    Borgeaud et al. 2022, sec. 2.4. The neighbours of chunk u serve the tokens (u+1)·C - 1 to (u+2)·C - 2: the last
    token of the chunk, with which they arrive, and the next chunk but for its last token. Tokens before get exactly 0.
    Neighbours come as `where.given.neighbours`, those alone that arrived with the call: groups of `neighbours · length`
    entries, whose order is the number of their chunk (-1: none for this row) and whose position is the place within the
    neighbour (-1: padding). Costs O(n·E·d) time over n tokens with E entries per chunk; remembers the last chunk's.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Borgeaud et al. 2022, Improving Language Models by Retrieving from Trillions of Tokens"

        kind: Literal["chunked_cross"] = "chunked_cross"
        chunk: Size = 64  # tokens
        neighbours: Size = 2  # per chunk
        length: Size = 128  # tokens of a neighbour: itself, and what follows it in the database
        position: Rope.Config = Rope.Config()  # neighbours stand at 0 .. length-1, tokens at C-1 .. 2C-2
        turned_first: Flag = False  # only the first token served turns, to 2C-2, the others do not (RETRO-pytorch)
        null: Flag = True  # a learned key and value beside the neighbours: nothing may be taken

        @property
        def entries(self) -> int:
            """Of a chunk."""
            return self.neighbours * self.length

        def build(self, width: int) -> ChunkedCross:
            return ChunkedCross(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            small = cls(chunk=4, neighbours=2, length=3)  # as the laws retrieve
            return (
                small,
                small.model_copy(update={"null": False, "kv_heads": 2, "bias": False, "out_bias": True}),
                small.model_copy(update={"turned_first": True, "kv_heads": 1, "scale": 0.3, "head_norm": RMSNorm()}),
                cls(chunk=4, neighbours=1, length=6, heads=3, head_size=5, position=Rope.Config(share=0.4)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.config, self.reach, self.width = config, Reach(0, 0), width
        self.position = config.position.build(self.heads, self.head_size)
        shape = (self.kv_heads, self.head_size)
        self.null_key, self.null_value = (nn.Parameter(torch.randn(shape)) if config.null else None for _ in range(2))

    def spec(self) -> Spec:
        entries = Dim("entries", self.config.entries)
        parts = ((entries, self.kv_heads, self.head_size),) * 2
        growth = Entries(each=Dim("chunk", self.config.chunk), cap=Dim("chunk", 1))
        return Slot((*parts, (entries,)), growth, self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        seen, state = self._seen(where, state)
        if seen is None or not seen.shape[1]:
            return torch.zeros_like(x), state
        table = Table.of(where, seen.order, self.config.chunk)
        query = self.position.turn(self.queries(where.blank(x)), self._places(where))
        query, (key, value, visible) = table.grouped(query), self._taken(table, seen)
        self.weights(lambda: table.weights(written_out(query, key, value, visible, scale=self.scale)[1]))
        y = attend(query, key, value, visible, scale=self.scale, dropout=self.drop)
        return self.merge(table.back(y)).masked_fill(~table.served[..., None], 0), state

    def _seen(self, where: Where, state: Log | None) -> tuple[Seen | None, Log | None]:
        """The chunks whose neighbours are here, one entry each: what is remembered, and what arrived."""
        arrived = where.given.neighbours
        if arrived is None or not arrived.shape[1]:
            return (None, None) if state is None else state.read()
        must_fit(arrived, where, self.config, self.width)
        shown = (arrived.order >= 0) & (arrived.position >= 0)
        x = arrived.parts[0].masked_fill(~shown[..., None], 0)
        places = Stamps(arrived.order, arrived.position.clamp(min=0))
        key, value = self.position.turn(self.keys(x), places), self.position.turn_value(self.values(x), places)
        groups = (len(x), arrived.shape[1] // self.config.entries, self.config.entries)
        order = arrived.order.reshape(groups).amax(-1)
        parts = (part.reshape(*groups, *part.shape[2:]) for part in (key, value, shown.to(x.dtype)))
        return remember(state, Stamps(order, order.clamp(min=0)), *parts)

    def _taken(self, table: Table, seen: Seen) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and attention mask, for every group of queries. [B·G, E, K, d] twice and [B·G, 1, 1, E]"""
        key, value, shown = (table.taken(part) for part in seen.parts)
        visible = shown[:, None, None, :] > 0
        if self.null_key is None or self.null_value is None:
            return key, value, visible
        key, value = (
            torch.cat((null.expand(len(key), 1, *null.shape), entries), 1)
            for null, entries in ((self.null_key, key), (self.null_value, value))
        )
        return key, value, nn.functional.pad(visible, (1, 0), value=True)

    def _places(self, where: Where) -> Stamps:
        """Where tokens stand beside the neighbours that serve them."""
        chunk = self.config.chunk
        rank = (where.order + 1) % chunk
        place = 2 * (chunk - 1) * (rank == 0) if self.config.turned_first else rank + chunk - 1
        return Stamps(where.order, where.blank(place))


@dataclass(frozen=True, eq=False)
class Table:
    """Which chunk's neighbours serve which queries: queries are grouped by chunk."""

    place: Tensor | None  # [B, T] where a query goes among G·C, G·C = nowhere; None: all queries are of one group
    pick: Tensor  # [B, G] which of the entries serves a group
    served: Tensor  # [B, T] whether a token has neighbours at all
    chunk: int

    @classmethod
    def of(cls, where: Where, chunks: Tensor, chunk: int) -> Table:
        """For these tokens and the entries of these chunks [B, U]."""
        order, span = where.order, where.span
        begin = (order[:, :1] + 1) // chunk  # the group of a row's first token
        place = order + 1 - begin * chunk
        if span.run:
            count = ((span.first + 1) % chunk + order.shape[1] - 1) // chunk + 1
        else:
            count = int(place.masked_fill(~where.real, 0).max()) // chunk + 1
        slot = chunks + 1 - begin
        slot = slot.masked_fill((chunks < 0) | (slot < 0) | (slot >= count), count)
        number = torch.arange(chunks.shape[1], device=chunks.device).expand_as(chunks)
        pick = slot.new_full((len(order), count + 1), -1).scatter(1, slot, number)[:, :count]
        place = place.masked_fill(~where.real, count * chunk)
        served = where.real & (pick.take_along_dim((place // chunk).clamp(max=count - 1), 1) >= 0)
        return cls(None if count == 1 else place, pick.clamp(min=0), served, chunk)

    def taken(self, entries: Tensor) -> Tensor:
        """What serves each group. [B, U, ...] -> [B·G, ...]"""
        index = self.pick.reshape(*self.pick.shape, *(1,) * (entries.dim() - 2))
        return entries.take_along_dim(index, 1).flatten(0, 1)

    def grouped(self, x: Tensor) -> Tensor:
        """Queries by groups. [B, T, H, d] -> [B·G, C, H, d]"""
        if self.place is None:
            return x
        size = self.pick.shape[1] * self.chunk
        board = x.new_zeros(len(x), size + 1, *x.shape[2:])
        board = board.scatter(1, self.place[..., None, None].expand_as(x), x)[:, :size]
        return board.reshape(-1, self.chunk, *x.shape[2:])

    def back(self, y: Tensor) -> Tensor:
        """Undoes `grouped`."""
        if self.place is None:
            return y
        board = y.reshape(len(self.pick), -1, *y.shape[2:])
        return board.take_along_dim(self.place.clamp(max=board.shape[1] - 1)[..., None, None], 1)

    def weights(self, weight: Tensor) -> Tensor:
        """[B·G, H, C, E] -> [B, H, T, E], zeros where a token has no neighbours."""
        weight = self.back(weight.transpose(1, 2))
        return weight.masked_fill(~self.served[..., None, None], 0).transpose(1, 2)


def must_fit(arrived: Seen, where: Where, config: ChunkedCross.Config, width: int) -> None:
    """Raise unless these are neighbours of chunks whose last tokens are known, of the shape that is declared."""
    x, entries, rows = arrived.parts[0], config.entries, where.shape[0]
    if arrived.shape[0] != rows or x.shape[1:] != (arrived.shape[1], width):
        raise InputError(
            f"neighbours of shape {tuple(x.shape)} were given to {rows} rows of width {width}; needed is "
            "[rows, entries, width]"
        )
    if arrived.shape[1] % entries:
        raise InputError(
            f"{arrived.shape[1]} entries of neighbours arrived; they come in groups of {entries}, for each chunk "
            f"{config.neighbours} neighbours of {config.length}: fill shorter ones with entries of position -1"
        )
    if bool((arrived.position >= config.length).any()):
        raise InputError(
            f"a neighbour has {config.length} entries, at places 0 to {config.length - 1}; one arrived for place "
            f"{int(arrived.position.max())}: cut neighbours to that length, or set length"
        )
    order = arrived.order.reshape(rows, -1, entries)
    number = order.amax(-1)  # [B, U]
    if bool(((order >= 0) & (order != number[..., None])).any()):
        raise InputError(f"each group of {entries} entries of neighbours must be of one chunk, these mix several")
    ranked = number.sort(1).values
    if bool(((ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] >= 0)).any()):
        raise InputError(
            f"several groups of {entries} entries of neighbours are of one chunk; a chunk has {config.neighbours} "
            "neighbours: give it no more, or set neighbours"
        )
    chunk = config.chunk
    last = (where.order.amax(1, keepdim=True) + 1) // chunk - 1 if where.shape[1] else -torch.ones_like(number)
    if bool((number > last).any()):
        raise InputError(
            f"neighbours of chunk {int(number.max())} arrived before its last token; give them with the call that "
            f"holds it (chunks of {chunk} tokens: chunk u ends with token (u + 1)·{chunk} - 1)"
        )
