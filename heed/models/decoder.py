"""Decoder: tokens to scores of the next token; with a cross-attention, the second half of an encoder-decoder."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

from ..core.config import Flag, Positive
from ..core.contract import Where
from ..core.errors import ConfigError
from ..core.interfaces import Stepper, Steps, Writes
from ..core.state import State
from ..parts.outputs.heads import LMHead
from .backbone import TokenBackbone
from .block import States
from .stepping import Script, stepper


class Decoder(TokenBackbone, Writes, Steps):
    """A trunk with a head: scores over the vocabulary for the token after each token."""

    class Config(TokenBackbone.Config):
        kind: Literal["decoder"] = "decoder"
        tied: Flag = True  # the head's weights are the embeddings (Press & Wolf 2017)
        head_bias: Flag = False
        head_scale: Positive = 1.0  # of the stream, before the head (T5: width^-1/2)
        cap: Positive | None = None  # scores are bent to stay within ±cap (Gemma 2)
        narrowed: Flag = False  # narrow embeddings: the stream is narrowed before the head, too (OPT)

        def build(self) -> Decoder:
            return Decoder(self)

    def __init__(self, config: Config, table: nn.Embedding | None = None) -> None:
        super().__init__(config, table)
        width = config.wiring.leaves(config.width)
        size = config.embedded if config.narrowed else width
        self.narrow = nn.Linear(width, size, bias=False) if config.narrowed else None
        self.head = _head(config, size)
        nn.init.normal_(self.head.weight, std=size**-0.5)
        if config.head_bias:
            nn.init.zeros_(self.head.bias)
        if config.tied:
            if size != config.embedded:
                raise ConfigError(
                    f"the head reads {size} channels, the embeddings have {config.embedded}: they cannot be tied; set "
                    "tied = false"
                )
            self.head.weight = self.embeddings.table.weight

    def apart(self, tokens: Tensor, where: Where) -> tuple[Tensor, nn.Linear]:
        stream, _ = super().mix(self.embeddings.embed(tokens, where), where)
        return stream if self.narrow is None else self.narrow(stream), self.head

    def after(self, tokens: Tensor, where: Where, state: State, last: Tensor) -> tuple[Tensor, State | None]:
        rows = torch.arange(len(last), device=last.device)
        if type(self).mix is not Decoder.mix:  # whose scores are more than a head's
            scores, kept = self(tokens, where, cast(States, state))
            return scores[rows, last], kept
        stream, kept = super().mix(self.embeddings.embed(tokens, where), where, cast(States, state))
        wanted = stream[rows, last]
        return self.head(wanted if self.narrow is None else self.narrow(wanted)), kept

    @property
    def practised(self) -> bool:
        return self.drafts.holds(Script)

    def stepper(self, state: State) -> Stepper | None:
        return stepper(self, state) if type(self) is Decoder else None

    @property
    def longest(self) -> int | None:
        return None if self.embeddings.position is None else self.embeddings.position.longest

    @property
    def vocabulary(self) -> int:
        return self.config.tokens

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        stream, state = super().mix(x, where, state)
        return self.head(stream if self.narrow is None else self.narrow(stream)), state


def _head(config: Decoder.Config, width: int) -> nn.Linear:
    if config.head_scale == 1.0 and config.cap is None:
        return nn.Linear(width, config.tokens, bias=config.head_bias)
    return LMHead(width, config.tokens, bias=config.head_bias, scale=config.head_scale, cap=config.cap)
