"""ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021): an image is a sequence of patches behind a mark."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator

from ...core.config import Flag, Positive, Share, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import VisionEncoder
from ...models.multimodal.vision import Distilled
from ...parts.feedforward import FeedForward
from ...parts.inputs.patches import PatchEmbeddings
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Whole
from ...parts.outputs.heads import HeadConfig, Pooled
from ..formats.safetensors import Tensors
from ..rename import Ignored, Rule, Table, both
from ..rules import Framed
from .base import Act, Family, prefix
from .encoders import kept


def _both_sides(value: object) -> object:
    return (value, value) if isinstance(value, int) else value


Sides: TypeAlias = Annotated[
    tuple[Size, Size], BeforeValidator(_both_sides)
]  # one number for both, or height and width

# Where a layer's parts are, in files and (new) in the reference library's own memory, which may be saved as it is.
STORED = (
    *("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)
NEW = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "mlp.fc1", "mlp.fc2")
OURS = ("mixer.query", "mixer.key", "mixer.value", "mixer.out", "feedforward.up", "feedforward.down")


class ViT(Family):
    """ViT alone, with its pooler, or as a classifier."""

    types: ClassVar[tuple[str, ...]] = ("vit",)
    paper: ClassVar[str] = "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words"
    marks: ClassVar[tuple[str, ...]] = ("cls_token",)
    stem: ClassVar[str] = "vit."

    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    head_dim: Size | None = None
    intermediate_size: Size = 3072
    hidden_act: Act = "gelu"
    hidden_dropout_prob: Share = 0.0
    attention_probs_dropout_prob: Share = 0.0
    layer_norm_eps: Positive = 1e-12
    image_size: Sides = (224, 224)
    patch_size: Sides = (16, 16)
    num_channels: Size = 3
    qkv_bias: Flag = True
    pooler_output_size: Size | None = None
    pooler_act: Act = "tanh"

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    def ours(self, tensors: Tensors) -> VisionEncoder.Config:
        if "decoder.0.weight" in tensors:
            raise ConfigError("it draws masked patches (decoder.0.weight); heed reads models that classify or encode")
        norm = LayerNorm(eps=self.layer_norm_eps)
        return VisionEncoder.Config(
            embeddings=PatchEmbeddings.Config(
                image=self.image_size, patch=self.patch_size, channels=self.num_channels, marks=len(self.marks)
            ),
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=Attention.Config(
                heads=self.num_attention_heads,
                head_size=self.head_dim,
                mask=Whole(),
                bias=self.qkv_bias,
                out_bias=True,
                dropout=self.attention_probs_dropout_prob,
            ),
            feedforward=FeedForward.Config(hidden=self.intermediate_size, activation=self.hidden_act),
            norm=norm,
            dropout=self.hidden_dropout_prob,
            heads=self._head(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        patches, block = f"{theirs}embeddings", "stack.blocks.{i}"
        new = any(name.startswith(f"{theirs}layers.") for name in tensors)
        layer = f"{theirs}layers.{{i}}" if new else f"{theirs}encoder.layer.{{i}}"
        parts = zip(NEW if new else STORED, OURS, strict=True)
        return (
            *(Framed(f"{patches}.{name}", f"embeddings.marks.{i}", axes=2) for i, name in enumerate(self.marks)),
            Framed(f"{patches}.position_embeddings", "embeddings.position.table"),
            *both(f"{patches}.patch_embeddings.projection", "embeddings.cut"),
            *(rule for old, our in parts for rule in both(f"{layer}.{old}", f"{block}.{our}")),
            *both(f"{layer}.layernorm_before", f"{block}.wiring.norms.0"),
            *both(f"{layer}.layernorm_after", f"{block}.wiring.norms.1"),
            *both(f"{theirs}layernorm", "stack.ends.final"),
            *self._head_names(tensors, theirs),
            *kept(
                tensors, f"{patches}.mask_token", beside="embeddings.cut.weight"
            ),  # stands for a patch that is to be drawn
        )

    def _head(self, tensors: Tensors) -> HeadConfig | None:
        if "classifier.weight" in tensors:
            return Pooled.Config(labels=tensors.like("classifier.weight").shape[0])
        if f"{prefix(tensors, self.stem)}pooler.dense.weight" not in tensors:
            return None
        if self.pooler_output_size not in (None, self.hidden_size):
            raise ConfigError(
                f"pooler_output_size is {self.pooler_output_size}; heed reads a pooler as wide as the stream "
                f"(hidden_size, {self.hidden_size})"
            )
        return Pooled.Config(activation=self.pooler_act)

    def _head_names(self, tensors: Tensors, theirs: str) -> tuple[Rule | Ignored, ...]:
        if "classifier.weight" not in tensors:
            return both(f"{theirs}pooler.dense", "heads.pooled.transform")
        unused = (Ignored(f"{theirs}pooler.dense.{kind}") for kind in ("weight", "bias"))  # a classifier asks no pooler
        return (*both("classifier", "heads.pooled.scores"), *unused)


class DeiT(ViT):
    """ViT with a second mark that learns from a teacher; with two classifiers their mean is the answer."""

    types: ClassVar[tuple[str, ...]] = ("deit",)
    paper: ClassVar[str] = "Touvron et al. 2021, Training data-efficient image transformers"
    marks: ClassVar[tuple[str, ...]] = ("cls_token", "distillation_token")
    stem: ClassVar[str] = "deit."

    def _head(self, tensors: Tensors) -> HeadConfig | None:
        if "distillation_classifier.weight" in tensors:
            return Distilled.Config(labels=tensors.like("distillation_classifier.weight").shape[0])
        return super()._head(tensors)

    def _head_names(self, tensors: Tensors, theirs: str) -> tuple[Rule | Ignored, ...]:
        if "distillation_classifier.weight" not in tensors:
            return super()._head_names(tensors, theirs)
        taught = both("distillation_classifier", "heads.distilled.taught")
        return (*both("cls_classifier", "heads.distilled.own"), *taught)
