"""DeepNet (Wang et al. 2022) and ResiDual (Xie et al. 2023): very deep Transformers by their residual wiring."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ...core.config import Parts, Positive, Share, Size
from ...mixers import Attention, Cross
from ...parts.feedforward import FeedForward
from ...parts.masks import Causal, Whole
from ...parts.positions import Sinusoid
from ...parts.residual.wiring import DeepNorm, ResiDual, WiringConfig
from ..decoder import Decoder
from ..encoder import Encoder
from ..plan import Plan
from ..seq2seq import Seq2seq


class Sides(Plan):
    """What the plans of deep encoder-decoders share."""

    width: Size = 128
    depth: Parts = 18  # of the encoder
    decoder_depth: Parts | None = None  # as deep as the encoder
    heads: Size = 4
    hidden: Size | None = None  # of the feed-forward; 4 · width
    dropout: Share = 0.1

    def wired(self, vocabulary: int, encoder: WiringConfig, decoder: WiringConfig) -> Seq2seq.Config:
        """An encoder-decoder with one table of embeddings for both sides, as in the original Transformer."""
        common: dict[str, Any] = {
            "vocabulary": vocabulary,
            "width": self.width,
            "feedforward": FeedForward.Config(hidden=self.hidden),
            "dropout": self.dropout,
            "position": Sinusoid.Config(),
            "scaled": True,
        }
        source = Attention.Config(heads=self.heads, mask=Whole())
        target = Attention.Config(heads=self.heads, mask=Causal())
        return Seq2seq.Config(
            encoder=Encoder.Config(depth=self.depth, mixer=source, wiring=encoder, **common),
            decoder=Decoder.Config(
                depth=self.below, mixer=target, cross=Cross.Config(heads=self.heads), wiring=decoder, **common
            ),
            shared=True,
        )

    @property
    def below(self) -> int:
        """Layers of the decoder."""
        return self.decoder_depth or self.depth


class DeepNet(Sides):
    """An encoder-decoder of hundreds of layers: x ← norm(α·x + part(x)), first weights times β (Wang et al. 2022).

    For N layers of the encoder and M of the decoder: α = 0.81·(N⁴M)^(1/16) and β = 0.87·(N⁴M)^(-1/16) in the encoder,
    α = (3M)^(1/4) and β = (12M)^(-1/4) in the decoder. Updates of the whole model are then bounded at any depth.
    """

    paper: ClassVar[str] = "Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers, arXiv 2203.00555"

    kind: Literal["deepnet"] = "deepnet"

    def sized(self, vocabulary: int) -> Seq2seq.Config:
        above, below = DeepNorm.encoder(self.depth, self.below), DeepNorm.decoder(self.below)
        return self.wired(vocabulary, above, below)


class DeepNetDecoder(Plan):
    """A language model of hundreds of layers: α = (2M)^(1/4), β = (8M)^(-1/4) for M layers (Wang et al. 2022)."""

    paper: ClassVar[str] = "Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers, arXiv 2203.00555"

    kind: Literal["deepnet_decoder"] = "deepnet_decoder"
    width: Size = 128
    depth: Parts = 36
    heads: Size = 4
    hidden: Size | None = None  # of the feed-forward; 4 · width
    dropout: Share = 0.0

    def sized(self, vocabulary: int) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=Attention.Config(heads=self.heads),
            feedforward=FeedForward.Config(hidden=self.hidden),
            wiring=DeepNorm.alone(self.depth),
            dropout=self.dropout,
            position=Sinusoid.Config(),
            scaled=True,
        )


class ResiDualTransformer(Sides):
    """An encoder-decoder with two streams: post-norm's features, pre-norm's gradients (Xie et al. 2023).

    x ← norm(x + part(x)) and r ← r + scale·part(x), both from the embedding on; at the end x + norm(r).
    """

    paper: ClassVar[str] = "Xie et al. 2023, ResiDual: Transformer with Dual Residual Connections, arXiv 2304.14802"

    kind: Literal["residual_transformer"] = "residual_transformer"
    depth: Parts = 12
    scale: Positive = 1.0  # of the second stream: below 1 where half precision would overflow; its norm does not see it

    def sized(self, vocabulary: int) -> Seq2seq.Config:
        return self.wired(vocabulary, ResiDual(scale=self.scale), ResiDual(scale=self.scale))
