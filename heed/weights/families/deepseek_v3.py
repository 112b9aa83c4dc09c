"""DeepSeek-V3 (2024): latent attention, and experts in groups beside one that all tokens share."""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Count, Flag, Positive, Size
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...mixers import LatentAttention
from ...models import Decoder
from ...parts.feedforward import Experts, Gated
from ...parts.feedforward.experts import Shared
from ...parts.feedforward.routers import GroupedRouter
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table
from .skeleton import FEEDFORWARD, Skeleton, must_hold, projections
from .sparse import expert_names, must_route

KEYS = {"kv_a_proj_with_mqa": "compress", "kv_a_layernorm": "norm", "kv_b_proj": "expand", "o_proj": "out"}


class DeepseekV3(Skeleton):
    """DeepSeek-V3 and R1. Layers that only predict further tokens ahead (`num_nextn_predict_layers`) are left out."""

    types: ClassVar[tuple[str, ...]] = ("deepseek_v3",)
    paper: ClassVar[str] = "DeepSeek-AI 2024, arXiv 2412.19437"

    vocab_size: Size = 129280
    hidden_size: Size = 7168
    intermediate_size: Size = 18432
    moe_intermediate_size: Size = 2048
    num_hidden_layers: Size = 61
    num_attention_heads: Size = 128
    n_shared_experts: Size = 1
    n_routed_experts: Size = 256
    routed_scaling_factor: Positive = 2.5
    kv_lora_rank: Size = 512
    q_lora_rank: Size | None = 1536
    qk_rope_head_dim: Size = 64
    qk_nope_head_dim: Size = 128
    v_head_dim: Size = 128
    n_group: Size = 8
    topk_group: Size = 4
    num_experts_per_tok: Size = 8
    first_k_dense_replace: Count = 3
    norm_topk_prob: Flag = True
    max_position_embeddings: Size = 4096
    rope_interleave: Flag = True
    attention_bias: Flag = False
    num_nextn_predict_layers: Count = 1
    moe_layer_freq: Literal[1] = 1  # the authors' files name these three; there is no other value
    scoring_func: Literal["sigmoid"] = "sigmoid"
    topk_method: Literal["noaux_tc"] = "noaux_tc"

    def mixer(self, layer: int) -> MixerConfig:
        size = self.qk_nope_head_dim + self.qk_rope_head_dim
        return LatentAttention.Config(
            heads=self.num_attention_heads,
            rank=self.kv_lora_rank,
            query_rank=self.q_lora_rank,
            plain=self.qk_nope_head_dim,
            turned=self.qk_rope_head_dim,
            value_size=self.v_head_dim,
            bias=self.attention_bias,
            position=self.rope("pairs" if self.rope_interleave else "halves"),
            scale=size**-0.5 * self.rotation.growth,
        )

    def feedforward(self, layer: int) -> MixerConfig:
        if layer < self.first_k_dense_replace:
            return super().feedforward(layer)
        hidden, shared = self.moe_intermediate_size, self.moe_intermediate_size * self.n_shared_experts
        return Experts.Config(
            experts=self.n_routed_experts,
            active=self.num_experts_per_tok,
            expert=Gated.Config(hidden=hidden, activation=self.hidden_act),
            router=GroupedRouter(
                groups=self.n_group,
                kept=self.topk_group,
                renormalised=self.norm_topk_prob,
                scale=self.routed_scaling_factor,
            ),
            shared=Shared(expert=Gated.Config(hidden=shared, activation=self.hidden_act)),
        )

    @property
    def parts(self) -> dict[str, str]:
        if self.q_lora_rank is None:
            return KEYS | {"q_proj": "query"}
        return KEYS | {"q_a_proj": "compress_query", "q_a_layernorm": "query_norm", "q_b_proj": "query"}

    @property
    def head_size(self) -> int:
        return max(self.qk_nope_head_dim + self.qk_rope_head_dim, self.v_head_dim)

    def ours(self, tensors: Tensors) -> Decoder.Config:
        if self.num_key_value_heads not in (None, self.num_attention_heads):
            raise ConfigError(
                "latent attention has as many heads of keys as of queries; num_key_value_heads says otherwise"
            )
        must_hold(tensors, self.kv_lora_rank + self.qk_rope_head_dim, self.q_lora_rank or 1)
        if self.first_k_dense_replace < self.num_hidden_layers:
            must_route(tensors, self.n_routed_experts)
        return super().ours(tensors)

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        ahead = range(self.num_hidden_layers, self.num_hidden_layers + min(self.num_nextn_predict_layers, len(tensors)))
        starts = tuple(f"{layer}.".format(i=number) for number in ahead)
        return (
            *projections(f"{layer}.mlp.shared_experts", f"{block}.feedforward.shared", FEEDFORWARD),
            *expert_names(layer, block, self.n_routed_experts, tensors),
            Same(f"{layer}.mlp.gate.e_score_correction_bias", f"{block}.feedforward.routes.correction"),
            *(Ignored(name) for name in tensors if name.startswith(starts)),
        )
