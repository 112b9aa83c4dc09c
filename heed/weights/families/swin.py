"""Swin (Liu et al. 2021): shifted windows on a plane, merged from stage to stage."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Flag, Positive, Share, Size
from ...core.errors import ConfigError
from ...models import Swin as Ours
from ...parts.inputs.patches import PatchEmbeddings
from ...parts.layers.norms import LayerNorm
from ...parts.outputs.heads import Pooled
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table, both
from ..rules import Framed
from .base import Act, Family, prefix
from .encoders import kept
from .vit import NEW, OURS, Sides

STORED = (
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)
INNER_NORM = LayerNorm(eps=1e-5)  # of the patches, whatever layer_norm_eps says of the others


class Swin(Family):
    """Swin alone or as a classifier."""

    types: ClassVar[tuple[str, ...]] = ("swin",)
    paper: ClassVar[str] = "Liu et al. 2021, Swin Transformer: Hierarchical Vision Transformer using Shifted Windows"

    image_size: Sides = (224, 224)
    patch_size: Sides = (4, 4)
    num_channels: Size = 3
    embed_dim: Size = 96
    depths: tuple[Size, ...] = (2, 2, 6, 2)
    num_heads: tuple[Size, ...] = (3, 6, 12, 24)
    window_size: Size = 7
    mlp_ratio: Positive = 4.0
    qkv_bias: Flag = True
    hidden_dropout_prob: Share = 0.0
    attention_probs_dropout_prob: Share = 0.0
    hidden_act: Act = "gelu"
    use_absolute_embeddings: Flag = False
    layer_norm_eps: Positive = 1e-5

    @property
    def layers(self) -> int:
        return sum(self.depths)

    def ours(self, tensors: Tensors) -> Ours.Config:
        if "decoder.0.weight" in tensors:
            raise ConfigError("it draws masked patches (decoder.0.weight); heed reads models that classify or encode")
        labels = tensors.like("classifier.weight").shape[0] if "classifier.weight" in tensors else None
        return Ours.Config(
            embeddings=PatchEmbeddings.Config(
                image=self.image_size,
                patch=self.patch_size,
                channels=self.num_channels,
                marks=0,
                position=self.use_absolute_embeddings,
                patch_norm=INNER_NORM,
                filled=True,
            ),
            width=self.embed_dim,
            depths=self.depths,
            heads_per_stage=self.num_heads,
            window=self.window_size,
            ratio=self.mlp_ratio,
            activation=self.hidden_act,
            bias=self.qkv_bias,
            norm=LayerNorm(eps=self.layer_norm_eps),
            dropout=self.hidden_dropout_prob,
            weight_dropout=self.attention_probs_dropout_prob,
            heads=Pooled.Config(pool="mean", labels=labels),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, "swin.")
        patches, stage = f"{theirs}embeddings", f"{theirs}encoder.layers.{{s}}"
        layer, block = f"{stage}.blocks.{{i}}", "stages.{s}.stack.blocks.{i}"
        new = any(name.endswith(".attention.q_proj.weight") for name in tensors)
        parts = zip(NEW if new else STORED, OURS, strict=True)
        table = "attention.relative_position_bias" if new else "attention.self"
        return (
            *both(f"{patches}.patch_embeddings.projection", "embeddings.cut"),
            *both(f"{patches}.norm", "embeddings.patch_norm"),
            Framed(f"{patches}.position_embeddings", "embeddings.position.table"),
            *(rule for old, our in parts for rule in both(f"{layer}.{old}", f"{block}.{our}")),
            Same(f"{layer}.{table}.relative_position_bias_table", f"{block}.mixer.table"),
            *both(f"{layer}.layernorm_before", f"{block}.wiring.norms.0"),
            *both(f"{layer}.layernorm_after", f"{block}.wiring.norms.1"),
            *both(f"{stage}.downsample.norm", "stages.{s}.merge.norm"),
            Same(f"{stage}.downsample.reduction.weight", "stages.{s}.merge.narrow.weight"),
            *both(f"{theirs}layernorm", "norm"),
            *both("classifier", "heads.pooled.scores"),
            Ignored(f"{layer}.{table}.relative_position_index"),
            *kept(
                tensors, f"{patches}.mask_token", beside="embeddings.cut.weight"
            ),  # stands for a patch that is to be drawn
        )
