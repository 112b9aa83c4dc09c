"""What every model is below its heads: embeddings, and a stack that mixes them."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from ..core.config import Flag, Size, renamed_keys
from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.errors import ConfigError
from ..core.spec import Spec
from ..parts.inputs.tokens import Embeddings, Narrow, TokenEmbeddings, embedding
from ..parts.layers.norms import AnyNorm
from ..parts.positions import AnyAdded
from .block import States
from .plan import Shape, agreed
from .stack import Stack


class Backbone(Mixer[States]):
    """Embeddings and a stack. From bare embeddings on (`mix`) it is a Mixer like any other: the laws run on that."""

    embeddings: Embeddings
    once = True  # every call runs each block once and as a whole, however long its rows are

    def __init__(self, config: Stack.Config, embeddings: Embeddings) -> None:
        super().__init__()
        self.embeddings, self.stack = embeddings, Stack(config)
        self.reach = self.stack.reach

    def spec(self) -> Spec:
        return self.stack.spec()

    def start(self, rows: int, given: Given = NOTHING) -> States:
        self.must_stream()
        return self.stack.start(rows, given)

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """From bare embeddings on."""
        return self.stack(self.embeddings.place(x, where), where, state)


class TokenBackbone(Backbone):
    """Tokens in, stream out. A Mixer over token ids [B, T], or over ids with further fields [B, T, 1 + fields]."""

    embeddings: TokenEmbeddings

    class Config(Stack.Config, Shape):
        vocabulary: Size | None = None  # tokens there are; None: as many as the tokenizer has
        position: AnyAdded | None = None  # what is added to the embeddings
        scaled: Flag = False  # embeddings of tokens times √width
        embedding_norm: AnyNorm | None = None  # after the embeddings (BERT)
        narrow: Narrow | None = None  # embeddings narrower than the stream
        segments: Size | None = None  # a second field: which segment a token is of (BERT's sentences A and B)
        boxes: Size | None = None  # four more fields: where on a page a token stands (LayoutLM), from 0 to boxes - 1

        _renamed = renamed_keys(front_norm="embedding_norm")

        @property
        def tokens(self) -> int:
            """The vocabulary, which must be known by now."""
            if self.vocabulary is None:
                raise ConfigError("vocabulary is missing: name it, or let a tokenizer say it with sized(vocabulary)")
            return self.vocabulary

        def sized(self, vocabulary: int) -> Self:
            return self.model_copy(update={"vocabulary": agreed(self.vocabulary, vocabulary)})

        @property
        def embedded(self) -> int:
            """Channels of an embedding."""
            return self.width if self.narrow is None else self.narrow.size

    def __init__(self, config: Config, table: nn.Embedding | None = None) -> None:
        super().__init__(config, _tokens(config, table))
        self.config = config

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.mix(self.embeddings.embed(x, where), where, state)


def _tokens(config: TokenBackbone.Config, table: nn.Embedding | None) -> TokenEmbeddings:
    position_width, norm_width = Narrow.widths(config.narrow, config.width)
    return TokenEmbeddings(
        table if table is not None else embedding(config.tokens, config.embedded),
        config.width**0.5 if config.scaled else 1.0,
        None if config.position is None else config.position.build(position_width),
        None if config.embedding_norm is None else config.embedding_norm.build(norm_width),
        config.dropout,
        narrow=None if config.narrow is None else config.narrow.build(config.width),
        segments=config.segments,
        boxes=config.boxes,
    )
