"""Qwen 3 (Yang et al. 2025): Llama with norms over each head of query and key, dense or with experts."""

from __future__ import annotations

from typing import ClassVar

from pydantic import model_validator

from ...core.config import Count, Flag, Size
from ...core.contract import MixerConfig
from ...parts.layers.norms import RMSNorm
from ...parts.masks import Mask
from ..formats.safetensors import Tensors
from ..rename import Same, Table
from .qwen2 import Sparse, Windowed
from .skeleton import Skeleton, window


def normed(family: Skeleton, layer: int, *, bias: bool) -> MixerConfig:
    """Its attention, with norms over each head."""
    mixer = family.attention(layer, bias=bias, out_bias=bias)
    return mixer.model_copy(update={"head_norm": RMSNorm(eps=family.rms_norm_eps)})


def norm_names(layer: str, block: str) -> Table:
    """Of the norms over each head."""
    return tuple(
        Same(f"{layer}.self_attn.{theirs}_norm.weight", f"{block}.mixer.{ours}_norm.weight")
        for theirs, ours in (("q", "query"), ("k", "key"))
    )


class Qwen3(Windowed):
    """Qwen 3, and what was trained in its shape."""

    types: ClassVar[tuple[str, ...]] = ("qwen3",)
    paper: ClassVar[str] = "Yang et al. 2025, arXiv 2505.09388"

    head_dim: Size | None = 128
    attention_bias: Flag = False

    def mixer(self, layer: int) -> MixerConfig:
        return normed(self, layer, bias=self.attention_bias)

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        return norm_names(layer, block)


class Qwen3Moe(Sparse):
    """Qwen 3 with experts, and what was trained in its shape."""

    types: ClassVar[tuple[str, ...]] = ("qwen3_moe",)
    paper: ClassVar[str] = "Yang et al. 2025, arXiv 2505.09388"

    intermediate_size: Size = 6144
    num_key_value_heads: Size | None = 4
    attention_bias: Flag = False
    moe_intermediate_size: Size = 768
    num_experts_per_tok: Size = 8
    num_experts: Count = 128

    @model_validator(mode="before")
    @classmethod
    def _by_either_name(cls, data: object) -> object:
        if isinstance(data, dict) and "num_local_experts" in data:
            return {"num_experts": data["num_local_experts"], **data}
        return data

    def mask(self, layer: int) -> Mask:
        return window(self.length_seen)

    def mixer(self, layer: int) -> MixerConfig:
        return normed(self, layer, bias=self.attention_bias)

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        return (*norm_names(layer, block), *super().further(layer, block, tensors))
