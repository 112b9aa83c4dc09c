"""Mixtral (Jiang et al. 2024): Mistral with eight experts in every layer, of which every token goes through two."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Flag, Number, Positive, Size
from ...core.contract import MixerConfig
from ...models import Decoder
from ...parts.feedforward import Experts, Gated
from ...parts.masks import Mask
from ..formats.safetensors import Tensors
from ..rename import Table
from .skeleton import Skeleton, window
from .sparse import STACK, expert_names, must_route

PARTS = {"w1": "gate", "w3": "up", "w2": "down"}


class Mixtral(Skeleton):
    """Mixtral 8x7B and 8x22B, and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("mixtral",)
    paper: ClassVar[str] = "Jiang et al. 2024, arXiv 2401.04088"
    theta: ClassVar[float] = 1e6

    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    max_position_embeddings: Size = 4096 * 32
    rms_norm_eps: Positive = 1e-5
    sliding_window: Size | None = None
    num_local_experts: Size = 8
    num_experts_per_tok: Size = 2
    output_router_logits: Flag = False
    router_aux_loss_coef: Number = 0.001

    def mask(self, layer: int) -> Mask:
        return window(self.sliding_window)

    def feedforward(self, layer: int) -> MixerConfig:
        return Experts.Config(
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            expert=Gated.Config(hidden=self.intermediate_size, activation=self.hidden_act),
            balance=self.router_aux_loss_coef if self.output_router_logits else 0.0,
        )

    def ours(self, tensors: Tensors) -> Decoder.Config:
        stacked = any(name.endswith(STACK) for name in tensors)
        must_route(tensors, self.num_local_experts, ".mlp.gate.weight" if stacked else ".block_sparse_moe.gate.weight")
        return super().ours(tensors)

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        return expert_names(layer, block, self.num_local_experts, tensors, PARTS)
