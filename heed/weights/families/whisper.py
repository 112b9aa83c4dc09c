"""Whisper (Radford et al. 2022): a log-mel spectrogram is heard through two convolutions, a text is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...core.config import Count, Flag, Size
from ...core.errors import ConfigError
from ...mixers import Attention, Cross
from ...models import AudioEncoder, Decoder, Seq2seq
from ...parts.feedforward import FeedForward
from ...parts.inputs.audio import Mels
from ...parts.masks import Whole
from ...parts.outputs.heads import Pooled
from ...parts.positions import Learned
from ..formats.safetensors import Tensors
from ..rename import Rule, Same, Table, both
from .base import Act, prefix
from .encoder_decoders import TwoSided
from .wav2vec2 import pooler, pooler_names


class Whisper(TwoSided):
    """Whisper and what was trained in its shape; its encoder alone as a classifier of sounds."""

    types: ClassVar[tuple[str, ...]] = ("whisper",)
    paper: ClassVar[str] = "Radford et al. 2022, Robust Speech Recognition via Large-Scale Weak Supervision"

    # scale_embedding is not here: the reference stores it and never uses it.
    vocab_size: Size = 51865
    num_mel_bins: Size = 80
    d_model: Size = 384
    encoder_layers: Size = 4
    encoder_attention_heads: Size = 6
    encoder_ffn_dim: Size = 1536
    decoder_layers: Size = 4
    decoder_attention_heads: Size = 6
    decoder_ffn_dim: Size = 1536
    activation_function: Act = "gelu"
    max_source_positions: Size = 1500
    max_target_positions: Size = 448
    tie_word_embeddings: Flag = True
    pad_token_id: Count | None = 50256
    bos_token_id: Count | None = 50256
    decoder_start_token_id: Count | None = 50257

    @property
    def layers(self) -> int:
        return self.encoder_layers + self.decoder_layers

    def ours(self, tensors: Tensors) -> Seq2seq.Config | AudioEncoder.Config:
        if "layer_weights" in tensors:
            raise ConfigError("it holds layer_weights, a weighted sum of layers; heed reads classifiers off the last")
        if "classifier.weight" in tensors:
            return self._hearing(pooler(tensors))
        written = self.decoder_attention_heads
        decoder = Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.d_model,
            depth=self.decoder_layers,
            mixer=Attention.Config(heads=written, key_bias=False),
            cross=Cross.Config(heads=written, key_bias=False),
            feedforward=FeedForward.Config(hidden=self.decoder_ffn_dim, activation=self.activation_function),
            position=Learned.Config(length=self.max_target_positions),
            tied=self.tie_word_embeddings or "proj_out.weight" not in tensors,
        )
        return Seq2seq.Config(encoder=self._hearing(), decoder=decoder)

    def _hearing(self, head: Pooled.Config | None = None) -> AudioEncoder.Config:
        """The encoder."""
        return AudioEncoder.Config(
            embeddings=Mels.Config(bins=self.num_mel_bins, position=Learned.Config(length=self.max_source_positions)),
            width=self.d_model,
            depth=self.encoder_layers,
            mixer=Attention.Config(heads=self.encoder_attention_heads, key_bias=False, mask=Whole()),
            feedforward=FeedForward.Config(hidden=self.encoder_ffn_dim, activation=self.activation_function),
            heads=head,
        )

    def names(self, tensors: Tensors) -> Table:
        if "classifier.weight" in tensors:
            return (*_hearing("encoder", ""), *pooler_names())
        theirs = prefix(tensors, "model.")
        encoder, decoder = f"{theirs}encoder", f"{theirs}decoder"
        return (
            *_hearing(encoder, "encoder."),
            Same(f"{decoder}.embed_tokens.weight", "decoder.embeddings.table.weight"),
            Same(f"{decoder}.embed_positions.weight", "decoder.embeddings.position.table"),
            *_layers(decoder, "decoder.", {"self_attn": "mixer", "encoder_attn": "cross"}),
            Same("proj_out.weight", "decoder.head.weight"),
        )


def _hearing(theirs: str, ours: str) -> Iterator[Rule]:
    """The encoder."""
    yield from both(f"{theirs}.conv1", f"{ours}embeddings.first")
    yield from both(f"{theirs}.conv2", f"{ours}embeddings.second")
    yield Same(f"{theirs}.embed_positions.weight", f"{ours}embeddings.position.table")
    yield from _layers(theirs, ours, {"self_attn": "mixer"})


def _layers(theirs: str, ours: str, attentions: dict[str, str]) -> Iterator[Rule]:
    """The blocks of one side and the norm behind them."""
    layer, block = f"{theirs}.layers.{{i}}", f"{ours}stack.blocks.{{i}}"
    for number, (name, part) in enumerate(attentions.items()):
        for short, long in (("q", "query"), ("k", "key"), ("v", "value"), ("out", "out")):
            yield from both(f"{layer}.{name}.{short}_proj", f"{block}.{part}.{long}")
        yield from both(f"{layer}.{name}_layer_norm", f"{block}.wiring.norms.{number}")
    yield from both(f"{layer}.fc1", f"{block}.feedforward.up")
    yield from both(f"{layer}.fc2", f"{block}.feedforward.down")
    yield from both(f"{layer}.final_layer_norm", f"{block}.wiring.norms.{len(attentions)}")
    yield from both(f"{theirs}.layer_norm", f"{ours}stack.ends.final")
