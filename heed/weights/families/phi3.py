"""Phi-3 and Phi-4 (Abdin et al. 2024): Llama with fused projections, perhaps rotated in part, stretched by LongRoPE."""

from __future__ import annotations

from typing import ClassVar

from pydantic import field_validator

from ...core.config import Positive, Size
from ...parts.masks import Mask
from ...parts.positions import Rope
from ...parts.positions.rotary import Layout
from ..formats.safetensors import Tensors
from ..rename import Fused, Table
from ..rules import Grouped
from .rope import Rotary
from .skeleton import Skeleton, window


class Phi3(Skeleton):
    """Phi-3 and Phi-4, and what was trained in their shape.

    Those of a long context have two sets of frequencies. heed takes the one of the original context, unless config.json
    declares in rope_scaling (or rope_parameters) a `length` beyond it.
    """

    types: ClassVar[tuple[str, ...]] = ("phi3",)
    paper: ClassVar[str] = "Abdin et al. 2024, arXiv 2404.14219"

    vocab_size: Size = 32064
    hidden_size: Size = 3072
    intermediate_size: Size = 8192
    max_position_embeddings: Size = 4096
    original_max_position_embeddings: Size | None = 4096
    rms_norm_eps: Positive = 1e-5
    sliding_window: Size | None = None

    @field_validator("rope_scaling", "rope_parameters", mode="before")
    @classmethod
    def _long_was_meant(cls, value: object) -> object:
        """The first files call it su or yarn."""
        if isinstance(value, dict) and value.get("rope_type", value.get("type")) in ("su", "yarn"):
            return {**value, "rope_type": "longrope"}
        return value

    @property
    def parts(self) -> dict[str, str]:
        return {"o_proj": "out"}

    @property
    def inner(self) -> dict[str, str]:
        return {"down_proj": "down"}

    def mask(self, layer: int) -> Mask:
        return window(self.sliding_window)

    def rope(self, layout: Layout = "halves") -> Rope.Config:
        found = Rotary.rope(self, layout)
        return found.model_copy(update={"share": int(self.head_size * found.share) / self.head_size})

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        heads, groups = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        asked = tuple(f"{block}.mixer.{part}.weight" for part in ("query", "key", "value"))
        inner = tuple(f"{block}.feedforward.{part}.weight" for part in ("gate", "up"))
        return (
            Grouped(f"{layer}.self_attn.qkv_proj.weight", asked, groups=1, shares=(heads, groups, groups)),
            Fused(f"{layer}.mlp.gate_up_proj.weight", inner),
        )
