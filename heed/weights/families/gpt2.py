"""GPT-2 (Radford et al. 2019): pre-norm, learned positions, weights stored as [in, out]."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, Field

from ...core.config import Flag, Positive, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.positions import Learned
from ..formats.safetensors import Tensors
from ..rename import Ignored, Rule, Same, Table, both
from ..rules import columns, transposed
from .base import Act
from .decoders import Generative
from .encoder_decoders import SecondHalf


class GPT2(Generative, SecondHalf):
    """GPT-2 and what was trained in its shape."""

    types: ClassVar[tuple[str, ...]] = ("gpt2",)
    paper: ClassVar[str] = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners"
    stem: ClassVar[str] = "transformer."
    typed: ClassVar[bool] = True

    model_config = ConfigDict(populate_by_name=True)  # sizes go by either name

    vocab_size: Size = 50257
    n_positions: Size = Field(1024, validation_alias="max_position_embeddings")
    n_embd: Size = Field(768, validation_alias="hidden_size")
    n_layer: Size = Field(12, validation_alias="num_hidden_layers")
    n_head: Size = Field(12, validation_alias="num_attention_heads")
    n_inner: Size | None = None
    activation_function: Act = "gelu_tanh"
    layer_norm_epsilon: Positive = 1e-5
    scale_attn_weights: Flag = True
    scale_attn_by_inverse_layer_idx: Flag = False
    add_cross_attention: Flag = False
    tie_word_embeddings: Flag = True

    @property
    def layers(self) -> int:
        return self.n_layer

    def ours(self, tensors: Tensors) -> Decoder.Config:
        if self.add_cross_attention:
            raise ConfigError(
                "add_cross_attention is set: this is the decoder of an encoder-decoder, which heed reads together with "
                "its encoder, from a folder whose model_type is encoder-decoder"
            )
        return self._decoder(tensors)

    def second_half(self, tensors: Tensors) -> Decoder.Config:
        if not self.add_cross_attention or self.scale_attn_by_inverse_layer_idx:
            raise ConfigError(
                f"the decoder of an encoder-decoder is {self.types[0]!r} with add_cross_attention="
                f"{self.add_cross_attention} and scale_attn_by_inverse_layer_idx="
                f"{self.scale_attn_by_inverse_layer_idx}; needed are true and false"
            )
        from ...mixers import Cross  # here: a GPT-2 by itself has none, and is opened often

        cross = Cross.Config(heads=self.n_head, scale=self._scale(0))
        return self._decoder(tensors).model_copy(update={"cross": cross})

    def _decoder(self, tensors: Tensors) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.n_embd,
            depth=self.n_layer,
            mixer=self.mixers(),
            feedforward=FeedForward.Config(hidden=self.n_inner, activation=self.activation_function),
            norm=LayerNorm(eps=self.layer_norm_epsilon),
            position=Learned.Config(length=self.n_positions),
            tied=self.tie_word_embeddings or self.headless(tensors),
            heads=self.asked(tensors),
        )

    def mixers(self) -> tuple[Attention.Config, ...]:
        """Of each layer."""
        return tuple(Attention.Config(heads=self.n_head, scale=self._scale(layer)) for layer in range(self.n_layer))

    def fused(self, theirs: str, ours: tuple[str, ...]) -> tuple[Rule, ...]:
        """How query, key and value lie in one matrix."""
        return columns(theirs, ours)

    def linear(self, theirs: str, ours: str) -> tuple[Rule, ...]:
        """How one matrix lies."""
        return transposed(theirs, ours)

    def names(self, tensors: Tensors) -> Table:
        theirs = self.prefix(tensors)
        layer, block = f"{theirs}h.{{i}}", "stack.blocks.{i}"
        return (
            Same(f"{theirs}wte.weight", "embeddings.table.weight"),
            Same(f"{theirs}wpe.weight", "embeddings.position.table"),
            *self.fused(f"{layer}.attn.c_attn", tuple(f"{block}.mixer.{what}" for what in ("query", "key", "value"))),
            *self.linear(f"{layer}.attn.c_proj", f"{block}.mixer.out"),
            *self.linear(f"{layer}.mlp.c_fc", f"{block}.feedforward.up"),
            *self.linear(f"{layer}.mlp.c_proj", f"{block}.feedforward.down"),
            *both(f"{layer}.ln_1", f"{block}.wiring.norms.0"),
            *self._crossed(layer, block),
            *both(f"{layer}.ln_2", f"{block}.wiring.norms.{2 if self.add_cross_attention else 1}"),
            *both(f"{theirs}ln_f", "stack.ends.final"),
            Same("lm_head.weight", "head.weight"),
            *self.answers(tensors),
            Ignored(f"{theirs}bias"),  # the causal mask, in old files
            Ignored(f"{layer}.attn.bias"),
            Ignored(f"{layer}.attn.masked_bias"),
        )

    def _crossed(self, layer: str, block: str) -> Table:
        """The cross-attention between the two parts of a layer, if there is one."""
        if not self.add_cross_attention:
            return ()
        sides = f"{block}.cross.key", f"{block}.cross.value"
        return (
            *transposed(f"{layer}.crossattention.q_attn", f"{block}.cross.query"),
            *columns(f"{layer}.crossattention.c_attn", sides),
            *transposed(f"{layer}.crossattention.c_proj", f"{block}.cross.out"),
            *both(f"{layer}.ln_cross_attn", f"{block}.wiring.norms.1"),
        )

    def _scale(self, layer: int) -> float:
        size = Attention.Config(heads=self.n_head).size(self.n_embd)
        scale = size**-0.5 if self.scale_attn_weights else 1.0
        return scale / (layer + 1) if self.scale_attn_by_inverse_layer_idx else scale
