"""Funnel Transformer (Dai et al. 2020): an encoder whose text gets shorter, and perhaps a decoder that undoes it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import mul
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from ...core.config import Count, Flag, Positive, Size
from ...core.errors import ConfigError
from ...mixers import FunnelAttention
from ...models import Funnel as Model
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.outputs.heads import Masked, Replaced
from ..formats.safetensors import Tensors
from ..rename import Rule, Same, Table, both
from .albert import DEEPEST
from .base import Act, prefix
from .encoders import OneSided, norms
from .found import Found, spans, tagged

CLASSIFIER = "classifier.linear_hidden.weight"  # of texts


class Funnel(OneSided):
    """Funnel. Its two ways to compute relative attention, `attention_type`, give the same numbers.

    A backbone without a decoder, as for classification, gives the short text. Segments are 0, 1 and, for the first
    token, 2.
    """

    types: ClassVar[tuple[str, ...]] = ("funnel",)
    paper: ClassVar[str] = "Dai et al. 2020, arXiv 2006.03236"
    stem: ClassVar[str] = "funnel."

    model_config = ConfigDict(populate_by_name=True)  # sizes go by either name

    vocab_size: Size = 30522
    block_sizes: tuple[Size, ...] = (4, 4, 4)
    block_repeats: tuple[Size, ...] | None = None
    num_decoder_layers: Count = 2
    d_model: Size = Field(768, validation_alias="hidden_size")
    n_head: Size = Field(12, validation_alias="num_attention_heads")
    d_head: Size = 64
    d_inner: Size = 3072
    hidden_act: Act = "gelu_tanh"
    layer_norm_eps: Positive = 1e-9
    pooling_type: Literal["mean", "max"] = "mean"
    attention_type: Literal["relative_shift", "factorized"] = "relative_shift"
    separate_cls: Flag = True
    truncate_seq: Flag = True
    pool_q_only: Flag = True
    type_vocab_size: Size = 3

    @property
    def layers(self) -> int:
        return sum(self.block_sizes) + self.num_decoder_layers

    @property
    def norm(self) -> LayerNorm:
        return LayerNorm(eps=self.layer_norm_eps)

    def ours(self, tensors: Tensors) -> Model.Config:
        if not self.block_sizes or len(self.block_sizes) != len(self.block_repeats or self.block_sizes):
            raise ConfigError(
                f"block_sizes is {self.block_sizes}, block_repeats is {self.block_repeats}; needed is a number of both "
                "for each block, and at least one block"
            )
        if sum(map(mul, self.block_sizes, self.block_repeats or ())) > DEEPEST:
            raise ConfigError(
                f"block_repeats is {self.block_repeats}, for blocks of {self.block_sizes} layers: heed reads up to "
                f"{DEEPEST} layers in all"
            )
        if self.d_model % 2:
            raise ConfigError(f"d_model is {self.d_model}; distances are sines and cosines, so it must be even")
        upper = self._upper(tensors)
        return Model.Config(
            vocabulary=self.vocab_size,
            width=self.d_model,
            sizes=self.block_sizes,
            repeats=self.block_repeats,
            upper=upper,
            skip=self.block_sizes[0] if upper else None,
            mixer=FunnelAttention.Config(
                heads=self.n_head,
                head_size=self.d_head,
                separate=self.separate_cls,
                segments=max(self.type_vocab_size, 3),
            ),
            feedforward=FeedForward.Config(hidden=self.d_inner, activation=self.hidden_act),
            norm=self.norm,
            embedding_norm=self.norm,
            pool=self.pooling_type,
            separate=self.separate_cls,
            truncate=self.truncate_seq,
            queries_only=self.pool_q_only,
            heads=self.asked(tensors),
        )

    def _upper(self, tensors: Tensors) -> int:
        """The layers of the decoder, if there is one."""
        decoder = f"{prefix(tensors, self.stem)}decoder."
        if any(name.startswith(decoder) for name in tensors):
            return self.num_decoder_layers
        short = CLASSIFIER in tensors or "FunnelBaseModel" in (self.architectures or ())
        if not self.num_decoder_layers and not short:
            raise ConfigError(
                "num_decoder_layers is 0: texts get their length back, but no layer reads them then, which heed does "
                "not hold; save it as a FunnelBaseModel, whose texts stay short"
            )
        return 0

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        encoder = [
            f"{theirs}encoder.blocks.{block}.{layer}"
            for block, size in enumerate(self.block_sizes)
            for layer in range(size)
        ]
        decoder = [f"{theirs}decoder.layers.{layer}" for layer in range(self.num_decoder_layers)]
        return (
            Same(f"{theirs}embeddings.word_embeddings.weight", "embeddings.table.weight"),
            *norms(f"{theirs}embeddings.layer_norm", "embeddings.norm"),
            *(rule for number, layer in enumerate(encoder + decoder) for rule in _layer(layer, number)),
            *self.answers(tensors),
        )

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        found = [*spans(tensors), *tagged(tensors, "classifier")]
        if "lm_head.bias" in tensors:
            masked = Masked.Config(vocabulary=self.vocab_size, tied=self.tie_word_embeddings)
            found.append(Found(masked, both("lm_head", "heads.masked.scores")))
        if CLASSIFIER in tensors:
            found += self.pooled(tensors, "classifier.linear_hidden", "classifier.linear_out")
        if "discriminator_predictions.dense.weight" in tensors:
            stem = "discriminator_predictions"
            names = (
                *both(f"{stem}.dense", "heads.replaced.transform"),
                *both(f"{stem}.dense_prediction", "heads.replaced.scores"),
            )
            found.append(Found(Replaced.Config(activation=self.hidden_act), names))
        return tuple(found)


def _layer(theirs: str, number: int) -> Iterator[Rule]:
    block = f"stack.blocks.{number}"
    attention, mixer = f"{theirs}.attention", f"{block}.mixer"
    yield Same(f"{attention}.q_head.weight", f"{mixer}.query.weight")
    for name, ours in {"k_head": "key", "v_head": "value", "post_proj": "out"}.items():
        yield from both(f"{attention}.{name}", f"{mixer}.{ours}")
    for name, ours in {"r_w_bias": "content", "r_r_bias": "position", "r_s_bias": "segment"}.items():
        yield Same(f"{attention}.{name}", f"{mixer}.{ours}_bias")
    yield Same(f"{attention}.r_kernel", f"{mixer}.position_kernel")
    yield Same(f"{attention}.seg_embed", f"{mixer}.segment_table")
    yield from norms(f"{attention}.layer_norm", f"{block}.wiring.norms.0")
    yield from both(f"{theirs}.ffn.linear_1", f"{block}.feedforward.up")
    yield from both(f"{theirs}.ffn.linear_2", f"{block}.feedforward.down")
    yield from norms(f"{theirs}.ffn.layer_norm", f"{block}.wiring.norms.1")
