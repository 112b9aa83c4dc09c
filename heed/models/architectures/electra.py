"""ELECTRA (Clark et al. 2020): a small generator fills masks, a discriminator tells which tokens it put in."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from torch import Tensor, nn

from ...core.config import Fraction, Parts, Share, Size
from ...core.contract import Mixer, Where
from ...core.errors import ConfigError
from ...core.interfaces import Asked, Detects, Encodes
from ...core.spec import Spec
from ...core.state import Seen
from ...mixers import Attention
from ...parts.feedforward import FeedForward
from ...parts.inputs.tokens import Narrow
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Whole
from ...parts.outputs.heads import Masked, Replaced, Wanted, several
from ...parts.positions import Learned
from ...parts.residual.wiring import PostNorm
from ..block import States
from ..encoder import Encoder
from ..plan import Shape, agreed

EPS = 1e-12  # of the norms, as the authors have it


class Electra(Shape):
    """A discriminator, and a generator of a share of its width that reads the same embeddings (Clark et al. 2020).

        x̂ = x with hidden tokens drawn from softmax( E·g(x) );   D(x̂)_t = σ( w·d(x̂)_t ): was token t put in?

    Both are BERTs; embeddings of tokens, positions and segments are one table each for the two, as wide as the
    discriminator, from which a matrix leads to the generator's width. As an encoder it is its discriminator, and that
    alone is left when it is fine-tuned. Costs what a BERT costs, and a generator's on top while it is pre-trained.
    """

    paper: ClassVar[str] = "Clark et al. 2020, arXiv 2003.10555"

    kind: Literal["electra"] = "electra"
    vocabulary: Size | None = None  # tokens there are; None: as many as the tokenizer has
    width: Size = 128  # channels of the discriminator's hidden states
    depth: Parts = 2  # of either
    heads: Size = 2  # of the discriminator's attention
    hidden: Size | None = None  # of the feed-forward; 4 · width
    generator: Fraction = 0.25  # width of the generator, as a share; its heads and its feed-forward likewise
    length: Size = 512  # positions
    dropout: Share = 0.1

    def sized(self, vocabulary: int) -> Self:
        return self.model_copy(update={"vocabulary": agreed(self.vocabulary, vocabulary)})

    def build(self) -> GeneratorDiscriminator:
        return GeneratorDiscriminator(self)

    def headed(self, wanted: Wanted) -> Shape:
        """Asked by its own head it stays what it is; asked by others, it is its discriminator."""
        if all(isinstance(head, Replaced.Config) for head in several(wanted)):
            return self
        return self.discriminating().headed(wanted)

    def discriminating(self) -> Encoder.Config:
        """The discriminator."""
        return self._encoder(self.width, self.heads, None).model_copy(update={"heads": (Replaced.Config(),)})

    def generating(self) -> Encoder.Config:
        """The generator."""
        heads = max(1, round(self.heads * self.generator))
        width = max(1, round(self.width * self.generator / heads)) * heads
        head = Masked.Config(vocabulary=self._tokens, activation="gelu", norm=LayerNorm(eps=EPS))
        narrow = None if width == self.width else Narrow(size=self.width)
        return self._encoder(width, heads, narrow).model_copy(update={"heads": (head,)})

    @property
    def _tokens(self) -> int:
        if self.vocabulary is None:
            raise ConfigError("vocabulary is missing: name it, or let a tokenizer say it with sized(vocabulary)")
        return self.vocabulary

    def _encoder(self, width: int, heads: int, narrow: Narrow | None) -> Encoder.Config:
        hidden = (self.hidden or 4 * self.width) * width // self.width
        return Encoder.Config(
            vocabulary=self._tokens,
            width=width,
            depth=self.depth,
            mixer=Attention.Config(heads=heads, dropout=self.dropout, mask=Whole()),
            feedforward=FeedForward.Config(hidden=hidden, activation="gelu"),
            norm=LayerNorm(eps=EPS),
            wiring=PostNorm(),
            dropout=self.dropout,
            position=Learned.Config(length=self.length),
            embedding_norm=LayerNorm(eps=EPS),
            narrow=narrow,
            segments=2,
        )


class GeneratorDiscriminator(Mixer[States], Encodes, Asked, Detects):
    """Both, over one set of embeddings. As a Mixer it is the discriminator."""

    generator: Encoder
    discriminator: Encoder

    def __init__(self, config: Electra) -> None:
        super().__init__()
        self.config = config
        self.discriminator = Encoder(config.discriminating())
        table = self.discriminator.embeddings.table
        self.generator = Encoder(config.generating(), table)
        for name in ("position", "segment", "norm"):
            setattr(self.generator.embeddings, name, getattr(self.discriminator.embeddings, name))
        self.reach = self.discriminator.reach

    @property
    def embeddings(self) -> nn.Module:
        return self.discriminator.embeddings

    @property
    def heads(self) -> nn.ModuleDict:  # type: ignore[override]  # those of one of its parts
        return self.discriminator.heads

    def spec(self) -> Spec:
        return self.discriminator.spec()

    def forward(self, x: Tensor, where: Where, state: Any = None) -> tuple[Tensor, Any]:
        return self.discriminator(x, where, state)

    def encode(self, source: Tensor, where: Where | None = None) -> Seen:
        return self.discriminator.encode(source, where)
