"""BitNet b1.58 (Ma et al. 2024): Llama with two more norms in a layer, and ternary weights."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Flag, Positive, Size
from ...core.contract import MixerConfig
from ...parts.feedforward import Gated
from ...parts.layers.norms import RMSNorm
from ..formats.safetensors import Tensors
from ..rename import Same, Table
from .base import Act
from .skeleton import Skeleton


class BitNet(Skeleton):
    """BitNet b1.58 2B4T and what was trained in its shape; weights plain, rounded in every call, or in two bits."""

    types: ClassVar[tuple[str, ...]] = ("bitnet",)
    paper: ClassVar[str] = "Ma et al. 2024, arXiv 2402.17764; Ma et al. 2025, arXiv 2504.12285"
    theta: ClassVar[float] = 500000.0
    ternary: ClassVar[bool] = True

    vocab_size: Size = 128256
    hidden_size: Size = 2560
    intermediate_size: Size = 6912
    num_hidden_layers: Size = 30
    num_attention_heads: Size = 20
    num_key_value_heads: Size | None = 5
    hidden_act: Act = "relu_squared"
    rms_norm_eps: Positive = 1e-5
    attention_bias: Flag = False

    @property
    def norm(self) -> RMSNorm:
        """All norms are alike."""
        return RMSNorm(eps=self.rms_norm_eps)

    def mixer(self, layer: int) -> MixerConfig:
        plain = self.attention(layer, bias=self.attention_bias, out_bias=self.attention_bias)
        return plain.model_copy(update={"norm": self.norm})

    def feedforward(self, layer: int) -> MixerConfig:
        return Gated.Config(hidden=self.intermediate_size, activation=self.hidden_act, norm=self.norm)

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        return (
            Same(f"{layer}.self_attn.attn_sub_norm.weight", f"{block}.mixer.norm.weight"),
            Same(f"{layer}.mlp.ffn_sub_norm.weight", f"{block}.feedforward.norm.weight"),
        )
