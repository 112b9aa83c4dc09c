"""Gemma (2024) and Gemma 2 (2024): gains stored as their difference from one, embeddings scaled by √width.

Gemma 2 also has norms on both sides of every part, windows in every second layer, and caps on scores and logits.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import field_validator

from ...core.config import Flag, Positive, Size
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...models import Decoder
from ...parts.feedforward import Gated
from ...parts.layers.norms import RMSNorm
from ...parts.masks import Causal, Mask
from ...parts.residual.wiring import Sandwich
from ..formats.safetensors import Tensors
from .base import Act
from .skeleton import LayerType, Skeleton, by_layer, of_every_layer, window


class Gemmas(Skeleton):
    """What all of them share."""

    vocab_size: Size = 256000
    head_dim: Size | None = 256
    max_position_embeddings: Size = 8192
    tie_word_embeddings: Flag = True
    attention_bias: Flag = False
    use_bidirectional_attention: Flag | None = None

    def mixer(self, layer: int) -> MixerConfig:
        return self.attention(layer, bias=self.attention_bias, out_bias=self.attention_bias)

    def ours(self, tensors: Tensors) -> Decoder.Config:
        if self.use_bidirectional_attention:
            raise ConfigError("use_bidirectional_attention is set: heed reads Gemma as a language model, looking back")
        norm = RMSNorm(eps=self.rms_norm_eps, from_one=True)
        return super().ours(tensors).model_copy(update={"norm": norm, "scaled": True})


class Gemma(Gemmas):
    """Gemma 1, and what was trained in its shape."""

    types: ClassVar[tuple[str, ...]] = ("gemma",)
    paper: ClassVar[str] = "Gemma Team 2024, arXiv 2403.08295"

    hidden_size: Size = 3072
    intermediate_size: Size = 24576
    num_hidden_layers: Size = 28
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 16
    hidden_act: Act = "gelu_tanh"

    @field_validator("hidden_act", mode="before")
    @classmethod
    def _tanh_was_meant(cls, value: object) -> object:
        return "gelu_pytorch_tanh" if value == "gelu" else value  # the first files name the wrong one


class Gemma2(Gemmas):
    """Gemma 2, and what was trained in its shape."""

    types: ClassVar[tuple[str, ...]] = ("gemma2",)
    paper: ClassVar[str] = "Gemma Team 2024, arXiv 2408.00118"
    norms: ClassVar[tuple[str, ...]] = (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    )

    hidden_size: Size = 2304
    intermediate_size: Size = 9216
    num_hidden_layers: Size = 26
    num_attention_heads: Size = 8
    num_key_value_heads: Size | None = 4
    hidden_activation: Act = "gelu_tanh"
    query_pre_attn_scalar: Positive = 256.0
    sliding_window: Size | None = 4096
    layer_types: tuple[LayerType, ...] | None = None
    attn_logit_softcapping: Positive | None = 50.0
    final_logit_softcapping: Positive | None = 30.0

    def mask(self, layer: int) -> Mask:
        if self.layer_types is None:
            return window(self.sliding_window) if layer % 2 == 0 else Causal()
        return by_layer(of_every_layer(self.layer_types, self.layers), layer, self.sliding_window)

    def mixer(self, layer: int) -> MixerConfig:
        plain = self.attention(layer, bias=self.attention_bias, out_bias=self.attention_bias)
        scale = self.query_pre_attn_scalar**-0.5
        return plain.model_copy(update={"scale": scale, "cap": self.attn_logit_softcapping})

    def feedforward(self, layer: int) -> MixerConfig:
        return Gated.Config(hidden=self.intermediate_size, activation=self.hidden_activation)

    def ours(self, tensors: Tensors) -> Decoder.Config:
        changed = {"wiring": Sandwich(), "cap": self.final_logit_softcapping}
        return super().ours(tensors).model_copy(update=changed)
