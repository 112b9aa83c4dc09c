"""FLASH (Hua et al. 2022): a decoder of gated attention units and nothing else.

flash has no feed-forward: two units have the weights of a Transformer's layer, and take its place.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Parts, Share, Size
from ...mixers import GatedUnit
from ...parts.feedforward import Absent
from ...parts.layers.norms import AnyNorm, LayerNorm
from ...parts.positions import Sinusoid
from ...parts.residual.wiring import AnyWiring, PreNorm
from ..decoder import Decoder
from ..plan import Plan


class Flash(Plan):
    """A decoder of gated attention units (Hua et al. 2022) in few numbers."""

    paper: ClassVar[str] = "Hua et al. 2022, Transformer Quality in Linear Time, arXiv 2202.10447"

    kind: Literal["flash"] = "flash"
    width: Size = 128
    depth: Parts = 8  # units: twice the layers of a Transformer
    hidden: Size | None = None  # channels of gate and values; 2 · width
    size: Size = 128  # channels of queries and keys
    chunk: Size = 256  # tokens that look at one another pair by pair
    dropout: Share = 0.0
    norm: AnyNorm = LayerNorm()
    wiring: AnyWiring = PreNorm()

    def sized(self, vocabulary: int) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=GatedUnit.Config(hidden=self.hidden, size=self.size, chunk=self.chunk),
            feedforward=Absent.Config(),
            norm=self.norm,
            wiring=self.wiring,
            dropout=self.dropout,
            position=Sinusoid.Config(),
            scaled=True,
        )
