"""Character Transformer with auxiliary losses (Al-Rfou et al. 2018, Character-Level LM with Deeper Self-Attention)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

import torch
from torch import Tensor, nn

from ...core.config import Positive, Size
from ...core.contract import Where
from ...core.interfaces import Aside, Rehearses
from ...parts.positions import Learned
from ...parts.residual.wiring import AnyWiring, PostNorm
from ..block import Block, States
from ..decoder import Decoder


class DeepDecoder(Decoder, Rehearses):
    """A decoder whose layers each have learned positions and, in training, auxiliary heads that predict tokens, too.

        loss = Σ_l Σ_a w_a · CE( W_la x_l[t], token t + a ),   w_1 = 1, w_2 = 1/2,   over layers l that still take part

    Of n layers the l-th takes part until l/2n of the training is done, the last one to the end. The model's logits, and
    the loss that is reported, are those of the last layer's next token; the other heads are of no use after training.

    Al-Rfou et al. 2018, of 64 layers over characters: hence the kind "deep". Costs what a decoder costs; in training,
    while all n layers take part, the logits of 2n heads beside.
    """

    class Config(Decoder.Config):
        kind: Literal["deep"] = "deep"  # type: ignore[assignment]  # a shape of its own
        places: Size = 512  # positions that every layer has a learned vector for
        targets: Size = 2  # how many tokens ahead are predicted in training
        target_weight: Positive = 0.5  # of those beyond the next one
        wiring: AnyWiring = PostNorm()

        def build(self) -> DeepDecoder:
            return DeepDecoder(self)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for number, block in enumerate(self.stack.blocks):
            self.stack.blocks[number] = Placed(cast(Block, block), config.places, config.width)
        count = len(self.stack.layers) * config.targets - 1  # the last layer's next token has the model's own head
        self.asides = nn.ModuleList(nn.Linear(self.head.in_features, config.tokens) for _ in range(count))
        for head in self.asides:
            nn.init.normal_(cast(nn.Linear, head).weight, std=self.head.in_features**-0.5)
            nn.init.zeros_(cast(nn.Linear, head).bias)

    @property
    def longest(self) -> int | None:
        return min(self.config.places, super().longest or self.config.places)

    def rehearse(self, tokens: Tensor, where: Where, progress: float) -> Iterator[Aside]:
        layers, targets = self.stack.layers, self.config.targets
        x = self.stack.ends.enter(self.embeddings(tokens, where))
        idle: list[nn.Linear] = []
        for depth, block in enumerate(layers, 1):
            x, _ = block(x, where)
            last = depth == len(layers)
            heads = [*self._heads(depth), self.head] if last else self._heads(depth)
            if not last and progress >= depth / (2 * len(layers)):
                idle += heads
                continue
            stream = _joined(self._left(x), idle if last else [])
            for ahead, head in zip(range(targets, 0, -1), heads, strict=True):
                yield Aside(stream, head, ahead, 1.0 if ahead == 1 else self.config.target_weight)

    def _heads(self, depth: int) -> list[nn.Linear]:
        """The heads of a layer, that of the farthest target first."""
        first = (depth - 1) * self.config.targets
        return [cast(nn.Linear, head) for head in self.asides[first : first + self.config.targets]]

    def _left(self, x: Tensor) -> Tensor:
        """The hidden states that a head takes."""
        stream = self.stack.ends.leave(x)
        return stream if self.narrow is None else self.narrow(stream)


class Placed(Block):
    """A block that adds a learned vector for every position to what comes in: block(x + P[position])."""

    def __init__(self, block: Block, places: int, width: int) -> None:
        super().__init__(block.mixer, block.cross, block.feedforward, block.wiring)
        self.place = Learned.Config(length=places).build(width)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return super().forward(self.place(x, where.blank(where.position)), where, state)


def _joined(stream: Tensor, idle: list[nn.Linear]) -> Tensor:
    """The stream plus zero times the idle heads: distributed training waits for a gradient of every weight."""
    if not idle:
        return stream
    return stream + 0.0 * torch.stack([weight.sum() for head in idle for weight in head.parameters()]).sum()
