"""CLIP (Radford et al. 2021): a text encoder, a vision encoder, and each of them alone."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator

from ...core.config import Count, Number, Positive, Share, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import ClipModel, ClipTextEncoder, VisionEncoder
from ...parts.feedforward import FeedForward
from ...parts.inputs.patches import PatchEmbeddings
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Causal, Mask, Whole
from ...parts.outputs.heads import Pooled
from ...parts.positions import Learned
from ...parts.residual.wiring import PreNorm
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table, both
from .base import Act, Family, prefix
from .vit import Sides

PAPER = "Radford et al. 2021, Learning Transferable Visual Models From Natural Language Supervision"
LEGACY_END = 2  # what old configs name though no text ends so: the end was taken to be the highest id


class Tower(Family):
    """What both encoders have."""

    paper: ClassVar[str] = PAPER

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size = 12
    num_attention_heads: Size
    hidden_act: Act = "gelu_sigmoid"
    layer_norm_eps: Positive = 1e-5
    attention_dropout: Share = 0.0

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    def stack(self, mask: Mask) -> dict[str, Any]:
        """The part of heed's configuration that is the same for both."""
        return {
            "width": self.hidden_size,
            "depth": self.num_hidden_layers,
            "mixer": Attention.Config(heads=self.num_attention_heads, mask=mask, dropout=self.attention_dropout),
            "feedforward": FeedForward.Config(hidden=self.intermediate_size, activation=self.hidden_act),
            "norm": LayerNorm(eps=self.layer_norm_eps),
        }


class ClipText(Tower):
    """The text encoder."""

    types: ClassVar[tuple[str, ...]] = ("clip_text_model",)

    vocab_size: Size = 49408
    hidden_size: Size = 512
    intermediate_size: Size = 2048
    num_attention_heads: Size = 8
    max_position_embeddings: Size = 77
    eos_token_id: Count = 49407

    def ours(self, tensors: Tensors) -> ClipTextEncoder.Config:
        return self.encoder(_rows(tensors, "text_projection.weight"))

    def encoder(self, size: int | None) -> ClipTextEncoder.Config:
        """With an answer of so many channels."""
        return ClipTextEncoder.Config(
            vocabulary=self.vocab_size,
            position=Learned.Config(length=self.max_position_embeddings),
            end=None if self.eos_token_id == LEGACY_END else self.eos_token_id,
            size=size,
            **self.stack(Causal()),
        )

    def names(self, tensors: Tensors) -> Table:
        return text_names(prefix(tensors, "text_model."), "")


class ClipVision(Tower):
    """The vision encoder."""

    types: ClassVar[tuple[str, ...]] = ("clip_vision_model",)

    hidden_size: Size = 768
    intermediate_size: Size = 3072
    num_attention_heads: Size = 12
    num_channels: Size = 3
    image_size: Sides = (224, 224)
    patch_size: Sides = (32, 32)

    def ours(self, tensors: Tensors) -> VisionEncoder.Config:
        return self.encoder(_rows(tensors, "visual_projection.weight"))

    def encoder(self, size: int | None) -> VisionEncoder.Config:
        """With an answer of so many channels."""
        norm = LayerNorm(eps=self.layer_norm_eps)
        return VisionEncoder.Config(
            embeddings=PatchEmbeddings.Config(
                image=self.image_size, patch=self.patch_size, channels=self.num_channels, bias=False, norm=norm
            ),
            wiring=PreNorm(final=False),
            heads=Pooled.Config(norm=norm, labels=size, bias=False),
            **self.stack(Whole()),
        )

    def names(self, tensors: Tensors) -> Table:
        return vision_names(prefix(tensors, "vision_model."), "")


class CLIP(Family):
    """Both encoders, and how their answers are compared."""

    types: ClassVar[tuple[str, ...]] = ("clip",)
    paper: ClassVar[str] = PAPER

    text_config: ClipText = ClipText()
    vision_config: ClipVision = ClipVision()
    projection_dim: Size = 512
    logit_scale_init_value: Number = 2.6592

    @model_validator(mode="before")
    @classmethod
    def _sides(cls, data: Any) -> Any:
        """A side that is null has its defaults; one that stands under its old name, text_config_dict, is that one."""
        if not isinstance(data, dict):
            return data
        sides = ("text_config", "vision_config")
        given = {side: data.get(f"{side}_dict") or data.get(side) for side in sides}
        return {name: value for name, value in {**data, **given}.items() if name not in sides or value is not None}

    @property
    def layers(self) -> int:
        return self.text_config.layers + self.vision_config.layers

    def ours(self, tensors: Tensors) -> ClipModel.Config:
        if "classifier.weight" in tensors:
            raise ConfigError("it classifies images (classifier.weight); heed reads CLIP as two encoders")
        return ClipModel.Config(
            text=self.text_config.encoder(self.projection_dim),
            image=self.vision_config.encoder(self.projection_dim),
            scale=self.logit_scale_init_value,
        )

    def names(self, tensors: Tensors) -> Table:
        return (
            *text_names("text_model.", "text."),
            *vision_names("vision_model.", "image."),
            Same("logit_scale", "scale"),
        )


def text_names(theirs: str, ours: str) -> Table:
    """The names of a text encoder."""
    return (
        Same(f"{theirs}embeddings.token_embedding.weight", f"{ours}embeddings.table.weight"),
        Same(f"{theirs}embeddings.position_embedding.weight", f"{ours}embeddings.position.table"),
        *_layers(theirs, ours),
        *both(f"{theirs}final_layer_norm", f"{ours}stack.ends.final"),
        Same("text_projection.weight", f"{ours}project.weight"),
        Ignored(f"{theirs}embeddings.position_ids"),
    )


def vision_names(theirs: str, ours: str) -> Table:
    """The names of a vision encoder."""
    return (
        Same(f"{theirs}embeddings.class_embedding", f"{ours}embeddings.marks.0"),
        Same(f"{theirs}embeddings.patch_embedding.weight", f"{ours}embeddings.cut.weight"),
        Same(f"{theirs}embeddings.position_embedding.weight", f"{ours}embeddings.position.table"),
        *both(f"{theirs}pre_layrnorm", f"{ours}embeddings.norm"),  # their spelling
        *_layers(theirs, ours),
        *both(f"{theirs}post_layernorm", f"{ours}heads.pooled.norm"),
        Same("visual_projection.weight", f"{ours}heads.pooled.scores.weight"),
        Ignored(f"{theirs}embeddings.position_ids"),
    )


def _layers(theirs: str, ours: str) -> Table:
    layer, block = f"{theirs}encoder.layers.{{i}}", f"{ours}stack.blocks.{{i}}"
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    return (
        *(rule for old, our in parts.items() for rule in both(f"{layer}.self_attn.{old}", f"{block}.mixer.{our}")),
        *both(f"{layer}.layer_norm1", f"{block}.wiring.norms.0"),
        *both(f"{layer}.layer_norm2", f"{block}.wiring.norms.1"),
        *both(f"{layer}.mlp.fc1", f"{block}.feedforward.up"),
        *both(f"{layer}.mlp.fc2", f"{block}.feedforward.down"),
    )


def _rows(tensors: Tensors, name: str) -> int | None:
    """The answers of a projection, if there is one."""
    return tensors.like(name).shape[0] if name in tensors else None
