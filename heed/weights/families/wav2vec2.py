"""Wav2Vec2 (Baevski et al. 2020), XLS-R and HuBERT: samples are heard through convolutions, every frame is labelled."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from ...core.config import Count, Flag, Positive, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import AudioEncoder
from ...parts.feedforward import FeedForward
from ...parts.inputs.audio import ConvolutionNorm, Waves
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Whole
from ...parts.outputs.heads import HeadConfig, Pooled, Tagged
from ...parts.residual.wiring import PostNorm, PreNorm
from ..formats.safetensors import Tensors
from ..rename import Same, Table, both
from .base import Act, Family, prefix
from .encoders import kept

Reduction: TypeAlias = Literal["sum", "mean", "none"]
TEACHING = (  # what only pre-training needs
    *("quantizer.codevectors", "quantizer.weight_proj.weight", "quantizer.weight_proj.bias"),
    *(f"project_{side}.{name}" for side in ("hid", "q") for name in ("weight", "bias")),
)


STRANGE = ("objective.weight", "layer_weights")  # x-vectors, weighted sums of layers


def pooler(tensors: Tensors) -> Pooled.Config | None:
    """W' (W x̄ + b) + b': a classifier of sounds projects every frame, and takes the mean. None: there is none."""
    if "projector.weight" not in tensors or "classifier.weight" not in tensors:
        return None
    size, labels = (tensors.like(f"{name}.weight").shape[0] for name in ("projector", "classifier"))
    return Pooled.Config(pool="mean", activation="identity", size=size, labels=labels)


def pooler_names() -> Table:
    """Of that classifier. The mean of projections is the projection of the mean."""
    return (*both("projector", "heads.pooled.transform"), *both("classifier", "heads.pooled.scores"))


class Wav2Vec2(Family):
    """Wav2Vec2 alone, with its CTC head, or as a classifier of sounds; what pre-training needs is carried along."""

    types: ClassVar[tuple[str, ...]] = ("wav2vec2",)
    paper: ClassVar[str] = "Baevski et al. 2020, wav2vec 2.0: A Framework for Self-Supervised Learning of Speech"

    vocab_size: Size | None = 32
    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: Act = "gelu"
    layer_norm_eps: Positive = 1e-5
    feat_extract_norm: ConvolutionNorm = "group"
    feat_extract_activation: Act = "gelu"
    feat_proj_layer_norm: Flag = True
    conv_dim: tuple[Size, ...] = (512,) * 7
    conv_stride: tuple[Size, ...] = (5, 2, 2, 2, 2, 2, 2)
    conv_kernel: tuple[Size, ...] = (10, 3, 3, 3, 3, 2, 2)
    conv_bias: Flag = False
    num_conv_pos_embeddings: Size = 128
    num_conv_pos_embedding_groups: Size = 16
    conv_pos_batch_norm: Flag = False
    do_stable_layer_norm: Flag = False
    add_adapter: Flag = False
    adapter_attn_dim: Size | None = None
    ctc_loss_reduction: Reduction = "sum"
    ctc_zero_infinity: Flag = False
    pad_token_id: Count | None = 0  # the blank

    @property
    def layers(self) -> int:
        return self.num_hidden_layers + len(self.conv_dim)

    def ours(self, tensors: Tensors) -> AudioEncoder.Config:
        self._must_be_plain(tensors)
        norm = LayerNorm(eps=self.layer_norm_eps)
        embeddings = Waves.Config(
            channels=self.conv_dim,
            kernels=self.conv_kernel,
            strides=self.conv_stride,
            bias=self.conv_bias,
            between=self.feat_extract_norm,
            activation=self.feat_extract_activation,
            inner=norm if self.feat_proj_layer_norm else None,
            around=self.num_conv_pos_embeddings,
            groups=self.num_conv_pos_embedding_groups,
            norm=None if self.do_stable_layer_norm else norm,
            hides=f"{self._prefix(tensors)}masked_spec_embed" in tensors,
        )
        return AudioEncoder.Config(
            embeddings=embeddings,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=Attention.Config(heads=self.num_attention_heads, mask=Whole()),
            feedforward=FeedForward.Config(hidden=self.intermediate_size, activation=self.hidden_act),
            norm=norm,
            wiring=PreNorm() if self.do_stable_layer_norm else PostNorm(),
            heads=self._head(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = self._prefix(tensors)
        convolution, around = f"{theirs}feature_extractor.conv_layers.{{i}}", f"{theirs}encoder.pos_conv_embed.conv"
        old = f"{around}.weight_g" in tensors  # torch's former names for gain and direction
        gain, direction = ("weight_g", "weight_v") if old else (f"parametrizations.weight.original{i}" for i in (0, 1))
        layer, block = f"{theirs}encoder.layers.{{i}}", "stack.blocks.{i}"
        final = "stack.ends.final" if self.do_stable_layer_norm else "embeddings.norm"
        attention = (("q", "query"), ("k", "key"), ("v", "value"), ("out", "out"))
        return (
            *both(f"{convolution}.conv", "embeddings.layers.{i}.inner"),
            *both(f"{convolution}.layer_norm", "embeddings.layers.{i}.norm"),
            *both(f"{theirs}feature_projection.layer_norm", "embeddings.inner"),
            *both(f"{theirs}feature_projection.projection", "embeddings.project"),
            Same(f"{theirs}masked_spec_embed", "embeddings.hidden"),
            Same(f"{around}.bias", "embeddings.around.bias"),
            Same(f"{around}.{gain}", "embeddings.around.gain"),
            Same(f"{around}.{direction}", "embeddings.around.direction"),
            *both(f"{theirs}encoder.layer_norm", final),
            *(
                rule
                for short, long in attention
                for rule in both(f"{layer}.attention.{short}_proj", f"{block}.mixer.{long}")
            ),
            *both(f"{layer}.layer_norm", f"{block}.wiring.norms.0"),
            *both(f"{layer}.feed_forward.intermediate_dense", f"{block}.feedforward.up"),
            *both(f"{layer}.feed_forward.output_dense", f"{block}.feedforward.down"),
            *both(f"{layer}.final_layer_norm", f"{block}.wiring.norms.1"),
            *both("lm_head", "heads.tagged.scores"),
            *(pooler_names() if "projector.weight" in tensors else ()),
            *kept(tensors, *TEACHING, beside="embeddings.project.weight"),
        )

    def _prefix(self, tensors: Tensors) -> str:
        return prefix(tensors, f"{self.types[0]}.")

    def _must_be_plain(self, tensors: Tensors) -> None:
        if self.add_adapter or self.adapter_attn_dim is not None:
            raise ConfigError("it has adapters (add_adapter, adapter_attn_dim), which heed does not know")
        if self.conv_pos_batch_norm:
            raise ConfigError("conv_pos_batch_norm is set: heed knows positional convolutions with weight norm only")
        strange = next((name for name in STRANGE if name in tensors), None)
        if strange is None and "classifier.weight" in tensors and "projector.weight" not in tensors:
            strange = "classifier.weight without projector.weight, of a classifier of frames"
        if strange is not None:
            raise ConfigError(
                f"it holds {strange}; heed reads the bare model, its CTC head, and its classifier of sounds off the "
                "last hidden states"
            )

    def _head(self, tensors: Tensors) -> HeadConfig | None:
        if "lm_head.weight" in tensors:
            return Tagged.Config(labels=tensors.like("lm_head.weight").shape[0])
        return pooler(tensors)


class Hubert(Wav2Vec2):
    """HuBERT, which learns otherwise and is the same model (Hsu et al. 2021)."""

    types: ClassVar[tuple[str, ...]] = ("hubert",)
    paper: ClassVar[str] = "Hsu et al. 2021, HuBERT: Self-Supervised Speech Representation Learning"
