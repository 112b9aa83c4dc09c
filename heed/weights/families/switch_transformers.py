"""Switch Transformers (Fedus et al. 2022): T5 with experts in some layers, of which every token goes through one."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Flag, Size
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...parts.feedforward import Experts, FeedForward
from ...parts.feedforward.routers import SoftmaxRouter
from ..formats.safetensors import Tensors
from ..rename import Same, Table
from .base import Act
from .t5 import T5


class SwitchTransformers(T5):
    """Switch Transformers. Which layers have experts is seen in the file.

    `expert_capacity` is passed over: where the reference library leaves out tokens that come to an expert after it has
    had so many of a row, here every token gets its expert. Else what a token becomes would depend on others of its row
    that say nothing to it, and on how the row is cut into calls.
    """

    types: ClassVar[tuple[str, ...]] = ("switch_transformers",)
    paper: ClassVar[str] = "Fedus et al. 2022, arXiv 2101.03961"

    d_model: Size = 768
    num_layers: Size = 12
    num_decoder_layers: Size | None = 12
    num_heads: Size = 12
    num_experts: Size = 8
    router_bias: Flag = False
    dense_act_fn: Act = "relu"
    is_gated_act: Flag = False

    def _feedforwards(self, tensors: Tensors, side: str) -> tuple[MixerConfig, ...]:
        if self.router_bias:
            raise ConfigError("router_bias is set: heed's routers have no bias")
        depth, part = (self.num_layers, 1) if side == "encoder" else (self.num_decoder_layers or self.num_layers, 2)
        routers = [f"{side}.block.{layer}.layer.{part}.mlp.router.classifier.weight" for layer in range(depth)]
        experts = self.num_experts * sum(router in tensors for router in routers)
        if experts > len(tensors):
            raise ConfigError(f"it claims {experts} experts in the {side}, but there are {len(tensors)} tensors")
        dense = FeedForward.Config(hidden=self.d_ff, activation=self.dense_act_fn, bias=False)
        sparse = Experts.Config(
            experts=self.num_experts, active=1, expert=dense, router=SoftmaxRouter(renormalised=False)
        )
        return tuple(sparse if router in tensors else dense for router in routers)

    def _scaled(self) -> bool:
        return self.tie_word_embeddings

    def _shared(self, tensors: Tensors) -> bool:
        return not self.apart(tensors)

    def _inner(self, theirs: str, ours: str) -> Table:
        """The feed-forward, dense or in each of the experts."""
        expert = f"{theirs}.mlp.experts.expert_{{e}}"
        return (
            Same(f"{theirs}.mlp.router.classifier.weight", f"{ours}.routes.scores.weight"),
            *(
                rule
                for their, our in (("wi", "up"), ("wo", "down"))
                for rule in (
                    Same(f"{theirs}.mlp.{their}.weight", f"{ours}.{our}.weight"),
                    Same(f"{expert}.{their}.weight", f"{ours}.experts.{{e}}.{our}.weight"),
                )
            ),
        )
