"""RetNet (Sun et al. 2023): a decoder with retention in the place of attention.

retnet trains in parallel over chunks of a text, and decodes with a state that does not grow (no KV cache).
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ...core.config import Parts, Share, Size
from ...mixers import Retention
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import AnyNorm, LayerNorm
from ...parts.residual.wiring import AnyWiring, PreNorm
from ..decoder import Decoder
from ..plan import Plan


class RetNet(Plan):
    """A decoder of retentions (Sun et al. 2023) in few numbers: values and hidden channels are twice as wide as the
    stream, so that a layer has as many weights as one of a Transformer.
    """

    paper: ClassVar[str] = "Sun et al. 2023, Retentive Network: A Successor to Transformer, arXiv 2307.08621"

    kind: Literal["retnet"] = "retnet"
    width: Size = 128
    depth: Parts = 4
    heads: Size = 2
    value_width: Size | None = None  # of all heads; 2 · width
    hidden: Size | None = None  # of the feed-forward; 2 · width
    dropout: Share = 0.0
    norm: AnyNorm = LayerNorm()
    wiring: AnyWiring = PreNorm()

    @model_validator(mode="after")
    def _whole_heads(self) -> Self:
        if self.values % self.heads:
            raise ValueError(f"values of {self.values} channels do not divide into {self.heads} heads; set value_width")
        return self

    @property
    def values(self) -> int:
        """Channels of all values."""
        return self.value_width or 2 * self.width

    def sized(self, vocabulary: int) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=Retention.Config(heads=self.heads, value_size=self.values // self.heads),
            feedforward=FeedForward.Config(
                hidden=self.hidden or 2 * self.width, activation="gelu", dropout=self.dropout
            ),
            norm=self.norm,
            wiring=self.wiring,
            dropout=self.dropout,
        )
