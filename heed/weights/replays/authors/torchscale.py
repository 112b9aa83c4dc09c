"""torchscale's Decoder and Encoder: xPos, SubLN (Magneto) and DeepNorm are options of the same two classes.

A heed `Decoder` is a backbone with a head, an `Encoder` one without; which token sees which is the mask's affair. So a
torchscale encoder with an output projection becomes a `Decoder` that looks both ways.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import torch
from pydantic import Strict
from torch import Tensor

from ....core.config import Count, Flag, Positive, Size, Theirs
from ....core.contract import MixerConfig, Where
from ....core.errors import WeightsError
from ....mixers import Attention
from ....models.decoder import Decoder
from ....models.encoder import Encoder
from ....parts.feedforward import Activation, FeedForward
from ....parts.layers.norms import LayerNorm
from ....parts.masks import Causal, Whole
from ....parts.positions import Buckets, Learned, NoPosition, RelativeConfig, XPos
from ....parts.residual.wiring import DeepNorm, PostNorm, PreNorm, WiringConfig
from ...formats.folder import CONFIG, Folder
from ...rename import Computed, Same, Table, both, restore
from ..inputs import Outputs, Padded, must_hold, sequence, streams, understood

Side: TypeAlias = Literal["decoder", "encoder"]

S = TypeVar("S", bound="TorchscaleConfig")

FIRST_POSITION = 2  # the row of embed_positions that position 0 has, as in fairseq
ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "silu"}


class TorchscaleConfig(Theirs):
    """DecoderConfig or EncoderConfig, without the side in the names; the defaults are torchscale's."""

    embed_dim: Size = 768
    attention_heads: Size = 12
    ffn_embed_dim: Size = 3072
    layers: Size = 12
    normalize_before: Flag = True
    normalize_output: Flag = True
    activation_fn: Literal["relu", "gelu", "swish"] = "gelu"
    no_scale_embedding: Flag = True
    layernorm_embedding: Flag = False
    layernorm_eps: Positive = 1e-5
    rel_pos_buckets: Count = 0
    max_rel_pos: Count = 0
    xpos_rel_pos: Flag = False
    xpos_scale_base: Positive = 512.0
    deepnorm: Flag = False
    subln: Flag = True
    share_input_output_embed: Flag = False
    no_output_layer: Flag = False
    vocab_size: Annotated[int, Strict()] = -1
    # What heed does not hold must be off.
    moe_freq: Literal[0] = 0
    multiway: Literal[False] = False

    @property
    def head(self) -> bool:
        """Whether there is an output projection."""
        return self.vocab_size > 0 and not self.no_output_layer

    @property
    def bucketed(self) -> bool:
        """Whether scores get a term by relative position."""
        return self.rel_pos_buckets > 0 and self.max_rel_pos > 0

    @property
    def norm(self) -> LayerNorm:
        """The one norm that is used throughout."""
        return LayerNorm(eps=self.layernorm_eps)

    def relation(self) -> RelativeConfig:
        """What acts between queries and keys. T5's buckets look both ways, in the decoder too."""
        if self.xpos_rel_pos:
            return XPos.Config(scale_base=self.xpos_scale_base)
        if self.bucketed:
            return Buckets.Config(buckets=self.rel_pos_buckets, distance=self.max_rel_pos, both_ways=True)
        return NoPosition.Config()

    @property
    def inner(self) -> LayerNorm | None:
        """The norm inside attention and feed-forward (SubLN)."""
        return self.norm if self.subln else None

    def mixer(self, side: Side) -> MixerConfig:
        """How tokens look at one another."""
        mask = Causal() if side == "decoder" else Whole()
        return Attention.Config(heads=self.attention_heads, mask=mask, position=self.relation(), norm=self.inner)

    def wiring(self, side: Side) -> WiringConfig:
        """Where the norms sit. DeepNorm in a decoder that normalises before still weighs its stream by alpha."""
        deep = DeepNorm.alone(self.layers)
        if self.normalize_before:
            final = side == "decoder" or self.normalize_output
            return PreNorm(final=final, alpha=deep.alpha if self.deepnorm else 1.0)
        return deep if self.deepnorm else PostNorm()

    def ours(self, side: Side, vocabulary: int, positions: int) -> Decoder.Config | Encoder.Config:
        """The same as a heed model; `positions` are the rows of its table of learned positions, 0 = none."""
        common: dict[str, Any] = {
            "vocabulary": vocabulary,
            "width": self.embed_dim,
            "depth": self.layers,
            "mixer": self.mixer(side),
            "feedforward": FeedForward.Config(
                hidden=self.ffn_embed_dim, activation=ACTIVATIONS[self.activation_fn], norm=self.inner
            ),
            "norm": self.norm,
            "wiring": self.wiring(side),
            "position": Learned.Config(length=positions - FIRST_POSITION, offset=FIRST_POSITION) if positions else None,
            "scaled": not self.no_scale_embedding,
            "embedding_norm": self.norm if self.layernorm_embedding else None,
            "one_position": self.bucketed,
        }
        if not self.head:
            return Encoder.Config(**common)
        return Decoder.Config(**common, tied=self.share_input_output_embed)

    def names(self, side: Side) -> Table:
        """The rename table of one side."""
        theirs, ours = "layers.{i}", "stack.blocks.{i}"
        buckets = "relative_position" if side == "encoder" else "self_attn_relative_position"
        size = self.embed_dim // self.attention_heads
        constant = Computed(
            f"{theirs}.self_attn.xpos.scale",
            f"{ours}.mixer.query.weight",
            (torch.arange(0, size, 2) + 0.4 * size) / (1.4 * size),
        )
        return (
            Same("embed_tokens.weight", "embeddings.table.weight"),
            Same("output_projection.weight", "head.weight"),
            Same("embed_positions.weight", "embeddings.position.table"),
            Same(f"{buckets}.relative_attention_bias.weight", "stack.blocks.0.mixer.position.table"),
            *both("layernorm_embedding", "embeddings.norm"),
            *both(f"{theirs}.self_attn.q_proj", f"{ours}.mixer.query"),
            *both(f"{theirs}.self_attn.k_proj", f"{ours}.mixer.key"),
            *both(f"{theirs}.self_attn.v_proj", f"{ours}.mixer.value"),
            *both(f"{theirs}.self_attn.inner_attn_ln", f"{ours}.mixer.norm"),
            *both(f"{theirs}.self_attn.out_proj", f"{ours}.mixer.out"),
            *both(f"{theirs}.self_attn_layer_norm", f"{ours}.wiring.norms.0"),
            *both(f"{theirs}.ffn.fc1", f"{ours}.feedforward.up"),
            *both(f"{theirs}.ffn.ffn_layernorm", f"{ours}.feedforward.norm"),
            *both(f"{theirs}.ffn.fc2", f"{ours}.feedforward.down"),
            *both(f"{theirs}.final_layer_norm", f"{ours}.wiring.norms.1"),
            *both("layer_norm", "stack.ends.final"),
            *((constant,) if self.xpos_rel_pos else ()),
        )


