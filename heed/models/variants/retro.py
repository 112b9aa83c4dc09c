"""RETRO (Borgeaud et al. 2022): a decoder with chunked cross-attention to retrieved neighbours."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias, cast

import torch
from annotated_types import MinLen
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Config as Tree
from ...core.config import Count, Parts, Share
from ...core.contract import NOTHING, Given, Mixer, Reach, Where
from ...core.errors import ConfigError, InputError
from ...core.interfaces import Retrieves
from ...core.spec import Dim, Entries, Slot, Spec
from ...core.stamps import Stamps
from ...core.state import Log, Seen, State, allocate, remember
from ...mixers import Attention, ChunkedCross, Cross, SomeMixers
from ...mixers.chunked_cross import must_fit
from ...parts.attention.attend import attend, written_out
from ...parts.attention.multihead import Headed
from ...parts.feedforward import Absent, FeedForward, SomeFeedForwards
from ...parts.layers.norms import AnyNorm, RMSNorm
from ...parts.positions import Rope
from ...parts.residual.wired import Wiring
from ...parts.residual.wiring import AnyWiring, DeepNorm, PostNorm, PreNorm, WiringConfig
from ..block import Block, States
from ..decoder import Decoder

Nothing: TypeAlias = "tuple[()]"


class NeighbourAttention(Headed[Nothing]):
    """Attention of a neighbour's tokens to a source, which may be the neighbour itself, with rotary positions.

    Padding is masked as a key. If there is nothing but padding, all keys weigh alike.
    """

    def __init__(self, config: Cross.Config, position: Rope.Config, width: int, source: int) -> None:
        super().__init__(config, width)
        shared = self.kv_heads * self.head_size
        if source != width:
            self.key = nn.Linear(source, shared, bias=self.key.bias is not None)
            self.value = nn.Linear(source, shared, bias=self.value.bias is not None)
        self.position = position.build(self.heads, self.head_size)
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        source = where.given.encoder_output
        if source is None:
            raise InputError("a neighbour attends to a source; pass where.give(encoder_output=...)")
        visible = source.real[:, None, None, :]
        blind = ~visible.any(-1, keepdim=True)
        query = self.position.turn(self.queries(x), where).masked_fill(blind, 0)
        key, value = self.position.turn(self.keys(source.parts[0]), source), self.values(source.parts[0])
        visible = visible | blind
        self.weights(lambda: written_out(query, key, value, visible, scale=self.scale)[1])
        return self.merge(attend(query, key, value, visible, scale=self.scale, dropout=self.drop)), state


class NeighbourLayer(nn.Module):
    """Self-attention within a neighbour and, in some layers, cross-attention to its chunk."""

    def __init__(self, config: NeighbourEncoder.Config, width: int, chunk: int, *, crossed: bool) -> None:
        super().__init__()
        self.itself = NeighbourAttention(config.attention, config.position, width, width)
        self.cross = NeighbourAttention(config.attention, config.position, width, chunk) if crossed else None
        self.feedforward = config.feedforward.build(width)
        self.wiring = config.wiring.build(width, 3 if crossed else 2, config.norm, config.dropout)
        for part in (self.itself, self.cross, self.feedforward):
            if part is not None:
                initialise(part, config.wiring)

    def forward(self, x: Tensor, where: Where, chunk: Seen) -> Tensor:
        def itself(stream: Tensor) -> Tensor:
            return self.itself(stream, where.give(encoder_output=Seen.of(where, stream)))[0]

        def crossed(stream: Tensor) -> Tensor:
            return stream if self.cross is None else self.cross(stream, where.give(encoder_output=chunk))[0]

        middle = [] if self.cross is None else [crossed]
        y: Tensor = self.wiring(x, [itself, *middle, self.feedforward.alone])
        return y


class NeighbourEncoder(nn.Module):
    """Bidirectional layers over each neighbour, with cross-attention to the decoder's hidden states of its chunk."""

    class Config(Tree):
        depth: Parts = 2
        attention: Cross.Config = Cross.Config()  # the sizes of both attentions
        position: Rope.Config = Rope.Config()
        crossed: tuple[Count, ...] | None = None  # layers that look at the chunk; None: all
        feedforward: FeedForward.Config = FeedForward.Config(activation="gelu")
        norm: AnyNorm = RMSNorm()
        wiring: AnyWiring = PreNorm()
        dropout: Share = 0.0

        def build(self, width: int, stream: int) -> NeighbourEncoder:
            """For embeddings of `width` channels and a decoder's stream of `stream`."""
            return NeighbourEncoder(self, width, stream)

    def __init__(self, config: Config, width: int, stream: int) -> None:
        super().__init__()
        crossed = range(config.depth) if config.crossed is None else config.crossed
        if any(layer >= config.depth for layer in crossed):
            raise ConfigError(f"crossed names layer {max(crossed)} of an encoder of {config.depth}, counted from 0")
        self.layers = nn.ModuleList(
            NeighbourLayer(config, width, stream, crossed=number in crossed) for number in range(config.depth)
        )
        self.ends = config.wiring.ends(width, config.norm)
        self.out = nn.Linear(config.wiring.leaves(width), stream)

    def forward(self, x: Tensor, places: Stamps, chunk: Tensor) -> Tensor:
        """Neighbours [R, m, width] at these places, padding of order -1, beside the stream [R, C, stream] of chunks."""
        where = Where(places.order, places.position)
        beside = Seen.of(Where.run(*chunk.shape[:2], device=chunk.device), chunk)
        x = self.ends.enter(x)
        for layer in self.layers:
            x = layer(x, where, beside)
        encoded: Tensor = self.out(self.ends.leave(x))
        return encoded


