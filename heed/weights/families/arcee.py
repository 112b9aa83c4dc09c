"""Arcee's foundation models (AFM, 2025): Llama with a plain feed-forward of squared ReLUs (So et al. 2021)."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Flag, Positive, Size
from ...core.contract import MixerConfig
from ...parts.feedforward import FeedForward
from .base import Act
from .skeleton import Skeleton


class Arcee(Skeleton):
    """AFM 4.5B, and what was trained in its shape: heed's own recipe `characters` is one of these."""

    types: ClassVar[tuple[str, ...]] = ("arcee",)
    paper: ClassVar[str] = "So et al. 2021, arXiv 2109.08668"

    hidden_size: Size = 2560
    intermediate_size: Size = 18432
    hidden_act: Act = "relu_squared"
    max_position_embeddings: Size = 4096
    rms_norm_eps: Positive = 1e-5
    attention_bias: Flag = False
    mlp_bias: Flag = False

    @property
    def inner(self) -> dict[str, str]:
        return {"up_proj": "up", "down_proj": "down"}

    def mixer(self, layer: int) -> MixerConfig:
        return self.attention(layer, bias=self.attention_bias, out_bias=self.attention_bias)

    def feedforward(self, layer: int) -> MixerConfig:
        return FeedForward.Config(hidden=self.intermediate_size, activation=self.hidden_act, bias=self.mlp_bias)
