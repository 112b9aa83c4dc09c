"""Encoder: tokens to a stream in which every token has looked at all others."""

from __future__ import annotations

from typing import Literal, Self

from torch import Tensor, nn

from ..core.contract import Where
from ..core.interfaces import Asked, Encodes
from ..core.state import Seen
from ..mixers import Attention, SomeMixers
from ..parts.masks import Whole
from ..parts.outputs.heads import SomeHeads, Wanted, headed, heads_of
from .backbone import TokenBackbone


class Encoder(TokenBackbone, Encodes, Asked):
    """A backbone that looks both ways. A decoder's cross-attention looks at its output."""

    class Config(TokenBackbone.Config):
        kind: Literal["encoder"] = "encoder"
        mixer: SomeMixers = (Attention.Config(mask=Whole()),)
        heads: SomeHeads | None = None  # what it can be asked, beside its stream

        def build(self) -> Encoder:
            return Encoder(self)

        def headed(self, wanted: Wanted) -> Self:
            return self.model_copy(update={"heads": headed(self.heads, wanted, self.tokens)})

    def __init__(self, config: Config, table: nn.Embedding | None = None) -> None:
        super().__init__(config, table)
        self.heads = heads_of(config.heads, config.wiring.leaves(config.width), self.embeddings.table)

    def encode(self, tokens: Tensor, where: Where | None = None) -> Seen:
        """The stream of these tokens, stamped, to be given to a decoder."""
        where = self.default_where(tokens) if where is None else where
        x, _ = self(tokens, where)
        return Seen.of(where, x)
