"""Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases of queries, keys and values, perhaps a window in some layers."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Count, Flag, Number, Size
from ...core.contract import MixerConfig
from ...models import Decoder
from ...parts.feedforward import Experts, Gated
from ...parts.feedforward.experts import Shared
from ...parts.feedforward.routers import SoftmaxRouter
from ...parts.masks import Mask
from ..formats.safetensors import Tensors
from ..rename import Same, Table
from .skeleton import FEEDFORWARD, LayerType, Skeleton, by_layer, of_every_layer, projections, window
from .sparse import expert_names, must_route


class Windowed(Skeleton):
    """Layers from `max_window_layers` on have a window, if any: the same in Qwen 2 and 3."""

    vocab_size: Size = 151936
    intermediate_size: Size = 22016
    num_key_value_heads: Size | None = 32
    max_position_embeddings: Size = 32768
    use_sliding_window: Flag = False
    sliding_window: Size | None = 4096
    max_window_layers: Count = 28
    layer_types: tuple[LayerType, ...] | None = None

    def mask(self, layer: int) -> Mask:
        length = self.sliding_window if self.use_sliding_window else None
        return by_layer(self.kinds(length), layer, length)

    def kinds(self, length: int | None) -> tuple[LayerType, ...]:
        """The type of every layer."""
        if self.layer_types is None:
            slides = range(self.max_window_layers if length is not None else self.layers, self.layers)
            return tuple("sliding_attention" if layer in slides else "full_attention" for layer in range(self.layers))
        return of_every_layer(self.layer_types, self.layers)


class Qwen2(Windowed):
    """Qwen 2 and 2.5, and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("qwen2",)
    paper: ClassVar[str] = "Yang et al. 2024, arXiv 2407.10671"

    def mixer(self, layer: int) -> MixerConfig:
        return self.attention(layer, bias=True)


class Sparse(Skeleton):
    """Experts in every `decoder_sparse_step`-th layer that is not named as dense: the same in Qwen 2 and 3."""

    vocab_size: Size = 151936
    hidden_size: Size = 2048
    num_hidden_layers: Size = 24
    max_position_embeddings: Size = 32768
    use_sliding_window: Flag = False
    sliding_window: Count | None = 4096  # 0 stands in files that use none
    decoder_sparse_step: Size = 1
    mlp_only_layers: tuple[Count, ...] | None = None
    moe_intermediate_size: Size = 1408
    num_experts_per_tok: Size = 4
    num_experts: Count = 60
    norm_topk_prob: Flag = False
    output_router_logits: Flag = False
    router_aux_loss_coef: Number = 0.001

    @property
    def length_seen(self) -> int | None:
        """Of the window, if any."""
        return (self.sliding_window or None) if self.use_sliding_window else None

    def sparse(self, layer: int) -> bool:
        """Whether a layer has experts."""
        last = (layer + 1) % self.decoder_sparse_step == 0
        return self.num_experts > 0 and last and layer not in (self.mlp_only_layers or ())

    def shared(self) -> Shared | None:
        """The expert that all tokens share."""
        return None

    def feedforward(self, layer: int) -> MixerConfig:
        if not self.sparse(layer):
            return super().feedforward(layer)
        return Experts.Config(
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            expert=Gated.Config(hidden=self.moe_intermediate_size, activation=self.hidden_act),
            router=SoftmaxRouter(renormalised=self.norm_topk_prob),
            shared=self.shared(),
            balance=self.router_aux_loss_coef if self.output_router_logits else 0.0,
        )

    def ours(self, tensors: Tensors) -> Decoder.Config:
        if any(map(self.sparse, range(self.layers))):
            must_route(tensors, self.num_experts)
        return super().ours(tensors)

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        return expert_names(layer, block, self.num_experts, tensors)


class Qwen2Moe(Sparse):
    """Qwen 1.5 and 2 with experts. One of them is shared by all tokens, as much as a gate lets through."""

    types: ClassVar[tuple[str, ...]] = ("qwen2_moe",)
    paper: ClassVar[str] = "Yang et al. 2024, arXiv 2407.10671"

    intermediate_size: Size = 5632
    num_attention_heads: Size = 16
    num_key_value_heads: Size | None = 16
    max_window_layers: Count = 28
    layer_types: tuple[LayerType, ...] | None = None
    shared_expert_intermediate_size: Size = 5632
    qkv_bias: Flag = True

    def mask(self, layer: int) -> Mask:
        if self.layer_types is None:
            return window(self.length_seen if layer % 2 == 0 and layer < self.max_window_layers else None)
        return by_layer(of_every_layer(self.layer_types, self.layers), layer, self.length_seen)

    def mixer(self, layer: int) -> MixerConfig:
        return self.attention(layer, bias=self.qkv_bias)

    def shared(self) -> Shared:
        hidden = self.shared_expert_intermediate_size
        return Shared(expert=Gated.Config(hidden=hidden, activation=self.hidden_act), gated=True)

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        return (
            *super().further(layer, block, tensors),
            *projections(f"{layer}.mlp.shared_expert", f"{block}.feedforward.shared", FEEDFORWARD),
            Same(f"{layer}.mlp.shared_expert_gate.weight", f"{block}.feedforward.shared_gate.weight"),
        )
