"""The original Transformer (Vaswani et al. 2017), and what torch.nn and the Annotated Transformer make of it.

transformer(37000)                              the paper's base model: shared and tied vocabulary of 37,000
transformer(37000, size=BIG)
transformer(9000, 8000, variant=TORCH)          what torch.nn.Transformer computes
transformer(9000, 8000, variant=ANNOTATED)      what the Annotated Transformer computes

In a recipe it is a table of few numbers: kind = "transformer", width = 256, depth = 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...core.config import Flag, Parts, Share, Size
from ...parts.layers.norms import LayerNorm, NormConfig, StdNorm
from ...parts.residual.wiring import AnyWiring, PostNorm, PreNorm, WiringConfig
from ..plan import Plan

if TYPE_CHECKING:
    from ..seq2seq import Seq2seq


@dataclass(frozen=True)
class TransformerSize:
    """The numbers of the paper's table 3."""

    width: int
    depth: int
    heads: int
    hidden: int
    dropout: float


TINY = TransformerSize(width=128, depth=2, heads=4, hidden=256, dropout=0.1)
BASE = TransformerSize(width=512, depth=6, heads=8, hidden=2048, dropout=0.1)
BIG = TransformerSize(width=1024, depth=6, heads=16, hidden=4096, dropout=0.3)


@dataclass(frozen=True)
class Variant:
    """Where implementations differ: the wiring, the norm, what is tied, and where dropout falls."""

    wiring: WiringConfig
    norm: NormConfig
    tied: bool  # head and embeddings share their weights
    inner_dropout: bool  # of attention weights and hidden channels too, not only of what is added to the stream


PAPER = Variant(PostNorm(), LayerNorm(), tied=True, inner_dropout=False)
TORCH = Variant(PostNorm(final=True), LayerNorm(), tied=False, inner_dropout=True)
ANNOTATED = Variant(PreNorm(), StdNorm(), tied=False, inner_dropout=True)


def transformer(
    vocabulary: int, target: int | None = None, *, size: TransformerSize = BASE, variant: Variant = PAPER
) -> Seq2seq.Config:
    """The configuration of an encoder-decoder; without `target` source and target share one vocabulary."""
    from ...mixers import Attention, Cross  # a package that offers this by name need not import what it is made of
    from ...parts.feedforward import FeedForward
    from ...parts.masks import Causal, Whole
    from ...parts.positions import Sinusoid
    from ..decoder import Decoder
    from ..encoder import Encoder
    from ..seq2seq import Seq2seq

    inner = size.dropout if variant.inner_dropout else 0.0
    common: dict[str, Any] = {
        "width": size.width,
        "depth": size.depth,
        "feedforward": FeedForward.Config(hidden=size.hidden, dropout=inner),
        "norm": variant.norm,
        "wiring": variant.wiring,
        "dropout": size.dropout,
        "position": Sinusoid.Config(),
        "scaled": True,
    }
    encoder = Encoder.Config(
        vocabulary=vocabulary,
        mixer=Attention.Config(heads=size.heads, dropout=inner, mask=Whole()),
        **common,
    )
    decoder = Decoder.Config(
        vocabulary=target or vocabulary,
        mixer=Attention.Config(heads=size.heads, dropout=inner, mask=Causal()),
        cross=Cross.Config(heads=size.heads, dropout=inner),
        tied=variant.tied,
        head_bias=not variant.tied,
        **common,
    )
    return Seq2seq.Config(encoder=encoder, decoder=decoder, shared=variant.tied and target is None)


class Transformer(Plan):
    """The original encoder-decoder (Vaswani et al. 2017) in few numbers; one vocabulary for source and target."""

    kind: Literal["transformer"] = "transformer"
    width: Size = TINY.width
    depth: Parts = TINY.depth
    heads: Size = TINY.heads
    hidden: Size = TINY.hidden  # channels inside the feed-forward
    dropout: Share = TINY.dropout
    wiring: AnyWiring = PostNorm()
    inner_dropout: Flag = False  # of attention weights and hidden channels too

    def sized(self, vocabulary: int) -> Seq2seq.Config:
        size = TransformerSize(self.width, self.depth, self.heads, self.hidden, self.dropout)
        variant = Variant(self.wiring, LayerNorm(), tied=True, inner_dropout=self.inner_dropout)
        return transformer(vocabulary, size=size, variant=variant)
