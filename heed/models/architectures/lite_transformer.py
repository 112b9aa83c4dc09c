"""Lite Transformer (Wu et al. 2020): an encoder-decoder with long-short range attention.

Half of the channels have attention, the other half a convolution, which finds local patterns at less cost.
Feed-forwards are as narrow as the stream.

In a recipe it is a table of few numbers: kind = "lite_transformer", width = 160, depth = 6.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import MinLen

from ...core.config import Parts, Share, Size
from ...core.contract import MixerConfig
from ...mixers import Attention, Branches, Cross, DynamicConv, LightConv
from ...parts.feedforward import FeedForward
from ...parts.masks import Causal, Whole
from ...parts.positions import Sinusoid
from ...parts.residual.wiring import AnyWiring, PostNorm
from ..decoder import Decoder
from ..encoder import Encoder
from ..plan import Plan
from ..seq2seq import Seq2seq

Convolving: TypeAlias = Literal["dynamic", "light"]


def lsra(
    heads: int, kernel: int, *, causal: bool, convolution: Convolving = "dynamic", dropout: float = 0.0
) -> Branches.Config:
    """Long-short range attention: attention on one half of the channels, a convolution on the other."""
    far = Attention.Config(heads=heads, mask=Causal() if causal else Whole(), dropout=dropout)
    slides = DynamicConv.Config if convolution == "dynamic" else LightConv.Config
    near: MixerConfig = slides(heads=heads, kernel=kernel, causal=causal, dropout=dropout)
    return Branches.Config(mixers=(far, near))


class LiteTransformer(Plan):
    """An encoder-decoder with attention and a convolution side by side (Wu et al. 2020); one vocabulary for both."""

    paper: ClassVar[str] = "Wu et al. 2020, Lite Transformer with Long-Short Range Attention, arXiv 2004.11886"

    kind: Literal["lite_transformer"] = "lite_transformer"
    width: Size = 160
    depth: Parts = 6
    heads: Size = 4  # of each branch
    kernels: Annotated[tuple[Size, ...], MinLen(1)] = (3, 7, 15, 31)  # layer by layer; the last one for the rest
    convolution: Convolving = "dynamic"  # which one stands beside attention
    hidden: Size | None = None  # of the feed-forward; as wide as the stream
    dropout: Share = 0.1
    weight_dropout: Share = 0.0  # of weights of attention and taps of kernels
    wiring: AnyWiring = PostNorm()

    def sized(self, vocabulary: int) -> Seq2seq.Config:
        common: dict[str, Any] = {
            "vocabulary": vocabulary,
            "width": self.width,
            "depth": self.depth,
            "feedforward": FeedForward.Config(hidden=self.hidden or self.width),
            "wiring": self.wiring,
            "dropout": self.dropout,
            "position": Sinusoid.Config(),
            "scaled": True,
        }
        encoder = Encoder.Config(mixer=self._mixers(causal=False), **common)
        cross = Cross.Config(heads=self.heads, dropout=self.weight_dropout)
        decoder = Decoder.Config(mixer=self._mixers(causal=True), cross=cross, **common)
        return Seq2seq.Config(encoder=encoder, decoder=decoder, shared=True)

    def _mixers(self, *, causal: bool) -> tuple[MixerConfig, ...]:
        last = len(self.kernels) - 1
        kernels = (self.kernels[min(layer, last)] for layer in range(self.depth))
        options: dict[str, Any] = {"convolution": self.convolution, "dropout": self.weight_dropout}
        return tuple(lsra(self.heads, kernel, causal=causal, **options) for kernel in kernels)
