"""A stack: blocks one after the other. A hybrid is a stack whose mixers are a tuple, tiled over the depth."""

from __future__ import annotations

from functools import reduce
from typing import Any, Self, cast

from pydantic import field_validator, model_validator
from torch import Tensor, nn

from ..core.config import Config as Tree
from ..core.config import Count, Flag, Parts, Share, Size
from ..core.contract import NOTHING, Given, Mixer, MixerConfig, Reach, Where
from ..core.spec import Spec
from ..core.state import State
from ..mixers import AnyCross, Attention, SomeMixers
from ..parts.feedforward import FeedForward, SomeFeedForwards
from ..parts.layers.norms import AnyStackNorm, LayerNorm
from ..parts.positions.base import Relates
from ..parts.residual.wiring import AnyWiring, PreNorm
from .block import Block, States, present
from .convolved import Convolved


class Stack(Mixer[States]):
    """Blocks in order; its state is the tuple of theirs."""

    class Config(Tree):
        width: Size
        depth: Parts
        mixer: SomeMixers = (Attention.Config(),)
        cross: AnyCross | None = None  # attention to a source, in every block; None: there is no source
        feedforward: SomeFeedForwards = (FeedForward.Config(),)
        norm: AnyStackNorm = LayerNorm()
        wiring: AnyWiring = PreNorm()
        dropout: Share = 0.0
        order: tuple[Count, ...] | None = None  # which block stands at each depth (ALBERT: few, again and again)
        one_position: Flag = False  # all blocks share the position code of the first (T5)
        convolution: Convolved.Config | None = None  # beside the first block (DeBERTa v2)

        @field_validator("cross", mode="before")
        @classmethod
        def _all_of_the_source(cls, value: Any) -> Any:
            return {"kind": "cross", **value} if isinstance(value, dict) else value

        @model_validator(mode="after")
        def _whole_order(self) -> Self:
            if self.order is not None and (len(self.order) != self.depth or set(self.order) != set(range(self.blocks))):
                raise ValueError(f"order must name the blocks 0 to n for each of {self.depth} layers, not {self.order}")
            return self

        @property
        def blocks(self) -> int:
            """Blocks with weights of their own."""
            return self.depth if self.order is None else max(self.order, default=-1) + 1

        def mixer_of(self, block: int) -> MixerConfig:
            """The mixers are tiled over the blocks."""
            return tiled(self.mixer, block)

        def feedforward_of(self, block: int) -> MixerConfig:
            """So are the feed-forwards."""
            return tiled(self.feedforward, block)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.width = config.width
        self.ends = config.wiring.ends(config.width, config.norm)
        self.blocks = nn.ModuleList(_block(config, block) for block in range(config.blocks))
        self.order = config.order or tuple(range(config.depth))
        if config.one_position:
            _share_position(self.layers)
        self.reach = reduce(Reach.then, (block.reach for block in self.layers))

    def spec(self) -> Spec:
        return tuple(block.spec() for block in self.layers) if self.streams else ()  # one that looks ahead stops all

    def start(self, rows: int, given: Given = NOTHING) -> States:
        self.must_stream()
        return tuple(block.start(rows, given) for block in self.layers)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        self.ends.told(where)
        x = self.ends.enter(x)
        after: list[State | None] = []
        for block, before in zip(self.layers, (None,) * len(self.order) if state is None else state, strict=True):
            x, kept = block(x, where, cast("States | None", before))
            after.append(kept)
        return self.ends.leave(x), None if state is None else tuple(kept for kept in after if kept is not None)

    @property
    def layers(self) -> list[Block]:
        """The block at each depth."""
        return [cast(Block, self.blocks[index]) for index in self.order]


def tiled(configs: MixerConfig | tuple[MixerConfig, ...], block: int) -> MixerConfig:
    """One for all, or several in turn."""
    several = configs if isinstance(configs, tuple) else (configs,)
    return several[block % len(several)]


def _share_position(blocks: list[Block]) -> None:
    first = cast(Relates, blocks[0].mixer.position)
    for block in blocks[1:]:
        own = block.mixer.position
        block.mixer.position = own.beside(first) if isinstance(own, Relates) else first


def _block(config: Stack.Config, number: int) -> Block:
    width = config.width
    mixer = config.mixer_of(number).build(width)
    cross = None if config.cross is None else config.cross.build(width)
    feedforward = config.feedforward_of(number).build(width)
    count = len(present(mixer, cross, feedforward))
    wiring = config.wiring.at(number).build(width, count, config.norm, config.dropout)
    block = Block(mixer, cross, feedforward, wiring)
    for part in block.parts:
        _initialise(part)
        config.wiring.temper(part)
    if config.convolution is None or number > 0:
        return block
    return Convolved(block, config.convolution, width, config.norm)


def _initialise(part: nn.Module) -> None:
    """Glorot's uniform weights and no shift: variance is kept forwards and backwards alike (Glorot & Bengio 2010)."""
    for layer in part.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
