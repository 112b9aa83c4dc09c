"""GPT-BigCode (Ben Allal et al. 2023): GPT-2 with one key and value for all heads; SantaCoder and StarCoder."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, Field

from ...core.config import Flag, Positive, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import FeedForward
from ...parts.norms import LayerNorm
from ...parts.positions import Learned
from ..family import Act, Family, prefix
from ..rename import Ignored, Same, Table, both
from ..rules import grouped
from ..stored import Tensors


class GPTBigCode(Family):
    """SantaCoder, StarCoder and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("gpt_bigcode",)
    paper: ClassVar[str] = "Ben Allal et al. 2023, SantaCoder, arXiv 2301.03988"
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
    multi_query: Flag = True
    add_cross_attention: Flag = False
    tie_word_embeddings: Flag = True

    @property
    def layers(self) -> int:
        return self.n_layer

    def ours(self, tensors: Tensors) -> Decoder.Config:
        if self.add_cross_attention:
            raise ConfigError("add_cross_attention is set: heed reads GPT-BigCode as a language model alone")
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.n_embd,
            depth=self.n_layer,
            mixer=Attention.Config(
                heads=self.n_head,
                kv_heads=1 if self.multi_query else None,
                scale=None if self.scale_attn_weights else 1.0,
            ),
            feedforward=FeedForward.Config(hidden=self.n_inner, activation=self.activation_function),
            norm=LayerNorm(eps=self.layer_norm_epsilon),
            position=Learned.Config(length=self.n_positions),
            tied=self.tie_word_embeddings,
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, "transformer.")
        layer, block = f"{theirs}h.{{i}}", "stack.blocks.{i}"
        parts = tuple(f"{block}.mixer.{what}" for what in ("query", "key", "value"))
        groups, queries = (1, self.n_head) if self.multi_query else (self.n_head, 1)
        return (
            Same(f"{theirs}wte.weight", "front.table.weight"),
            Same(f"{theirs}wpe.weight", "front.position.table"),
            *grouped(f"{layer}.attn.c_attn", parts, groups, (queries, 1, 1)),
            *both(f"{layer}.attn.c_proj", f"{block}.mixer.out"),
            *both(f"{layer}.mlp.c_fc", f"{block}.feedforward.up"),
            *both(f"{layer}.mlp.c_proj", f"{block}.feedforward.down"),
            *both(f"{layer}.ln_1", f"{block}.wiring.norms.0"),
            *both(f"{layer}.ln_2", f"{block}.wiring.norms.1"),
            *both(f"{theirs}ln_f", "stack.ends.final"),
            Same("lm_head.weight", "head.weight"),
            Ignored(f"{theirs}bias"),  # the causal mask, in old files
            Ignored(f"{layer}.attn.bias"),
            Ignored(f"{layer}.attn.masked_bias"),
        )
