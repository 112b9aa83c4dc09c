"""Adaptive input (Baevski & Auli 2019) and adaptive softmax (Grave et al. 2017): rare tokens have fewer channels."""

from __future__ import annotations

from typing import Literal, Self, cast

from pydantic import model_validator
from torch import nn

from ...parts.inputs.adaptive import Adaptive, AdaptiveEmbedding, AdaptiveSoftmax
from ...parts.outputs.heads import heads_of
from ..backbone import TokenBackbone
from ..decoder import Decoder


class AdaptiveDecoder(Decoder):
    """A decoder whose tokens come in clusters, from common to rare: its logits are log-probabilities.

    Baevski & Auli 2019 for the embeddings, Grave et al. 2017 for the softmax. Token ids must fall with frequency. With
    a first cluster of C tokens of V, the loss of a common token costs O(C·d) instead of O(V·d), and the vocabulary
    takes a fraction of V·d numbers; all logits at once still cost O(V).
    """

    head: AdaptiveSoftmax  # type: ignore[assignment]  # it is called like any head, and finds its loss itself

    class Config(Decoder.Config):
        kind: Literal["adaptive_decoder"] = "adaptive_decoder"  # type: ignore[assignment]  # a shape of its own
        adaptive: Adaptive = Adaptive()

        @model_validator(mode="after")
        def _log_probabilities(self) -> Self:
            given = {
                "narrow": self.narrow,
                "narrowed": self.narrowed,
                "cap": self.cap,
                "head_scale": self.head_scale != 1,
            }
            idle = [name for name, value in given.items() if value]
            if idle:
                raise ValueError(f"{idle[0]} has no place beside an adaptive vocabulary; leave it out")
            if self.wiring.leaves(self.width) != self.width:
                raise ValueError("an adaptive vocabulary needs a wiring that leaves the stream as wide as it was")
            return self

        def build(self) -> AdaptiveDecoder:
            return AdaptiveDecoder(self)

    def __init__(self, config: Config) -> None:
        table = AdaptiveEmbedding(config.adaptive, config.tokens, config.width)
        # Not Decoder's own: that would first make a matrix of all tokens, which is what this vocabulary avoids.
        TokenBackbone.__init__(self, config, cast(nn.Embedding, table))  # it is asked for tokens like any table
        self.narrow = None
        self.head = AdaptiveSoftmax(config.adaptive, config.tokens, config.width, bias=config.head_bias)
        self.head.tie(table, weights=config.tied, projections=config.adaptive.tied)
        self.heads = heads_of(config.heads, config.width)
