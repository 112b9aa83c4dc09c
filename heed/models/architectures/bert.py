"""BERT (Devlin et al. 2019): a bidirectional encoder with masked-token and next-sentence heads.

Tokens bring their segment as a second id, [B, T, 2]: 0 for the first part of a text, 1 for the second.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Parts, Share, Size
from ...mixers import Attention
from ...parts.feedforward import Activation, FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Whole
from ...parts.outputs.heads import HeadConfig, Masked, Pooled
from ...parts.positions import Learned
from ...parts.residual.wiring import AnyWiring, PostNorm
from ..encoder import Encoder
from ..plan import Published, published

EPS = 1e-12  # of the norms, as the authors have it


class Bert(Published):
    """An encoder of tokens, positions and segments, which fills in masks and compares parts of a text (Devlin 2019).

        x = norm( E[token] + P[position] + S[segment] );   x ← norm( x + part(x) ), attention and feed-forward in turn

    Two were published, base and large: 110 and 336 million parameters with BERT's 30,522 tokens and both heads. Its
    heads are `masked`, over the vocabulary, and `pooled`, over `labels`: whether the second part follows the first.
    Costs O(n²·d), as plain attention does.
    """

    paper: ClassVar[str] = "Devlin et al. 2019, arXiv 1810.04805"

    tokens: ClassVar[int] = 30522

    kind: Literal["bert"] = "bert"
    size: Literal["base", "large"] | None = None  # instead of width, depth and heads
    width: Size = 128  # channels of the hidden states
    depth: Parts = 2
    heads: Size = 2
    hidden: Size | None = None  # of the feed-forward; 4 · width
    length: Size = 512  # positions
    segments: Size = 2  # different parts of a text that are told apart
    labels: Size = 2  # classes of the pooled head
    activation: Activation = "gelu"
    dropout: Share = 0.1
    wiring: AnyWiring = PostNorm()

    _sizes = published(
        base={"width": 768, "depth": 12, "heads": 12},
        large={"width": 1024, "depth": 24, "heads": 16},
    )

    def sized(self, vocabulary: int) -> Encoder.Config:
        norm = LayerNorm(eps=EPS)
        heads: tuple[HeadConfig, ...] = (
            Masked.Config(vocabulary=vocabulary, activation=self.activation, norm=norm),
            Pooled.Config(activation="tanh", labels=self.labels),
        )
        return Encoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=Attention.Config(heads=self.heads, dropout=self.dropout, mask=Whole()),
            feedforward=FeedForward.Config(hidden=self.hidden or 4 * self.width, activation=self.activation),
            norm=norm,
            wiring=self.wiring,
            dropout=self.dropout,
            position=Learned.Config(length=self.length),
            embedding_norm=norm,
            segments=self.segments,
            heads=heads,
        )
