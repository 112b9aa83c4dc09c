"""A stack: blocks one after the other. A hybrid is a stack whose mixers are a tuple, tiled over the depth."""

from __future__ import annotations

from functools import reduce
from typing import cast

from torch import Tensor, nn

from ..core.config import Config as Tree
from ..core.config import Share, Size
from ..core.contract import NOTHING, Given, Mixer, MixerConfig, Reach, Where
from ..core.state import Spec, State
from ..mixers import Attention, Cross, SomeMixers
from ..parts.feedforward import AnyFeedForward, FeedForward
from ..parts.norms import AnyNorm, LayerNorm
from ..parts.wiring import AnyWiring, PreNorm
from .block import Block, States


class Stack(Mixer[States]):
    """Blocks in order; its state is the tuple of theirs."""

    class Config(Tree):
        width: Size
        depth: Size
        mixer: SomeMixers = (Attention.Config(),)
        cross: Cross.Config | None = None
        feedforward: AnyFeedForward = FeedForward.Config()
        norm: AnyNorm = LayerNorm()
        wiring: AnyWiring = PreNorm()
        dropout: Share = 0.0

        def mixer_of(self, layer: int) -> MixerConfig:
            """The mixers are tiled over the depth."""
            mixers = self.mixer if isinstance(self.mixer, tuple) else (self.mixer,)
            return mixers[layer % len(mixers)]

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ends = config.wiring.ends(config.width, config.norm)
        self.blocks = nn.ModuleList(_block(config, layer) for layer in range(config.depth))
        self.reach = reduce(Reach.then, (block.reach for block in self._blocks()))

    def spec(self) -> Spec:
        return tuple(block.spec() for block in self._blocks())

    def start(self, rows: int, given: Given = NOTHING) -> States:
        self.must_stream()
        return tuple(block.start(rows, given) for block in self._blocks())

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        x = self.ends.enter(x)
        after: list[State | None] = []
        for block, before in zip(self.blocks, (None,) * len(self.blocks) if state is None else state, strict=True):
            x, kept = block(x, where, before)
            after.append(kept)
        return self.ends.leave(x), None if state is None else tuple(kept for kept in after if kept is not None)

    def _blocks(self) -> list[Block]:
        return [cast(Block, block) for block in self.blocks]


def _block(config: Stack.Config, layer: int) -> Block:
    width = config.width
    mixer = config.mixer_of(layer).build(width)
    cross = None if config.cross is None else config.cross.build(width)
    feedforward = config.feedforward.build(width)
    count = 2 if cross is None else 3
    block = Block(mixer, cross, feedforward, config.wiring.build(width, count, config.norm, config.dropout))
    for part in block.parts:
        _initialise(part)
        config.wiring.temper(part)
    return block


def _initialise(part: nn.Module) -> None:
    """Glorot's uniform weights and no shift: variance is kept forwards and backwards alike (Glorot & Bengio 2010)."""
    for layer in part.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