class Retro(Decoder, Retrieves):
    """A decoder some of whose layers attend to retrieved neighbours, which an encoder encodes beside their chunk.

        found = neighbours(ids, padding=0)                             # [B, chunks, neighbours, length] token ids
        logits, _ = model(tokens, where.give(neighbours=found))

    Neighbours arrive with the call that holds the last token of their chunk, those alone: then any cut of a text into
    calls gives the same. The encoder attends to the decoder's hidden states of the chunk at the first layer that looks
    at neighbours, so beside the states of its layers the model remembers those of the open chunk.

    Borgeaud et al. 2022. With E entries of neighbours for each chunk of C tokens, a text of n tokens costs a decoder
    over n tokens, n·E attention scores in every layer that looks, and the encoder over n/C·E entries, however large the
    database.
    """

    class Config(Decoder.Config):
        kind: Literal["retro"] = "retro"  # type: ignore[assignment]  # a shape of its own
        mixer: SomeMixers = (Attention.Config(position=Rope.Config()),)
        crossed: Annotated[tuple[Count, ...], MinLen(1)] = (0,)  # layers that look at neighbours, counted from 0
        chunked: ChunkedCross.Config = ChunkedCross.Config()
        encoder: NeighbourEncoder.Config = NeighbourEncoder.Config()
        feedforward: SomeFeedForwards = (FeedForward.Config(activation="gelu"),)
        norm: AnyNorm = RMSNorm()

        @model_validator(mode="after")
        def _one_after_the_other(self) -> Self:
            if max(self.crossed) >= self.depth:
                raise ValueError(f"crossed names layer {max(self.crossed)} of {self.depth}, counted from 0")
            wirings = (self.wiring, self.encoder.wiring)
            if not all(isinstance(wiring, PreNorm | PostNorm | DeepNorm) for wiring in wirings):
                raise ValueError("both wirings must take one part after the other: pre, post or deepnorm")
            if any(isinstance(self.feedforward_of(layer), Absent.Config) for layer in self.crossed):
                raise ValueError("a layer that looks at neighbours needs a feed-forward; it must not be absent")
            if self.cross or self.order or self.convolution or self.one_position or self.segments or self.boxes:
                raise ValueError("RETRO has no cross, order, convolution, one_position, segments or boxes; leave them")
            return self

        def build(self) -> Retro:
            return Retro(self)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.chunk, self.first = config.chunked.chunk, min(config.crossed)
        for number in set(config.crossed):
            self.stack.blocks[number] = Retrieving(cast(Block, self.stack.blocks[number]), config)
        self.encoder = config.encoder.build(config.embedded, config.width)
        self.reach = self.stack.reach.then(Reach(2 * self.chunk - 2, 0))

    def spec(self) -> Spec:
        return (*cast("tuple[Spec, ...]", self.stack.spec()), self._open)

    def start(self, rows: int, given: Given = NOTHING) -> States:
        return (*super().start(rows, given), allocate(self._open, rows, self.device))

    def hidden_states(self, tokens: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.hidden(self.embeddings.embed(tokens, where), self._embedded(where), state)

    def hidden(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """From bare embeddings on, of neighbours too."""
        stream, state = self._streamed(x, where, state)
        return self.narrowed(stream), state

    def unaided(self, tokens: Tensor, where: Where) -> Tensor:
        """The logits of the model without its cross-attention to neighbours."""
        x = self.stack.ends.enter(self.embeddings(tokens, where))
        for block in self.stack.layers:
            x = block.alone(x, where) if isinstance(block, Retrieving) else block(x, where)[0]
        logits: Tensor = self.head(self.narrowed(self.stack.ends.leave(x)))
        return logits

    @property
    def _open(self) -> Slot:
        """The hidden states of the open chunk."""
        parts = ((Dim("width", self.config.width),),)
        return Slot(parts, Entries(each=1, cap=Dim("(chunk - 1)", self.chunk - 1)), self.head.weight.dtype)

    def _streamed(self, x: Tensor, where: Where, state: States | None) -> tuple[Tensor, States | None]:
        x = self.stack.ends.enter(self.embeddings.place(x, where))
        layers = self.stack.layers
        after: list[State | None] = []
        *before, open_ = (None,) * (len(layers) + 1) if state is None else state
        for number, (block, memory) in enumerate(zip(layers, before, strict=True)):
            held = cast("States | None", memory)
            if number == self.first and isinstance(block, Retrieving):
                x, own = block.attended(x, where, held)
                where, open_ = self._encoded(x, where, cast("Log | None", open_))
                x, rest = block.finished(x, where, held)
                kept = None if own is None or rest is None else (*own, *rest)
            else:
                x, kept = block(x, where, held)
            after.append(kept)
        x = self.stack.ends.leave(x)
        return x, None if state is None else tuple(kept for kept in (*after, open_) if kept is not None)

    def _encoded(self, x: Tensor, where: Where, open_: Log | None) -> tuple[Where, Log | None]:
        """The neighbours that arrived, encoded beside the hidden states of their chunks."""
        near, open_ = remember(open_, where, where.blank(x))
        found, many = where.given.neighbours, self.config.chunked
        if found is None or not found.shape[1]:
            return where, open_
        must_fit(found, where, many, self.config.embedded)
        place = found.position.reshape(-1, many.length)
        if bool(((place >= 0) & (place != torch.arange(many.length, device=x.device))).any()):
            raise InputError(
                f"the entries of a neighbour stand at its places 0 to {many.length - 1} in order, or at -1 if they are "
                "padding; make neighbours with neighbours(ids)"
            )
        number = found.order.reshape(len(x), -1, many.entries).amax(-1)  # [B, U]
        chunk = self._chunks(near, where, number).repeat_interleave(many.neighbours, 0)
        hidden = (found.order < 0) | (found.position < 0)
        order = found.order.masked_fill(hidden, -1).view(-1, many.length)
        places = Stamps(order, found.position.clamp(min=0).view(-1, many.length))
        entries = found.blank(found.parts[0]).reshape(-1, many.length, self.config.embedded)
        encoded = self.encoder(entries * self.embeddings.scale, places, chunk).view(*found.shape, -1)
        return where.give(neighbours=Seen(found.order, found.position, encoded)), open_

    def _chunks(self, near: Seen, where: Where, number: Tensor) -> Tensor:
        """The stream over these chunks, whose last tokens this call must hold. [B, U] -> [B·U, C, width]"""
        lead = near.shape[1] - where.shape[1]
        token = number[..., None] * self.chunk + torch.arange(self.chunk, device=number.device)  # [B, U, C]
        column = lead + token - where.order[:, :1, None]
        held = column.clamp(0, max(0, near.shape[1] - 1)).flatten(1)
        there = (near.order.take_along_dim(held, 1).view_as(token) == token).all(-1) & (column[..., -1] >= lead)
        if bool((~there & (number >= 0)).any()):
            wrong = int(number[~there & (number >= 0)][0])
            raise InputError(
                f"neighbours of chunk {wrong} must arrive with the call that holds its last token, which is "
                f"{(wrong + 1) * self.chunk - 1}; this call holds {where.span.first} to {where.span.last}"
            )
        return near.parts[0].take_along_dim(held[..., None], 1).view(-1, self.chunk, self.config.width)

    def _embedded(self, where: Where) -> Where:
        """Neighbours as bare embeddings instead of token ids."""
        found = where.given.neighbours
        if found is None:
            return where
        ids = found.parts[0].masked_fill((found.position < 0) & (found.parts[0] < 0), 0)
        bare = self.embeddings.embed(ids, Where(found.order, found.position))
        return where.give(neighbours=Seen(found.order, found.position, bare))


class Retrieving(Block):
    """A block that looks at neighbours between its mixer and its feed-forward."""

    def __init__(self, block: Block, config: Retro.Config) -> None:
        cross = config.chunked.build(config.width)
        initialise(cross, config.wiring)
        own = (config.wiring.build(config.width, 1, config.norm, config.dropout) for _ in range(3))
        first, crossing, after = own
        super().__init__(block.mixer, cross, block.feedforward, first)
        self.crossing, self.after = crossing, after

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        x, own = self.attended(x, where, state)
        x, rest = self.finished(x, where, state)
        return x, None if own is None or rest is None else (*own, *rest)

    def attended(self, x: Tensor, where: Where, state: States | None) -> tuple[Tensor, States | None]:
        """Up to the neighbours."""
        x, kept = _wired(self.wiring, self.mixer, x, where, None if state is None else state[0])
        return x, None if kept is None else (kept,)

    def finished(self, x: Tensor, where: Where, state: States | None) -> tuple[Tensor, States | None]:
        """From the neighbours on."""
        _, cross, feedforward = self.parts
        x, kept = _wired(self.crossing, cross, x, where, None if state is None else state[1])
        x, more = _wired(self.after, feedforward, x, where, None if state is None else state[2])
        return x, None if kept is None or more is None else (kept, more)

    def alone(self, x: Tensor, where: Where) -> Tensor:
        """Without looking at neighbours at all."""
        x, _ = self.attended(x, where, None)
        return _wired(self.after, self.feedforward, x, where, None)[0]


def neighbours(ids: Tensor, first: Tensor | int = 0, *, padding: int | None = None) -> Seen:
    """Retrieved token ids [B, chunks, neighbours, length] of the chunks from `first` (or `first[b]`) on, stamped.

    Tokens with the id `padding`, and ids below 0, are masked.
    """
    if ids.dim() != 4 or ids.is_floating_point():
        raise InputError(
            f"neighbours must be token ids of shape [rows, chunks, neighbours, length], got {ids.dtype} of shape "
            f"{tuple(ids.shape)}"
        )
    begin = first[:, None] if isinstance(first, Tensor) else first
    chunk = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape[:2]) + begin
    order = chunk[..., None, None].expand_as(ids)
    hidden = ids < 0 if padding is None else (ids < 0) | (ids == padding)
    place = torch.arange(ids.shape[3], device=ids.device).expand_as(ids).masked_fill(hidden, -1)
    return Seen(order.flatten(1), place.flatten(1), ids.flatten(1))


def _wired(
    wiring: Wiring, part: Mixer[Any], x: Tensor, where: Where, state: State | None
) -> tuple[Tensor, State | None]:
    """The stream after one part, and what that remembers."""
    after: list[State | None] = []

    def mixed(stream: Tensor) -> Tensor:
        y, kept = part(stream, where, state)
        after.append(kept)
        return y

    y: Tensor = wiring(x, [mixed])
    return y, after[0]


def initialise(part: nn.Module, wiring: WiringConfig) -> None:
    """Glorot's uniform weights and no shift, as in every stack, then what the wiring wants."""
    for layer in part.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    wiring.temper(part)
