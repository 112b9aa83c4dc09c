"""GPT-Neo (Black et al. 2021): GPT-2 with unscaled attention scores, whose layers look everywhere or nearby in turn."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field

from ...core.config import Count, Flag, Positive, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Causal, Window
from ...parts.positions import Learned
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table, both
from .base import Act
from .decoders import Generative

Sights: TypeAlias = tuple[Literal["global", "local"], ...]


class GPTNeo(Generative):
    """GPT-Neo 125M to 2.7B and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("gpt_neo",)
    paper: ClassVar[str] = "Black et al. 2021, GPT-Neo: Large Scale Autoregressive Language Modeling"
    stem: ClassVar[str] = "transformer."
    typed: ClassVar[bool] = True

    model_config = ConfigDict(populate_by_name=True)  # sizes go by either name

    vocab_size: Size = 50257
    max_position_embeddings: Size = 2048
    hidden_size: Size = 2048
    num_layers: Size = Field(24, validation_alias="num_hidden_layers")
    num_heads: Size = Field(16, validation_alias="num_attention_heads")
    intermediate_size: Size | None = None
    attention_types: tuple[tuple[Sights, Count], ...] | None = None  # which kinds in turn, and how often that again
    attention_layers: Sights | None = None  # the same, layer by layer
    window_size: Size = 256
    activation_function: Act = "gelu_tanh"
    layer_norm_epsilon: Positive = 1e-5
    tie_word_embeddings: Flag = True

    @property
    def layers(self) -> int:
        return self.num_layers

    def ours(self, tensors: Tensors) -> Decoder.Config:
        window = min(self.window_size, self.max_position_embeddings)
        masks = {"global": Causal(), "local": Window(back=window - 1)}
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_layers,
            mixer=tuple(
                Attention.Config(heads=self.num_heads, bias=False, out_bias=True, scale=1.0, mask=masks[sight])
                for sight in self._sights
            ),
            feedforward=FeedForward.Config(hidden=self.intermediate_size, activation=self.activation_function),
            norm=LayerNorm(eps=self.layer_norm_epsilon),
            position=Learned.Config(length=self.max_position_embeddings),
            tied=self.tie_word_embeddings or self.headless(tensors),
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = self.prefix(tensors)
        layer, block = f"{theirs}h.{{i}}", "stack.blocks.{i}"
        return (
            Same(f"{theirs}wte.weight", "embeddings.table.weight"),
            Same(f"{theirs}wpe.weight", "embeddings.position.table"),
            Same(f"{layer}.attn.attention.q_proj.weight", f"{block}.mixer.query.weight"),
            Same(f"{layer}.attn.attention.k_proj.weight", f"{block}.mixer.key.weight"),
            Same(f"{layer}.attn.attention.v_proj.weight", f"{block}.mixer.value.weight"),
            *both(f"{layer}.attn.attention.out_proj", f"{block}.mixer.out"),
            *both(f"{layer}.mlp.c_fc", f"{block}.feedforward.up"),
            *both(f"{layer}.mlp.c_proj", f"{block}.feedforward.down"),
            *both(f"{layer}.ln_1", f"{block}.wiring.norms.0"),
            *both(f"{layer}.ln_2", f"{block}.wiring.norms.1"),
            *both(f"{theirs}ln_f", "stack.ends.final"),
            Same("lm_head.weight", "head.weight"),
            *self.answers(tensors),
            Ignored(f"{layer}.attn.attention.bias"),  # the causal mask, in old files
            Ignored(f"{layer}.attn.attention.masked_bias"),
        )

    @property
    def _sights(self) -> Sights:
        """How far each layer looks."""
        types = ((("global", "local"), 12),) if self.attention_types is None else self.attention_types
        told = sum(len(sights) * count for sights, count in types)
        if self.attention_layers is not None:
            told = len(self.attention_layers)
        if told != self.num_layers:
            raise ConfigError(
                f"attention_types must say of each of {self.num_layers} layers whether it is global or local; "
                f"it speaks of {told}"
            )
        return self.attention_layers or tuple(sight for sights, count in types for sight in sights * count)
