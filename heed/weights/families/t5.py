"""T5 (Raffel et al. 2020), with mT5 and umT5: bucketed distances, RMS norms, no biases, unscaled attention scores."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Count, Flag, Positive, Size, Text
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...mixers import Attention, Cross
from ...models import Decoder, Encoder, Seq2seq
from ...parts.feedforward import FeedForward, Gated
from ...parts.layers.norms import RMSNorm
from ...parts.masks import Causal, Mask, Whole
from ...parts.positions import Buckets
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table
from .base import ACTIVATIONS, Act
from .encoder_decoders import TwoSided
from .encoders import kept

FARTHEST = 1 << 20  # tokens: a bias by distance is a table of so many


class T5(TwoSided):
    """T5 1.0 and 1.1, Flan-T5; without tensors of a decoder, the encoder alone.

    Before the head the stream is times d_model^-1/2 if `scale_decoder_outputs`, which older files do not have, or else
    `tie_word_embeddings` says so. Neither tells whether the head is a table of its own: only the file does.
    """

    types: ClassVar[tuple[str, ...]] = ("t5",)
    paper: ClassVar[str] = "Raffel et al. 2020, arXiv 1910.10683"
    one_position: ClassVar[bool] = True  # all layers of a side share the distances of the first

    vocab_size: Size = 32128
    d_model: Size = 512
    d_kv: Size = 64
    d_ff: Size = 2048
    num_layers: Size = 6
    num_decoder_layers: Size | None = None
    num_heads: Size = 8
    relative_attention_num_buckets: Size = 32
    relative_attention_max_distance: Size = 128
    layer_norm_epsilon: Positive = 1e-6
    feed_forward_proj: Text = "relu"
    dense_act_fn: Act | None = None  # None: what feed_forward_proj says
    is_gated_act: Flag | None = None  # likewise
    scale_decoder_outputs: Flag | None = None
    pad_token_id: Count | None = 0

    @property
    def layers(self) -> int:
        return self.num_layers + (self.num_decoder_layers or self.num_layers)

    def ours(self, tensors: Tensors) -> Encoder.Config | Seq2seq.Config:
        if self.relative_attention_max_distance > FARTHEST:
            raise ConfigError(
                f"relative_attention_max_distance is {self.relative_attention_max_distance}; heed tells distances "
                f"apart up to {FARTHEST}"
            )
        if _alone(tensors):
            return self._encoder(tensors)
        encoder, decoder = self._encoder(tensors), self._decoder(tensors)
        return Seq2seq.Config(encoder=encoder, decoder=decoder, shared=self._shared(tensors))

    def names(self, tensors: Tensors) -> Table:
        if _alone(tensors):
            return *self._embedded(tensors, ""), *self._layers("encoder", "")
        return (
            *self._embedded(tensors, "encoder."),
            Same("decoder.embed_tokens.weight", "decoder.embeddings.table.weight"),
            *self._layers("encoder", "encoder."),
            *self._layers("decoder", "decoder."),
            Same("lm_head.weight", "decoder.head.weight"),
            Ignored("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),  # of old files, unused
        )

    def _encoder(self, tensors: Tensors) -> Encoder.Config:
        return Encoder.Config(
            vocabulary=self.vocab_size,
            width=self.d_model,
            depth=self.num_layers,
            mixer=self._attention(Whole()),
            feedforward=self._feedforwards(tensors, "encoder"),
            norm=RMSNorm(eps=self.layer_norm_epsilon),
            one_position=self.one_position,
        )

    def _decoder(self, tensors: Tensors) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.d_model,
            depth=self.num_decoder_layers or self.num_layers,
            mixer=self._attention(Causal()),
            cross=Cross.Config(heads=self.num_heads, head_size=self.d_kv, bias=False, scale=1.0),
            feedforward=self._feedforwards(tensors, "decoder"),
            norm=RMSNorm(eps=self.layer_norm_epsilon),
            one_position=self.one_position,
            tied="lm_head.weight" not in tensors,
            head_scale=self.d_model**-0.5 if self._scaled() else 1.0,
        )

    def _attention(self, mask: Mask) -> Attention.Config:
        buckets = Buckets.Config(
            buckets=self.relative_attention_num_buckets,
            distance=self.relative_attention_max_distance,
            both_ways=isinstance(mask, Whole),
        )
        return Attention.Config(
            heads=self.num_heads, head_size=self.d_kv, bias=False, scale=1.0, mask=mask, position=buckets
        )

    def _feedforwards(self, tensors: Tensors, side: str) -> MixerConfig | tuple[MixerConfig, ...]:
        return self._feedforward()

    def _feedforward(self) -> MixerConfig:
        gate, dash, name = self.feed_forward_proj.rpartition("-")
        name = "gelu_new" if self.feed_forward_proj == "gated-gelu" else name
        activation = self.dense_act_fn or ACTIVATIONS.get(name)
        if activation is None or (dash and gate != "gated"):
            raise ConfigError(
                f"feed_forward_proj is {self.feed_forward_proj!r}; needed is an activation ({', '.join(ACTIVATIONS)}), "
                "perhaps with gated- before it"
            )
        kind = Gated.Config if self._gated() else FeedForward.Config
        return kind(hidden=self.d_ff, activation=activation, bias=False)

    def _gated(self) -> bool:
        return self.feed_forward_proj.startswith("gated-") if self.is_gated_act is None else self.is_gated_act

    def _scaled(self) -> bool:
        return self.tie_word_embeddings if self.scale_decoder_outputs is None else self.scale_decoder_outputs

    def _shared(self, tensors: Tensors) -> bool:
        """Whether both sides embed tokens by one table."""
        return True

    def _embedded(self, tensors: Tensors, ours: str) -> Table:
        """The table of the source, which old files hold under two names."""
        theirs, table = "shared.weight", f"{ours}embeddings.table.weight"
        one = (Same(theirs, table),) if self._shared(tensors) else kept(tensors, theirs, beside=table)
        return *one, Same("encoder.embed_tokens.weight", table)

    def _layers(self, side: str, ours: str) -> Table:
        theirs, block = f"{side}.block.{{i}}.layer", f"{ours}stack.blocks.{{i}}"
        parts = ("SelfAttention", "mixer"), ("EncDecAttention", "cross")
        attentions = parts if side == "decoder" else parts[:1]
        last = len(attentions)
        return (
            *(
                Same(f"{theirs}.{number}.{name}.{their}.weight", f"{block}.{part}.{our}.weight")
                for number, (name, part) in enumerate(attentions)
                for their, our in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "out"))
            ),
            Same(f"{theirs}.0.SelfAttention.relative_attention_bias.weight", f"{block}.mixer.position.table"),
            *self._inner(f"{theirs}.{last}", f"{block}.feedforward"),
            *(
                Same(f"{theirs}.{number}.layer_norm.weight", f"{block}.wiring.norms.{number}.weight")
                for number in range(last + 1)
            ),
            Same(f"{side}.final_layer_norm.weight", f"{ours}stack.ends.final.weight"),
        )

    def _inner(self, theirs: str, ours: str) -> Table:
        """The feed-forward, plain or gated."""
        up = (("wi_0", "gate"), ("wi_1", "up")) if self._gated() else (("wi", "up"),)
        return tuple(
            Same(f"{theirs}.DenseReluDense.{their}.weight", f"{ours}.{our}.weight")
            for their, our in (*up, ("wo", "down"))
        )


class MT5(T5):
    """mT5: T5 1.1 in many languages. Its stream is not scaled before the head, whatever its config says."""

    types: ClassVar[tuple[str, ...]] = ("mt5",)
    paper: ClassVar[str] = "Xue et al. 2021, arXiv 2010.11934"

    vocab_size: Size = 250112
    d_ff: Size = 1024
    num_layers: Size = 8
    num_heads: Size = 6
    feed_forward_proj: Text = "gated-gelu"
    decoder_start_token_id: Count | None = 0

    def _scaled(self) -> bool:
        return False


class UMT5(MT5):
    """umT5: mT5 with distances of its own in every layer.

    A file that says `tie_word_embeddings: false` is read as its authors wrote it, without a scale before the head; the
    reference library has scaled it since its fifth version, which changes no order of tokens.
    """

    types: ClassVar[tuple[str, ...]] = ("umt5",)
    paper: ClassVar[str] = "Chung et al. 2023, arXiv 2304.09151"
    one_position: ClassVar[bool] = False

    def _scaled(self) -> bool:
        return self.tie_word_embeddings


def _alone(tensors: Tensors) -> bool:
    """Whether there is an encoder only."""
    return not any(name.startswith("decoder.") for name in tensors)
