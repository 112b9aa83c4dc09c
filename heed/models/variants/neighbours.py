"""The encoder of retrieved neighbours in RETRO (Borgeaud et al. 2022)."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor, nn

from ...core.config import Config as Tree
from ...core.config import Count, Share, Size
from ...core.contract import Reach, Where
from ...core.errors import ConfigError, InputError
from ...core.spec import Spec
from ...core.stamps import Stamps
from ...core.state import Seen
from ...mixers import Cross
from ...parts.attention.attend import attend, written_out
from ...parts.attention.multihead import Headed
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import AnyNorm, RMSNorm
from ...parts.positions import Rope
from ...parts.residual.wiring import AnyWiring, PreNorm, WiringConfig

Nothing: TypeAlias = "tuple[()]"


class Glance(Headed[Nothing]):
    """Every entry of a neighbour asks all of a source, which may be the neighbour itself; both turn by their places.

    Padding asks like any other entry, but nobody asks it. If there is nothing but padding, all of it is taken alike.
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
            raise InputError("a neighbour looks at a source; pass where.give(encoder_output=...)")
        visible = source.real[:, None, None, :]
        blind = ~visible.any(-1, keepdim=True)
        query = self.position.turn(self.queries(x), where).masked_fill(blind, 0)
        key, value = self.position.turn(self.keys(source.parts[0]), source), self.values(source.parts[0])
        visible = visible | blind
        self.weights(lambda: written_out(query, key, value, visible, scale=self.scale)[1])
        return self.merge(attend(query, key, value, visible, scale=self.scale, dropout=self.drop)), state


class Layer(nn.Module):
    """Neighbours look at themselves and, in some layers, at their chunk."""

    def __init__(self, config: NeighbourEncoder.Config, width: int, chunk: int, *, crossed: bool) -> None:
        super().__init__()
        self.itself = Glance(config.attention, config.position, width, width)
        self.cross = Glance(config.attention, config.position, width, chunk) if crossed else None
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
    """Layers that look both ways over each neighbour and at the decoder's stream over its chunk, then a projection."""

    class Config(Tree):
        depth: Size = 2
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
            Layer(config, width, stream, crossed=number in crossed) for number in range(config.depth)
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


def initialise(part: nn.Module, wiring: WiringConfig) -> None:
    """Glorot's uniform weights and no shift, as in every stack, then what the wiring wants."""
    for layer in part.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    wiring.temper(part)
