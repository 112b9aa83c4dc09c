"""LongT5 (Guo et al. 2022): T5 whose encoder looks through a window and, if asked, at summaries of blocks."""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Count, Size
from ...core.contract import MixerConfig
from ...mixers import Attention, TransientGlobal
from ...models import Encoder
from ...parts.layers.norms import RMSNorm
from ...parts.masks import Window
from ...parts.positions import Buckets
from ..formats.safetensors import Tensors
from ..rename import Same, Table
from .t5 import T5

LOCAL, TRANSIENT = "LocalSelfAttention", "TransientGlobalSelfAttention"  # names of the encoder's attention


class LongT5(T5):
    """LongT5 with local or transient-global attention in its encoder; its decoder is T5's."""

    types: ClassVar[tuple[str, ...]] = ("longt5",)
    paper: ClassVar[str] = "Guo et al. 2022, arXiv 2112.07916"

    local_radius: Count = 127
    global_block_size: Size = 16
    encoder_attention_type: Literal["local", "transient-global"] = "local"

    def _encoder(self, tensors: Tensors) -> Encoder.Config:
        return super()._encoder(tensors).model_copy(update={"mixer": (self._reading(),)})

    def _reading(self) -> MixerConfig:
        """The attention of the encoder."""
        radius, heads, size = self.local_radius, self.num_heads, self.d_kv
        buckets = Buckets.Config(
            buckets=self.relative_attention_num_buckets, distance=self.relative_attention_max_distance, both_ways=True
        )
        if self.encoder_attention_type == "local":
            mask = Window(back=radius, ahead=radius)
            return Attention.Config(heads=heads, head_size=size, bias=False, scale=1.0, mask=mask, position=buckets)
        return TransientGlobal.Config(
            heads=heads,
            head_size=size,
            bias=False,
            scale=1.0,
            radius=radius,
            block=self.global_block_size,
            position=buckets,
            summary_norm=RMSNorm(eps=self.layer_norm_epsilon),
            rounded=self.global_block_size & (self.global_block_size - 1) > 0,  # shares of two are exact
        )

    def _layers(self, side: str, ours: str) -> Table:
        table = super()._layers(side, ours)
        if side == "decoder":
            return table
        name = LOCAL if self.encoder_attention_type == "local" else TRANSIENT
        theirs, mixer = f"{side}.block.{{i}}.layer.0.{name}", f"{ours}stack.blocks.{{i}}.mixer"
        return (
            *(_renamed(rule, name) for rule in table if isinstance(rule, Same)),
            Same(f"{theirs}.global_relative_attention_bias.weight", f"{mixer}.position.far.table"),
            Same(f"{theirs}.global_input_layer_norm.weight", f"{mixer}.summary_norm.weight"),
        )


def _renamed(rule: Same, name: str) -> Same:
    return Same(rule.theirs.replace("SelfAttention", name), rule.ours)
