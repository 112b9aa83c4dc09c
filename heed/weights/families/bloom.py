"""BLOOM (BigScience 2022): ALiBi, a norm on the embeddings, queries, keys and values stored head by head."""

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
from ...parts.residual.wiring import Normed, PreNorm
from ..formats.safetensors import Tensors
from ..rename import Same, Table, both
from ..rules import grouped
from .base import Places
from .decoders import Generative


class Bloom(Generative):
    """BLOOM, BLOOMZ and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("bloom",)
    paper: ClassVar[str] = "BigScience Workshop 2022, BLOOM, arXiv 2211.05100"
    stem: ClassVar[str] = "transformer."

    model_config = ConfigDict(populate_by_name=True)  # sizes go by either name

    vocab_size: Size = 250880
    hidden_size: Size = Field(64, validation_alias="n_embed")
    n_layer: Size = Field(2, validation_alias="num_hidden_layers")
    n_head: Size = Field(8, validation_alias="num_attention_heads")
    layer_norm_epsilon: Positive = 1e-5
    apply_residual_connection_post_layernorm: Flag = False
    pretraining_tp: Size = 1
    slow_but_exact: Flag = False
    tie_word_embeddings: Flag = True

    @property
    def places(self) -> Places:
        return "ranks"

    @property
    def layers(self) -> int:
        return self.n_layer

    def ours(self, tensors: Tensors) -> Decoder.Config:
        if self.slow_but_exact and self.pretraining_tp > 1:
            raise ConfigError(
                "slow_but_exact sums the products slice by slice, and the reference then leaves out their biases; "
                "set it to false"
            )
        norm = LayerNorm(eps=self.layer_norm_epsilon)
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.n_layer,
            mixer=Attention.Config(heads=self.n_head, position=Alibi.Config()),
            feedforward=FeedForward.Config(activation="gelu_tanh"),
            norm=norm,
            wiring=Normed() if self.apply_residual_connection_post_layernorm else PreNorm(),
            embedding_norm=norm,
            tied=self.tie_word_embeddings or self.headless(tensors),
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = self.prefix(tensors)
        layer, block = f"{theirs}h.{{i}}", "stack.blocks.{i}"
        parts = tuple(f"{block}.mixer.{what}" for what in ("query", "key", "value"))
        return (
            Same(f"{theirs}word_embeddings.weight", "embeddings.table.weight"),
            *both(f"{theirs}word_embeddings_layernorm", "embeddings.norm"),
            *grouped(f"{layer}.self_attention.query_key_value", parts, self.n_head, (1, 1, 1)),
            *both(f"{layer}.self_attention.dense", f"{block}.mixer.out"),
            *both(f"{layer}.mlp.dense_h_to_4h", f"{block}.feedforward.up"),
            *both(f"{layer}.mlp.dense_4h_to_h", f"{block}.feedforward.down"),
            *both(f"{layer}.input_layernorm", f"{block}.wiring.norms.0"),
            *both(f"{layer}.post_attention_layernorm", f"{block}.wiring.norms.1"),
            *both(f"{theirs}ln_f", "stack.ends.final"),
            Same("lm_head.weight", "head.weight"),
            *self.answers(tensors),
        )
