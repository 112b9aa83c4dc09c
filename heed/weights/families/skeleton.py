"""What Llama and its descendants share: norms by the root mean square, rotated queries, a gated feed-forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import torch

from ...core.config import Flag, Positive, Size
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import Gated
from ...parts.layers.norms import RMSNorm
from ...parts.masks import Causal, Mask, Window
from ...parts.positions import Rope
from ...parts.positions.rotary import Layout
from ..edits import Edit
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table, both
from .base import Act
from .rope import FARTHEST, Rotary
from .ternary import AnyQuantisation, Converted, must_not_be

LayerType: TypeAlias = Literal["full_attention", "sliding_attention"]
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
MIXER = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"}
FEEDFORWARD = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


class Skeleton(Rotary):
    """Fields and names that are the same in all of them. A family says what its layers are, and what else is named."""

    stem: ClassVar[str] = "model."
    norms: ClassVar[tuple[str, ...]] = ("input_layernorm", "post_attention_layernorm")  # of a layer, in order
    ternary: ClassVar[bool] = False  # whether its linear layers may be BitNet's

    vocab_size: Size = 32000
    hidden_size: Size = 4096
    intermediate_size: Size = 11008
    num_hidden_layers: Size = 32
    num_attention_heads: Size = 32
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    hidden_act: Act = "silu"
    rms_norm_eps: Positive = 1e-6
    tie_word_embeddings: Flag = False
    quantization_config: AnyQuantisation = None

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    @property
    def parts(self) -> dict[str, str]:
        """Names of what a layer's attention is made of, theirs and ours."""
        return MIXER

    @property
    def inner(self) -> dict[str, str]:
        """And its feed-forward."""
        return FEEDFORWARD

    @property
    def head_size(self) -> int:
        """Channels per head."""
        return self.head_dim or Attention.Config(heads=self.num_attention_heads).size(self.hidden_size)

    def rope(self, layout: Layout = "halves") -> Rope.Config:
        """All channels turn, whatever a config says of a part of them: so does the reference."""
        return super().rope(layout).model_copy(update={"share": 1.0})

    def mask(self, layer: int) -> Mask:
        """Who sees whom in a layer."""
        return Causal()

    def mixer(self, layer: int) -> MixerConfig:
        """The attention of a layer."""
        return self.attention(layer)

    def attention(self, layer: int, *, bias: bool = False, out_bias: bool = False) -> Attention.Config:
        """Grouped queries, rotated."""
        return Attention.Config(
            heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads,
            head_size=self.head_size,
            bias=bias,
            out_bias=out_bias,
            mask=self.mask(layer),
            position=self.rope(),
        )

    def feedforward(self, layer: int) -> MixerConfig:
        """The feed-forward of a layer."""
        return Gated.Config(hidden=self.intermediate_size, activation=self.hidden_act)

    def ours(self, tensors: Tensors) -> Decoder.Config:
        must_hold(tensors, self.num_attention_heads * self.head_size)
        must_not_be(None if self.ternary else self.quantization_config, self.types[0])
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=tiled(tuple(map(self.mixer, range(self.num_hidden_layers)))),
            feedforward=tiled(tuple(map(self.feedforward, range(self.num_hidden_layers)))),
            norm=RMSNorm(eps=self.rms_norm_eps),
            tied=self.tie_word_embeddings or self.headless(tensors),
            heads=self.asked(tensors),
        )

    def edits(self, tensors: Tensors) -> tuple[Edit, ...]:
        found = self.quantization_config
        return () if found is None else found.edits(self.converted(tensors), self.num_hidden_layers)

    def converted(self, tensors: Tensors) -> list[Converted]:
        """The layers that are ternary."""
        found = self.quantization_config
        if found is None:
            return []
        model, attention, kept = self.prefix(tensors), self.num_attention_heads, self.num_key_value_heads
        inner, width = self.intermediate_size, self.hidden_size
        rows = {"query": attention, "key": kept or attention, "value": kept or attention}
        rows = {name: heads * self.head_size for name, heads in rows.items()}
        rows |= {"out": width, "gate": inner, "up": inner, "down": width}
        layers = [
            Converted(f"{model}layers.{i}.{part}.{their}", f"stack.blocks.{i}.{place}.{our}", rows[our])
            for i in range(self.num_hidden_layers)
            for part, place, names in (("self_attn", "mixer", self.parts), ("mlp", "feedforward", self.inner))
            for their, our in names.items()
        ]
        head = [] if self.headless(tensors) else [Converted("lm_head", "head", self.vocab_size)]
        chosen = [layer for layer in (*layers, *head) if found.converts(layer.theirs)]
        if self.tie_word_embeddings and not found.online and any(layer.ours == "head" for layer in chosen):
            raise ConfigError(
                "its lm_head is tied to the embeddings, so it cannot be ternary; untie them in config.json"
            )
        return chosen

    def names(self, tensors: Tensors) -> Table:
        model = self.prefix(tensors)
        layer, block = f"{model}layers.{{i}}", "stack.blocks.{i}"
        return (
            Same(f"{model}embed_tokens.weight", "embeddings.table.weight"),
            *projections(f"{layer}.self_attn", f"{block}.mixer", self.parts),
            *projections(f"{layer}.mlp", f"{block}.feedforward", self.inner),
            *(Same(f"{layer}.{norm}.weight", f"{block}.wiring.norms.{n}.weight") for n, norm in enumerate(self.norms)),
            Same(f"{model}norm.weight", "stack.ends.final.weight"),
            Same("lm_head.weight", "head.weight"),
            *self.answers(tensors),
            Ignored(f"{layer}.self_attn.rotary_emb.inv_freq"),  # in old files
            *self.further(layer, block, tensors),
            *(found.names(self.converted(tensors), tensors) if (found := self.quantization_config) is not None else ()),
        )

    def further(self, layer: str, block: str, tensors: Tensors) -> Table:
        """Names beside those that all have, in a layer of theirs and a block of ours."""
        return ()