class Torchscale(TorchscaleConfig):
    """With plain attention."""

    segment_length: Literal["", None] = None
    dilated_ratio: Literal["", None] = None


def side_of(folder: Folder) -> Side:
    """Which of the two classes a folder holds."""
    sides: list[Side] = [side for side in ("decoder", "encoder") if f"{side}_layers" in folder.config]
    if len(sides) == 1:
        return sides[0]
    raise WeightsError(
        f"{folder.path / CONFIG} must have either decoder_layers or encoder_layers; "
        "heed does not hold torchscale's encoder-decoder yet"
    )


def options(folder: Folder) -> Torchscale:
    """What the config says of a model with plain attention."""
    return corrected(folder, Torchscale)


def corrected(folder: Folder, kind: type[S]) -> S:
    """What the config says, after the corrections that torchscale's own config classes make."""
    side = side_of(folder)
    other = "encoder_" if side == "decoder" else "decoder_"
    given = {name.replace(f"{side}_", ""): value for name, value in folder.config.items() if other not in name}
    theirs = understood(folder, kind, given)
    if theirs.deepnorm:
        theirs = theirs.model_copy(update={"subln": False})
    if side == "encoder" and (theirs.deepnorm or theirs.subln):
        theirs = theirs.model_copy(update={"normalize_before": theirs.subln})
    if theirs.xpos_rel_pos and theirs.bucketed:
        raise WeightsError(f"{folder.path / CONFIG}: heed holds xpos_rel_pos or rel_pos_buckets, not both at once")
    return theirs


