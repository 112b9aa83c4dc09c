"""What encoder and decoder share: tokens at the front, a stack behind them."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from ..core.config import Flag, Size
from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.errors import ConfigError
from ..core.state import Spec
from ..parts.fronts import Tokens, embedding
from ..parts.norms import AnyNorm
from ..parts.positions import AnyAdded
from .block import States
from .shape import Shape, agreed
from .stack import Stack


class Trunk(Mixer[States]):
    """Tokens in, stream out. A Mixer over token ids."""

    class Config(Stack.Config, Shape):
        vocabulary: Size | None = None  # None: as many as the tokenizer has
        position: AnyAdded | None = None  # what is added to the embeddings
        scaled: Flag = False  # embeddings times √width
        front_norm: AnyNorm | None = None

        @property
        def tokens(self) -> int:
            """The vocabulary, which must be known by now."""
            if self.vocabulary is None:
                raise ConfigError("vocabulary is missing: name it, or let a tokenizer say it with sized(vocabulary)")
            return self.vocabulary

        def sized(self, vocabulary: int) -> Self:
            return self.model_copy(update={"vocabulary": agreed(self.vocabulary, vocabulary)})

    def __init__(self, config: Config, table: nn.Embedding | None = None) -> None:
        super().__init__()
        self.config = config
        self.front = Tokens(
            table if table is not None else embedding(config.tokens, config.width),
            config.width**0.5 if config.scaled else 1.0,
            None if config.position is None else config.position.build(config.width),
            None if config.front_norm is None else config.front_norm.build(config.width),
            config.dropout,
        )
        self.stack = Stack(config)
        self.reach = self.stack.reach

    def spec(self) -> Spec:
        return self.stack.spec()

    def start(self, rows: int, given: Given = NOTHING) -> States:
        self.must_stream()
        return self.stack.start(rows, given)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.mix(self.front.embed(x, where), where, state)

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """From bare embeddings on: what is differentiable in the input, and so what the laws are run on."""
        return self.stack(self.front.place(x, where), where, state)
