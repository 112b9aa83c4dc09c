"""Falcon (Almazrouei et al. 2023): one key and value for all heads or for groups of them, rotated or with ALiBi."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, Field

from ...core.config import Flag, Positive, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.positions import Alibi
from ...parts.residual.wiring import Parallel, PreNorm
from ..formats.safetensors import Tensors
from ..rename import Same, Table, both
from ..rules import grouped
from .base import Act, Places
from .rope import Rotary


class Falcon(Rotary):
    """Falcon RW, 7B, 40B, 180B, Falcon 2 and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("falcon",)
    paper: ClassVar[str] = "Almazrouei et al. 2023, The Falcon Series of Open Language Models, arXiv 2311.16867"
    stem: ClassVar[str] = "transformer."

    model_config = ConfigDict(populate_by_name=True)  # sizes go by either name

    vocab_size: Size = 65024
    hidden_size: Size = Field(4544, validation_alias="n_embed")
    num_hidden_layers: Size = 32
    num_attention_heads: Size = 71
    num_kv_heads: Size | None = None
    ffn_hidden_size: Size | None = None
    activation: Act = "gelu"
    layer_norm_epsilon: Positive = 1e-5
    alibi: Flag | None = False
    new_decoder_architecture: Flag | None = False
    multi_query: Flag | None = True
    parallel_attn: Flag | None = True
    num_ln_in_parallel_attn: Size | None = None
    bias: Flag | None = False
    tie_word_embeddings: Flag = True

    @property
    def places(self) -> Places:
        """Its rounded ALiBi counts real tokens; a rotation counts columns."""
        return "ranks" if self.alibi else "columns"

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    def ours(self, tensors: Tensors) -> Decoder.Config:
        norms, rope = self._norms, self.rope().model_copy(update={"share": 1.0})
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=Attention.Config(
                heads=self.num_attention_heads,
                kv_heads=self._keys,
                bias=bool(self.bias),
                position=Alibi.Config(scaled=True, rounded=True) if self.alibi else rope,
            ),
            feedforward=FeedForward.Config(
                hidden=self.ffn_hidden_size, activation=self.activation, bias=bool(self.bias)
            ),
            norm=LayerNorm(eps=self.layer_norm_epsilon),
            wiring=Parallel(own_norms=len(norms) == 2) if self.parallel_attn else PreNorm(),
            tied=self.tie_word_embeddings or self.headless(tensors),
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = self.prefix(tensors)
        layer, block = f"{theirs}h.{{i}}", "stack.blocks.{i}"
        parts = tuple(f"{block}.mixer.{what}" for what in ("query", "key", "value"))
        shares = (self.num_attention_heads // self._keys, 1, 1)
        norms = (
            rule
            for number, norm in enumerate(self._norms)
            for rule in both(f"{layer}.{norm}", f"{block}.wiring.norms.{number}")
        )
        return (
            Same(f"{theirs}word_embeddings.weight", "embeddings.table.weight"),
            *grouped(f"{layer}.self_attention.query_key_value", parts, self._keys, shares),
            *both(f"{layer}.self_attention.dense", f"{block}.mixer.out"),
            *both(f"{layer}.mlp.dense_h_to_4h", f"{block}.feedforward.up"),
            *both(f"{layer}.mlp.dense_4h_to_h", f"{block}.feedforward.down"),
            *norms,
            *both(f"{theirs}ln_f", "stack.ends.final"),
            Same("lm_head.weight", "head.weight"),
            *self.answers(tensors),
        )

    @property
    def _keys(self) -> int:
        """Heads of keys and values."""
        if self.new_decoder_architecture:
            return self.num_kv_heads or self.num_attention_heads
        return 1 if self.multi_query else self.num_attention_heads

    @property
    def _norms(self) -> tuple[str, ...]:
        """What the norms of a layer are called, in the order of its parts."""
        new, count = bool(self.new_decoder_architecture), self.num_ln_in_parallel_attn
        if new and not self.parallel_attn:
            raise ConfigError("new_decoder_architecture has its parts side by side only; set parallel_attn to true")
        if not self.parallel_attn:
            return "input_layernorm", "post_attention_layernorm"
        if (new and count not in (None, 1, 2)) or (not new and count == 2):
            known = "1 or 2" if new else "1"
            raise ConfigError(f"num_ln_in_parallel_attn is {count}; layers of this architecture have {known} norms")
        return ("ln_attn", "ln_mlp") if new and count != 1 else ("input_layernorm",)
