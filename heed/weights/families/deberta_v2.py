"""DeBERTa v2 and v3 (He et al. 2021): BERT with disentangled attention over shared vectors of relative positions."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator

from ...core.config import Count, Flag, Positive, Size, Text
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...mixers import Attention, Disentangled
from ...mixers.disentangled import RelativeEmbeddings
from ...models import Encoder
from ...models.convolved import Convolved
from ...parts.inputs.tokens import Narrow
from ...parts.masks import Whole
from ...parts.positions import AddedConfig
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table, both
from .base import Act, prefix
from .encoders import BERTS, Bertlike, Prediction, embedded, kept, layered, norms
from .found import Found, spans, tagged

ENHANCED = Prediction(
    "lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm", None, "lm_predictions.lm_head.bias"
)
TERMS = frozenset({"c2p", "p2c"})
POSITIONS = ("rel_embeddings.weight", "LayerNorm.weight", "LayerNorm.bias")
MASKING = ("dense", "LayerNorm", "classifier")  # of a second head that v3 was trained with, and that is not read


def _parted(value: object) -> object:
    """ "c2p|p2c", as old files write a list."""
    return tuple(part.strip() for part in value.lower().split("|")) if isinstance(value, str) else value


def _or_none(value: object) -> object:
    """-1 and 0 stand for nothing."""
    return None if isinstance(value, int) and not isinstance(value, bool) and value < 1 else value


Parts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(_parted)]
Limit: TypeAlias = Annotated[Size | None, BeforeValidator(_or_none)]


class DebertaV2(Bertlike):
    """DeBERTa v2 and v3: the products of content and position that `pos_att_type` names; v2 has a convolution, too."""

    types: ClassVar[tuple[str, ...]] = ("deberta-v2",)
    paper: ClassVar[str] = "He et al. 2021, arXiv 2006.03654"
    stem: ClassVar[str] = "deberta."

    vocab_size: Size = 128100
    hidden_size: Size = 1536
    embedding_size: Size | None = None  # as wide as the stream
    num_hidden_layers: Size = 24
    num_attention_heads: Size = 24
    attention_head_size: Size | None = None
    intermediate_size: Size = 6144
    type_vocab_size: Count = 0
    layer_norm_eps: Positive = 1e-7
    relative_attention: Flag = False
    max_relative_positions: Limit = None  # max_position_embeddings
    position_buckets: Limit = None
    position_biased_input: Flag = True
    pos_att_type: Parts | None = None
    share_att_key: Flag = False
    norm_rel_ebd: Parts = ("none",)
    pooler_hidden_act: Act = "gelu"
    conv_kernel_size: Count = 0
    conv_groups: Size = 1
    conv_act: Act = "tanh"

    @property
    def terms(self) -> frozenset[str]:
        """Which products are added to that of the contents."""
        return frozenset(self.pos_att_type or ())

    @property
    def disentangled(self) -> bool:
        """Whether positions enter the scores at all."""
        return self.relative_attention and bool(self.terms)

    @property
    def mixer(self) -> MixerConfig:
        heads, size = self.num_attention_heads, self.attention_head_size
        if not self.disentangled:  # the named products count for the scale even where they are not made
            plain = Attention.Config(heads=heads, head_size=size, mask=Whole())
            scale = ((1 + len(self.terms)) * plain.size(self.hidden_size)) ** -0.5
            return plain.model_copy(update={"scale": scale})
        distances = RelativeEmbeddings.Config(
            distance=self.max_relative_positions or self.max_position_embeddings,
            buckets=self.position_buckets,
            norm=self.norm if "layer_norm" in self.norm_rel_ebd else None,
        )
        return Disentangled.Config(
            heads=heads,
            head_size=size,
            mask=Whole(),
            position=distances,
            content_to_position="c2p" in self.terms,
            position_to_content="p2c" in self.terms,
            shared=self.share_att_key,
        )

    @property
    def position(self) -> AddedConfig | None:
        return super().position if self.position_biased_input else None

    @property
    def narrow(self) -> Narrow | None:
        if self.embedding_size in (None, self.hidden_size):
            return None
        return Narrow(size=self.embedding_size, after="sum", bias=False)

    def encoder(self, tensors: Tensors) -> Encoder.Config:
        if self.terms - TERMS or set(self.norm_rel_ebd) - {"none", "layer_norm"}:
            raise ConfigError(
                f"pos_att_type is {self.pos_att_type}, norm_rel_ebd is {self.norm_rel_ebd}; heed knows c2p and p2c, "
                "and layer_norm or none"
            )
        kernel = self.conv_kernel_size
        beside = Convolved.Config(kernel=kernel, groups=self.conv_groups, activation=self.conv_act) if kernel else None
        return super().encoder(tensors).model_copy(update={"one_position": self.disentangled, "convolution": beside})

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        encoder, first = f"{theirs}encoder", "stack.blocks.0"
        layer, mixer = f"{encoder}.layer.{{i}}", "stack.blocks.{i}.mixer"
        return (
            *embedded(f"{theirs}embeddings"),
            Same(f"{theirs}embeddings.embed_proj.weight", "embeddings.narrow.weight"),
            *layered(layer, projection="attention.self.{}_proj"),
            *both(f"{layer}.attention.self.pos_key_proj", f"{mixer}.position_key"),
            *both(f"{layer}.attention.self.pos_query_proj", f"{mixer}.position_query"),
            Same(f"{encoder}.rel_embeddings.weight", f"{first}.mixer.position.table"),
            *norms(f"{encoder}.LayerNorm", f"{first}.mixer.position.norm"),
            *both(f"{encoder}.conv.conv", f"{first}.convolution"),
            *norms(f"{encoder}.conv.LayerNorm", f"{first}.norm"),
            *self.answers(tensors),
            *(() if self.position_biased_input else (Ignored(f"{theirs}embeddings.position_embeddings.weight"),)),
            *(Ignored(f"mask_predictions.{layer}.{what}") for layer in MASKING for what in ("weight", "bias")),
            *(() if self.disentangled else kept(tensors, *(f"{encoder}.{name}" for name in POSITIONS))),
        )

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        texts = bool(prefix(tensors, self.stem)) and "pooler.dense.weight" in tensors
        return (
            *self.masked(tensors, BERTS, self.hidden_act),
            *self.masked(tensors, ENHANCED, self.hidden_act),
            *self.pooled(tensors, "pooler.dense", "classifier" if texts else None, self.pooler_hidden_act),
            *(() if texts else tagged(tensors, "classifier")),
            *spans(tensors),
        )
