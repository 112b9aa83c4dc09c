"""BART (Lewis et al. 2020) and mBART: post-norm and pre-norm, learned positions, a norm after the embeddings."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...core.config import Count, Flag, Size
from ...mixers import Attention, Cross
from ...models import Decoder, Encoder, Seq2seq
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm, NormConfig
from ...parts.masks import Whole
from ...parts.positions import AddedConfig, Learned
from ...parts.residual.wiring import PostNorm, PreNorm, WiringConfig
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table, both
from ..rules import Row
from .base import Act, prefix
from .encoder_decoders import TwoSided
from .encoders import kept


class Bart(TwoSided):
    """BART. What it shares with its relatives is here; where they differ is what a subclass says."""

    types: ClassVar[tuple[str, ...]] = ("bart",)
    paper: ClassVar[str] = "Lewis et al. 2020, arXiv 1910.13461"
    wiring: ClassVar[WiringConfig] = PostNorm()
    embedding_norm: ClassVar[NormConfig | None] = LayerNorm()

    vocab_size: Size = 50265
    max_position_embeddings: Size = 1024
    d_model: Size = 1024
    encoder_layers: Size = 12
    encoder_ffn_dim: Size = 4096
    encoder_attention_heads: Size = 16
    decoder_layers: Size = 12
    decoder_ffn_dim: Size = 4096
    decoder_attention_heads: Size = 16
    activation_function: Act = "gelu"
    scale_embedding: Flag = False
    pad_token_id: Count | None = 1
    bos_token_id: Count | None = 0
    decoder_start_token_id: Count | None = 2

    @property
    def layers(self) -> int:
        return self.encoder_layers + self.decoder_layers

    @property
    def position(self) -> AddedConfig:
        """What is added to the embeddings."""
        return Learned.Config(length=self.max_position_embeddings, offset=2)

    def ours(self, tensors: Tensors) -> Seq2seq.Config:
        heads, apart = self.decoder_attention_heads, self.apart(tensors, prefix(tensors, "model."))
        encoder = Encoder.Config(
            vocabulary=self.vocab_size,
            width=self.d_model,
            depth=self.encoder_layers,
            mixer=Attention.Config(heads=self.encoder_attention_heads, mask=Whole()),
            feedforward=FeedForward.Config(hidden=self.encoder_ffn_dim, activation=self.activation_function),
            wiring=self.wiring,
            position=self.position,
            scaled=self.scale_embedding,
            embedding_norm=self.embedding_norm,
        )
        decoder = Decoder.Config(
            vocabulary=self._target_vocabulary(),
            width=self.d_model,
            depth=self.decoder_layers,
            mixer=Attention.Config(heads=heads),
            cross=Cross.Config(heads=heads),
            feedforward=FeedForward.Config(hidden=self.decoder_ffn_dim, activation=self.activation_function),
            wiring=self.wiring,
            position=self.position,
            scaled=self.scale_embedding,
            embedding_norm=self.embedding_norm,
            tied=self.tie_word_embeddings or "lm_head.weight" not in tensors,
            head_bias="final_logits_bias" in tensors,
        )
        return Seq2seq.Config(encoder=encoder, decoder=decoder, shared=not apart)

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, "model.")
        shared, table = f"{theirs}shared.weight", "encoder.embeddings.table.weight"
        return (
            *(kept(tensors, shared, beside=table) if self.apart(tensors, theirs) else (Same(shared, table),)),
            *self._layers(theirs, "encoder"),
            *self._layers(theirs, "decoder"),
            Same("lm_head.weight", "decoder.head.weight"),
            Row("final_logits_bias", "decoder.head.bias"),
        )

    def _target_vocabulary(self) -> int:
        return self.vocab_size

    def _layers(self, model: str, side: str) -> Table:
        theirs, ours = f"{model}{side}.layers.{{i}}", f"{side}.stack.blocks.{{i}}"
        parts = ("self_attn", "mixer"), ("encoder_attn", "cross")
        attentions = parts if side == "decoder" else parts[:1]
        norms = *(f"{name}_layer_norm" for name, _ in attentions), "final_layer_norm"
        return (
            Same(f"{model}{side}.embed_tokens.weight", f"{side}.embeddings.table.weight"),
            Same(f"{model}{side}.embed_positions.weight", f"{side}.embeddings.position.table"),
            *both(f"{model}{side}.layernorm_embedding", f"{side}.embeddings.norm"),
            *(
                rule
                for name, part in attentions
                for their, our in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out"))
                for rule in both(f"{theirs}.{name}.{their}", f"{ours}.{part}.{our}")
            ),
            *both(f"{theirs}.fc1", f"{ours}.feedforward.up"),
            *both(f"{theirs}.fc2", f"{ours}.feedforward.down"),
            *(rule for n, name in enumerate(norms) for rule in both(f"{theirs}.{name}", f"{ours}.wiring.norms.{n}")),
            *both(f"{model}{side}.layer_norm", f"{side}.stack.ends.final"),
            Ignored(f"{model}{side}.version"),  # of fairseq
        )


class MBart(Bart):
    """mBART: BART in many languages, pre-norm. A target begins with the token of its language, its last label."""

    types: ClassVar[tuple[str, ...]] = ("mbart",)
    paper: ClassVar[str] = "Liu et al. 2020, arXiv 2001.08210"
    wiring: ClassVar[WiringConfig] = PreNorm()

    decoder_start_token_id: Count | None = None

    def shifted(self, labels: Tensor) -> Tensor:
        filled = self.filled(labels)
        last = filled.ne(self.padding).sum(1, keepdim=True) - 1
        return torch.cat((filled.gather(1, last.clamp(min=0)), filled[:, :-1]), 1)