def model(folder: Folder, kind: type[TorchscaleConfig] = Torchscale) -> Decoder | Encoder:
    """The model in a folder of the family `xpos` or `deepnorm`, or of another `kind`."""
    theirs, side = corrected(folder, kind), side_of(folder)
    must_hold(folder, theirs.embed_dim, theirs.layers)
    vocabulary, positions = (_rows(folder, name) for name in ("embed_tokens.weight", "embed_positions.weight"))

    def build() -> Decoder | Encoder:
        return theirs.ours(side, vocabulary or max(theirs.vocab_size, 1), positions).build()

    return restore(build, folder, theirs.names(side))


def outputs(folder: Folder) -> Outputs:
    """Families `xpos` and `deepnorm`: the stream at every depth and what comes out at the end."""
    backbone = model(folder)
    if side_of(folder) == "decoder":
        return _decoder_outputs(folder, backbone)
    tokens = sequence(folder, "src_tokens")
    hidden = Padded.hiding(folder, "encoder_padding_mask", tokens)
    inner, last = depths(backbone, backbone.embeddings(hidden.aligned(tokens), hidden.where), hidden.where)
    made = {f"encoder_states.{depth}": hidden.back(x) for depth, x in enumerate(inner)}
    return made | {"encoder_out": hidden.back(last)}


def _decoder_outputs(folder: Folder, backbone: Decoder | Encoder) -> Outputs:
    tokens = sequence(folder, "prev_output_tokens")
    hidden = Padded.hiding(folder, "self_attn_padding_mask", tokens)
    inner, last = depths(backbone, backbone.embeddings(hidden.aligned(tokens), hidden.where), hidden.where)
    made = {f"inner_states.{depth}": hidden.back(x) for depth, x in enumerate(inner)}
    if isinstance(backbone, Decoder):
        made["logits"] = hidden.back(last)
        if folder.wants("logits_incremental"):
            made["logits_incremental"] = hidden.back(one_by_one(backbone, hidden.aligned(tokens), hidden.where))
    else:
        made["features"] = hidden.back(last)
    if folder.wanted is not None and "xpos_in" in folder.wanted:
        made |= _turned(folder)
    return made


def depths(backbone: Decoder | Encoder, x: Tensor, where: Where) -> tuple[list[Tensor], Tensor]:
    """The stream at every depth, and the last one after the final norm and the head, if there are any."""
    inner = streams(backbone.stack, x, where)
    last = backbone.stack.ends.leave(inner[-1])
    return inner, backbone.head(last) if isinstance(backbone, Decoder) else last


def one_by_one(backbone: Decoder, tokens: Tensor, where: Where) -> Tensor:
    """The logits, one token per call."""
    state = backbone.start(tokens.shape[0])
    made = []
    for column in range(tokens.shape[1]):
        step_logits, after = backbone(tokens[:, column : column + 1], where.cut(column, column + 1), state)
        assert after is not None  # a state came in, so one comes out
        state = after
        made.append(step_logits)
    return torch.cat(made, 1)


def _turned(folder: Folder) -> Outputs:
    """xPos alone, on heads that were written beside the outputs: [heads, T, size]."""
    heads = folder.extra("xpos_in")
    code = XPos.Config(scale_base=options(folder).xpos_scale_base).build(1, heads.shape[-1])
    where, x = Where.run(*heads.shape[:2]), heads[:, :, None]
    return {"xpos_in": heads, "xpos_up": code.up(x, where)[:, :, 0], "xpos_down": code.down(x, where)[:, :, 0]}


def _rows(folder: Folder, name: str) -> int:
    found = folder.weights.get(name)
    return 0 if found is None or not found.dim() else found.shape[0]
