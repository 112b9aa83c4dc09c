"""Decoder: tokens to logits of the next token; with a cross-attention, the second half of an encoder-decoder."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ..core.config import Flag, Positive
from ..core.contract import Where
from ..core.errors import ConfigError
from ..core.interfaces import LanguageModel
from ..parts.outputs.heads import LMHead
from .backbone import TokenBackbone
from .block import States


class Decoder(TokenBackbone, LanguageModel):
    """A backbone with a head: logits over the vocabulary for the token after each token."""

    class Config(TokenBackbone.Config):
        kind: Literal["decoder"] = "decoder"
        tied: Flag = True  # the head's weights are the embeddings (Press & Wolf 2017)
        head_bias: Flag = False  # the head has a bias
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

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        hidden, state = self.hidden_states(x, where, state)
        return self.head(hidden), state

    def hidden_states(self, tokens: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.hidden(self.embeddings.embed(tokens, where), where, state)

    def hidden(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """The hidden states that the head reads, from bare embeddings on."""
        stream, state = super().mix(x, where, state)
        return self.narrowed(stream), state

    def narrowed(self, stream: Tensor) -> Tensor:
        """The stream as wide as the head reads it."""
        return stream if self.narrow is None else self.narrow(stream)

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        hidden, state = self.hidden(x, where, state)
        return self.head(hidden), state

    @property
    def lm_head(self) -> nn.Module:
        return self.head

    @property
    def longest(self) -> int | None:
        return None if self.embeddings.position is None else self.embeddings.position.longest

    @property
    def vocabulary(self) -> int:
        return self.config.tokens


def _head(config: Decoder.Config, width: int) -> nn.Linear:
    if config.head_scale == 1.0 and config.cap is None:
        return nn.Linear(width, config.tokens, bias=config.head_bias)
    return LMHead(width, config.tokens, bias=config.head_bias, scale=config.head_scale, cap=config.cap)
