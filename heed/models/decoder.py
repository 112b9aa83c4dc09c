"""Decoder: tokens to scores of the next token; with a cross-attention, the second half of an encoder-decoder."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ..core.abilities import Writes
from ..core.config import Flag
from ..core.contract import Where
from .block import States
from .trunk import Trunk


class Decoder(Trunk, Writes):
    """A trunk with a head: scores over the vocabulary for the token after each token."""

    class Config(Trunk.Config):
        kind: Literal["decoder"] = "decoder"
        tied: Flag = True  # the head's weights are the embeddings (Press & Wolf 2017)
        head_bias: Flag = False

        def build(self) -> Decoder:
            return Decoder(self)

    def __init__(self, config: Config, table: nn.Embedding | None = None) -> None:
        super().__init__(config, table)
        self.head = nn.Linear(config.width, config.tokens, bias=config.head_bias)
        nn.init.normal_(self.head.weight, std=config.width**-0.5)
        if config.head_bias:
            nn.init.zeros_(self.head.bias)
        if config.tied:
            self.head.weight = self.front.table.weight

    def apart(self, tokens: Tensor, where: Where) -> tuple[Tensor, nn.Linear]:
        stream, _ = super().mix(self.front.embed(tokens, where), where)
        return stream, self.head

    @property
    def longest(self) -> int | None:
        return None if self.front.position is None else self.front.position.longest

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        stream, state = super().mix(x, where, state)
        return self.head(stream), state