def tiled(configs: tuple[MixerConfig, ...]) -> tuple[MixerConfig, ...]:
    """One for all layers where all are alike."""
    return configs[:1] if len(set(configs)) == 1 else configs


def projections(theirs: str, ours: str, names: dict[str, str]) -> Table:
    """Weights and biases of several projections."""
    return tuple(rule for their, our in names.items() for rule in both(f"{theirs}.{their}", f"{ours}.{our}"))


def window(length: int | None) -> Mask:
    """A token and the tokens before it, `length` in all."""
    return Causal() if length is None or length > FARTHEST else Window(back=length - 1)


def by_layer(types: Sequence[LayerType], layer: int, length: int | None) -> Mask:
    """The mask of a layer, by their list of layer types."""
    if types[layer] == "full_attention":
        return Causal()
    if length is None:
        raise ConfigError(f"layer {layer} is of the type sliding_attention, which needs a sliding_window")
    return window(length)


def of_every_layer(types: tuple[LayerType, ...], layers: int) -> tuple[LayerType, ...]:
    """The types, if there are as many as layers."""
    if len(types) != layers:
        raise ConfigError(f"layer_types names {len(types)} layers, but there are {layers}")
    return types


def must_hold(tensors: Tensors, *widths: int) -> None:
    """Raise if tensors of 8 bits need scales to mean anything, or if widths are claimed that no tensor has."""
    small = next((name for name in tensors if tensors.like(name).dtype in EIGHT_BITS), None)
    if small is not None:
        raise ConfigError(
            f"{small} holds numbers of 8 bits, which mean something only with their scales; heed reads plain weights: "
            "convert the checkpoint to bfloat16 with its authors' script first"
        )
    widest = max((max(tensors.like(name).shape, default=1) for name in tensors), default=0)
    if max(widths) > widest:
        raise ConfigError(f"it claims a width of {max(widths)} in its attention, but no tensor is wider than {widest}")
