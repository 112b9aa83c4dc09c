"""RWKV (Peng et al. 2023): a language model that trains like a Transformer and decodes like a recurrent network.

A norm on the embeddings, then blocks of time mixing and channel mixing, each below a norm, then a norm and a head of
its own. What it remembers of a text is five vectors per layer.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Flag, Parts, Share, Size
from ...mixers import Rwkv
from ...parts.feedforward import ChannelMix
from ...parts.layers.norms import AnyNorm, LayerNorm
from ...parts.residual.wiring import AnyWiring, PreNorm
from ..decoder import Decoder
from ..plan import Plan


class RWKV(Plan):
    """A decoder of RWKV-4 blocks in few numbers: time mixing and channel mixing, with first weights by depth."""

    paper: ClassVar[str] = "Peng et al. 2023, RWKV: Reinventing RNNs for the Transformer Era, arXiv 2305.13048"

    kind: Literal["rwkv"] = "rwkv"
    width: Size = 128
    depth: Parts = 4
    hidden: Size | None = None  # of the time mixing; the width
    inner: Size | None = None  # of the channel mixing; 4 · width
    norm: AnyNorm = LayerNorm()
    wiring: AnyWiring = PreNorm()
    dropout: Share = 0.0
    tied: Flag = False

    def sized(self, vocabulary: int) -> Decoder.Config:
        layers = range(self.depth)
        return Decoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=tuple(Rwkv.Config(hidden=self.hidden, layer=layer, layers=self.depth) for layer in layers),
            feedforward=tuple(ChannelMix.Config(hidden=self.inner, layer=layer, layers=self.depth) for layer in layers),
            norm=self.norm,
            embedding_norm=self.norm,
            wiring=self.wiring,
            dropout=self.dropout,
            tied=self.tied,
        )
