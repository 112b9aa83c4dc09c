"""Transformer-XL (Dai et al. 2019): a decoder with segment-level recurrence.

transformer_xl over contexts of many segments: gradients stop where segments meet, inside the mixer, so that a batch of
long contexts is trained like any other.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ...core.config import Count, Flag, Parts, Share, Size
from ...mixers import TransformerXLAttention
from ...parts.feedforward import FeedForward
from ...parts.inputs.adaptive import Adaptive
from ...parts.layers.norms import AnyNorm, LayerNorm
from ...parts.residual.wiring import AnyWiring, PostNorm
from ..decoder import Decoder
from ..plan import Plan
from ..variants.adaptive import AdaptiveDecoder


class TransformerXL(Plan):
    """A decoder with segment-level recurrence and relative positions (Dai et al. 2019) in few numbers.

    n tokens in segments of L with a memory of M cost O(n·(L + M)) in every layer, and what a layer sees grows with the
    depth: the memory of the layer below was itself made from a memory.
    """

    paper: ClassVar[str] = "Dai et al. 2019, Transformer-XL, arXiv 1901.02860"

    kind: Literal["transformer_xl"] = "transformer_xl"
    width: Size = 128
    depth: Parts = 4
    heads: Size = 4
    head_size: Size | None = None  # width / heads
    hidden: Size | None = None  # of the feed-forward; 4 · width
    length: Size = 64  # tokens of a segment
    memory: Count = 64  # tokens before it that it sees
    stopped: Flag = True  # no gradient from a segment to what came before it
    dropout: Share = 0.0
    weight_dropout: Share = 0.0  # of the attention's weights
    norm: AnyNorm = LayerNorm()
    wiring: AnyWiring = PostNorm()
    one_position: Flag = False  # all layers share u and v
    adaptive: Adaptive | None = None  # rare tokens have fewer channels

    def sized(self, vocabulary: int) -> Decoder.Config:
        mixer = TransformerXLAttention.Config(
            heads=self.heads,
            head_size=self.head_size,
            length=self.length,
            memory=self.memory,
            stopped=self.stopped,
            dropout=self.weight_dropout,
        )
        common: dict[str, Any] = {
            "vocabulary": vocabulary,
            "width": self.width,
            "depth": self.depth,
            "mixer": mixer,
            "feedforward": FeedForward.Config(hidden=self.hidden, dropout=self.dropout),
            "norm": self.norm,
            "wiring": self.wiring,
            "dropout": self.dropout,
            "scaled": True,
            "one_position": self.one_position,
            "head_bias": True,
        }
        return (
            Decoder.Config(**common)
            if self.adaptive is None
            else AdaptiveDecoder.Config(**common, adaptive=self.adaptive)
        )
