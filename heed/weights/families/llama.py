"""Llama (Touvron et al. 2023; Llama 2 and 3): what most open language models are made like."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Flag
from ...core.contract import MixerConfig
from ...parts.feedforward import Gated
from .skeleton import Skeleton


class Llama(Skeleton):
    """Llama 1, 2 and 3, and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("llama",)
    paper: ClassVar[str] = "Touvron et al. 2023, arXiv 2302.13971"
    ternary: ClassVar[bool] = True

    attention_bias: Flag = False
    mlp_bias: Flag = False

    def mixer(self, layer: int) -> MixerConfig:
        return self.attention(layer, bias=self.attention_bias, out_bias=self.attention_bias)

    def feedforward(self, layer: int) -> MixerConfig:
        return Gated.Config(hidden=self.intermediate_size, activation=self.hidden_act, bias=self.mlp_bias)
