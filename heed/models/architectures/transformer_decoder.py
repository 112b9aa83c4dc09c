"""Transformer decoder with memory-compressed attention, T-DMCA (Liu et al. 2018): source and target are one sequence.

transformer_decoder over [source, separator, target]: every token is predicted from those before it, the source's too.
Local layers, whose blocks do not see one another, take turns with memory-compressed ones, which see everything, but
shortened: thousands of tokens fit where plain attention has room for hundreds.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Parts, Share, Size
from ...mixers import Attention, MemoryCompressed
from ...parts.feedforward import FeedForward, SomeFeedForwards
from ...parts.masks import Causal, Segments
from ...parts.positions import Sinusoid
from ...parts.residual.wiring import AnyWiring, PreNorm
from ..decoder import Decoder
from ..plan import Plan


class TransformerDecoder(Plan):
    """A decoder for long texts: local and memory-compressed attention in turn, L M L M L (Liu et al. 2018, T-DMCA).

    A local layer costs O(n·local), a compressed one O(n²/stride) time over n tokens; no layer holds a table of pairs.
    """

    paper: ClassVar[str] = "Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences, sec. 4.2"

    kind: Literal["transformer_decoder"] = "transformer_decoder"
    width: Size = 128
    depth: Parts = 5
    heads: Size = 4
    local: Size = 256  # tokens of a local block
    stride: Size = 3  # tokens that a compressed entry stands for
    feedforward: SomeFeedForwards = (FeedForward.Config(),)  # the paper's largest models have experts in some layers
    wiring: AnyWiring = PreNorm()
    dropout: Share = 0.0

    def sized(self, vocabulary: int) -> Decoder.Config:
        near = Attention.Config(heads=self.heads, mask=Causal() & Segments(length=self.local))
        far = MemoryCompressed.Config(heads=self.heads, stride=self.stride)
        return Decoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=(near, far),
            feedforward=self.feedforward,
            wiring=self.wiring,
            dropout=self.dropout,
            position=Sinusoid.Config(),
            scaled=True,
        )
