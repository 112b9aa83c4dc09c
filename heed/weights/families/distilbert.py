"""DistilBERT (Sanh et al. 2019): half of BERT's layers, without segments and without a pooler."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Size
from ...mixers import Attention
from ...models import Encoder
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Whole
from ...parts.positions import Learned
from ...parts.residual.wiring import PostNorm
from ..formats.safetensors import Tensors
from ..rename import Table, both
from .base import Act, prefix
from .encoders import OneSided, Prediction, embedded, norms
from .found import Found, spans, tagged

PREDICTION = Prediction("vocab_transform", "vocab_layer_norm", "vocab_projector")


class DistilBert(OneSided):
    """DistilBERT. Positions are a stored table, even where sinusoids were put into it (sinusoidal_pos_embds)."""

    types: ClassVar[tuple[str, ...]] = ("distilbert",)
    paper: ClassVar[str] = "Sanh et al. 2019, arXiv 1910.01108"
    stem: ClassVar[str] = "distilbert."

    vocab_size: Size = 30522
    max_position_embeddings: Size = 512
    n_layers: Size = 6
    n_heads: Size = 12
    dim: Size = 768
    hidden_dim: Size = 3072
    activation: Act = "gelu"

    @property
    def layers(self) -> int:
        return self.n_layers

    @property
    def norm(self) -> LayerNorm:
        return LayerNorm(eps=1e-12)

    def ours(self, tensors: Tensors) -> Encoder.Config:
        return Encoder.Config(
            vocabulary=self.vocab_size,
            width=self.dim,
            depth=self.n_layers,
            mixer=Attention.Config(heads=self.n_heads, mask=Whole()),
            feedforward=FeedForward.Config(hidden=self.hidden_dim, activation=self.activation),
            norm=self.norm,
            wiring=PostNorm(),
            position=Learned.Config(length=self.max_position_embeddings),
            embedding_norm=self.norm,
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        layer, block = f"{theirs}transformer.layer.{{i}}", "stack.blocks.{i}"
        return (
            *embedded(f"{theirs}embeddings"),
            *both(f"{layer}.attention.q_lin", f"{block}.mixer.query"),
            *both(f"{layer}.attention.k_lin", f"{block}.mixer.key"),
            *both(f"{layer}.attention.v_lin", f"{block}.mixer.value"),
            *both(f"{layer}.attention.out_lin", f"{block}.mixer.out"),
            *norms(f"{layer}.sa_layer_norm", f"{block}.wiring.norms.0"),
            *both(f"{layer}.ffn.lin1", f"{block}.feedforward.up"),
            *both(f"{layer}.ffn.lin2", f"{block}.feedforward.down"),
            *norms(f"{layer}.output_layer_norm", f"{block}.wiring.norms.1"),
            *self.answers(tensors),
        )

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        texts = "pre_classifier.weight" in tensors
        return (
            *self.masked(tensors, PREDICTION, self.activation),
            *self.pooled(tensors, "pre_classifier", "classifier" if texts else None, "relu"),
            *(() if texts else tagged(tensors, "classifier")),
            *spans(tensors),
        )
