"""Decoder: tokens to logits of the next token; with a cross-attention, the second half of an encoder-decoder."""

from __future__ import annotations

from typing import Literal, Self

from torch import Tensor, nn

from ..core.config import Flag, Positive
from ..core.contract import Where
from ..core.errors import ConfigError
from ..core.interfaces import Asked, LanguageModel
from ..parts.feedforward import Activation
from ..parts.outputs.heads import HeadTransform, LMHead, SomeHeads, Wanted, headed, heads_of
from .backbone import TokenBackbone
from .block import States


class Decoder(TokenBackbone, LanguageModel, Asked):
    """A backbone with a head: logits over the vocabulary for the token after each token."""

    class Config(TokenBackbone.Config):
        kind: Literal["decoder"] = "decoder"
        tied: Flag = True  # the head's weights are the embeddings (Press & Wolf 2017)
        head_bias: Flag = False  # the head has a bias
        head_scale: Positive = 1.0  # of the stream, before the head (T5: width^-1/2)
        cap: Positive | None = None  # scores are bent to stay within ±cap (Gemma 2)
        narrowed: Flag = False  # narrow embeddings: the stream is narrowed before the head, too (OPT)
        head_activation: Activation | None = None  # a layer, this activation and a norm stand before the head (BERT)
        heads: SomeHeads | None = None  # what else it can be asked, about a text that it has read

        def build(self) -> Decoder:
            return Decoder(self)

        def headed(self, wanted: Wanted) -> Self:
            return self.model_copy(update={"heads": headed(self.heads, wanted, self.tokens)})

    def __init__(self, config: Config, table: nn.Embedding | None = None) -> None:
        super().__init__(config, table)
        width = config.wiring.leaves(config.width)
        size = config.embedded if config.narrowed or config.head_activation is not None else width
        self.narrow = _before_head(config, width, size)
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
        self.heads = heads_of(config.heads, size, self.embeddings.table)

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
        """The stream as the head reads it."""
        if self.narrow is None:
            return stream
        narrow: Tensor = self.narrow(stream)
        return narrow

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


def _before_head(config: Decoder.Config, width: int, size: int) -> nn.Linear | HeadTransform | None:
    if config.head_activation is not None:
        return HeadTransform(width, size, config.head_activation, config.norm)
    return nn.Linear(width, size, bias=False) if config.narrowed else None


def _head(config: Decoder.Config, width: int) -> nn.Linear:
    if config.head_scale == 1.0 and config.cap is None:
        return nn.Linear(width, config.tokens, bias=config.head_bias)
    return LMHead(width, config.tokens, bias=config.head_bias, scale=config.head_scale, cap=config.cap)
