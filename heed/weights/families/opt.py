"""OPT (Zhang et al. 2022): learned positions that count real tokens, norms before or after, narrow embeddings."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ...core.config import Flag, Size
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import FeedForward
from ...parts.inputs.tokens import Narrow
from ...parts.layers.norms import LayerNorm
from ...parts.positions import Learned
from ...parts.residual.wiring import PostNorm, PreNorm
from ..formats.safetensors import Tensors
from ..rename import Same, Table, both
from .base import Act, Places
from .decoders import Generative


class OPT(Generative):
    """OPT 125M to 175B and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("opt",)
    paper: ClassVar[str] = "Zhang et al. 2022, OPT: Open Pre-trained Transformer Language Models, arXiv 2205.01068"
    stem: ClassVar[str] = "model."

    vocab_size: Size = 50272
    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    ffn_dim: Size = 3072
    max_position_embeddings: Size = 2048
    activation_function: Act = "relu"
    do_layer_norm_before: Flag = True  # OPT 350M alone norms afterwards
    remove_final_layer_norm: Flag = Field(False, validation_alias="_remove_final_layer_norm")
    word_embed_proj_dim: Size | None = None
    enable_bias: Flag = True
    layer_norm_elementwise_affine: Flag = True
    tie_word_embeddings: Flag = True

    @property
    def places(self) -> Places:
        return "ranks"

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    def ours(self, tensors: Tensors) -> Decoder.Config:
        size = self.word_embed_proj_dim or self.hidden_size
        narrow = None if size == self.hidden_size else Narrow(size=size, after="token", bias=False)
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=Attention.Config(heads=self.num_attention_heads, bias=self.enable_bias),
            feedforward=FeedForward.Config(
                hidden=self.ffn_dim, activation=self.activation_function, bias=self.enable_bias
            ),
            norm=LayerNorm(gain=self.layer_norm_elementwise_affine),
            wiring=PreNorm(final=not self.remove_final_layer_norm) if self.do_layer_norm_before else PostNorm(),
            position=Learned.Config(length=self.max_position_embeddings, offset=2),
            narrow=narrow,
            narrowed=narrow is not None,
            tied=self.tie_word_embeddings or self.headless(tensors),
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = f"{self.prefix(tensors)}decoder."
        layer, block = f"{theirs}layers.{{i}}", "stack.blocks.{i}"
        return (
            Same(f"{theirs}embed_tokens.weight", "embeddings.table.weight"),
            Same(f"{theirs}embed_positions.weight", "embeddings.position.table"),
            Same(f"{theirs}project_in.weight", "embeddings.narrow.weight"),
            Same(f"{theirs}project_out.weight", "narrow.weight"),
            *both(f"{layer}.self_attn.q_proj", f"{block}.mixer.query"),
            *both(f"{layer}.self_attn.k_proj", f"{block}.mixer.key"),
            *both(f"{layer}.self_attn.v_proj", f"{block}.mixer.value"),
            *both(f"{layer}.self_attn.out_proj", f"{block}.mixer.out"),
            *both(f"{layer}.fc1", f"{block}.feedforward.up"),
            *both(f"{layer}.fc2", f"{block}.feedforward.down"),
            *both(f"{layer}.self_attn_layer_norm", f"{block}.wiring.norms.0"),
            *both(f"{layer}.final_layer_norm", f"{block}.wiring.norms.1"),
            *both(f"{theirs}final_layer_norm", "stack.ends.final"),
            Same("lm_head.weight", "head.weight"),
            *self.answers(tensors),
        )
