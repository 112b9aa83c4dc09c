"""Mamba (Gu & Dao 2023): a language model of selective state spaces alone.

There is no feed-forward: the gate inside the mixer, and its channels, twice as many as the stream has, do its work.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Flag, Parts, Share, Size
from ...mixers import Mamba
from ...parts.feedforward import Absent
from ...parts.layers.norms import AnyNorm, RMSNorm
from ...parts.residual.wiring import AnyWiring, PreNorm
from ..decoder import Decoder
from ..plan import Plan


class MambaDecoder(Plan):
    """A decoder of Mamba blocks in few numbers: mixers alone, about twice as many as a Transformer has layers."""

    paper: ClassVar[str] = "Gu & Dao 2023, Mamba: Linear-Time Sequence Modeling, arXiv 2312.00752"

    kind: Literal["mamba"] = "mamba"
    width: Size = 128
    depth: Parts = 8
    hidden: Size | None = None  # channels inside a mixer; 2 · width
    state: Size = 16  # numbers that each of them remembers
    kernel: Size = 4  # tokens that its convolution sees
    rank: Size | None = None  # of what steps are made from; width / 16
    norm: AnyNorm = RMSNorm(eps=1e-5)
    wiring: AnyWiring = PreNorm()
    dropout: Share = 0.0
    tied: Flag = True

    def sized(self, vocabulary: int) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=Mamba.Config(hidden=self.hidden, state=self.state, kernel=self.kernel, rank=self.rank),
            feedforward=Absent.Config(),
            norm=self.norm,
            wiring=self.wiring,
            dropout=self.dropout,
            tied=self.tied,
        )
