"""ALBERT (Lan et al. 2020): BERT with narrow embeddings, and few layers that are run again and again."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Size
from ...core.errors import ConfigError
from ...models import Encoder
from ...parts.inputs.tokens import Narrow
from ..formats.safetensors import Tensors
from ..rename import Table, both
from .base import Act, prefix
from .encoders import Bertlike, Prediction, embedded, norms
from .found import Found, spans, tagged

PREDICTION = Prediction("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias")
DEEPEST = 1024  # layers that share their weights cost no tensors, so that no file bears out how many there are


class Albert(Bertlike):
    """ALBERT: `num_hidden_groups` groups of `inner_group_num` layers; each group is run several times over."""

    types: ClassVar[tuple[str, ...]] = ("albert",)
    paper: ClassVar[str] = "Lan et al. 2020, arXiv 1909.11942"
    stem: ClassVar[str] = "albert."

    vocab_size: Size = 30000
    embedding_size: Size = 128
    hidden_size: Size = 4096
    num_hidden_groups: Size = 1
    num_attention_heads: Size = 64
    intermediate_size: Size = 16384
    inner_group_num: Size = 1
    hidden_act: Act = "gelu_tanh"

    @property
    def layers(self) -> int:
        return self.num_hidden_groups * self.inner_group_num

    @property
    def narrow(self) -> Narrow | None:
        return Narrow(size=self.embedding_size)

    def encoder(self, tensors: Tensors) -> Encoder.Config:
        groups, depth = self.num_hidden_groups, self.num_hidden_layers
        if groups > depth or depth * self.inner_group_num > DEEPEST:
            raise ConfigError(
                f"{depth} layers of {self.inner_group_num} in {groups} groups: heed reads up to {DEEPEST} layers, in "
                "at most as many groups"
            )
        order = tuple(
            int(layer / (depth / groups)) * self.inner_group_num + inner  # as they compute it, rounding included
            for layer in range(depth)
            for inner in range(self.inner_group_num)
        )
        return super().encoder(tensors).model_copy(update={"order": order, "depth": len(order)})

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        layers = (
            rule
            for group in range(self.num_hidden_groups)
            for inner in range(self.inner_group_num)
            for rule in _layer(
                f"{theirs}encoder.albert_layer_groups.{group}.albert_layers.{inner}",
                f"stack.blocks.{group * self.inner_group_num + inner}",
            )
        )
        return (
            *embedded(f"{theirs}embeddings"),
            *both(f"{theirs}encoder.embedding_hidden_mapping_in", "embeddings.narrow"),
            *layers,
            *self.answers(tensors),
        )

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        pooler = f"{prefix(tensors, self.stem)}pooler"
        texts = self.of_texts(tensors, pooler)
        pair = "sop_classifier.classifier" if "sop_classifier.classifier.weight" in tensors else None
        return (
            *self.masked(tensors, PREDICTION, self.hidden_act),
            *self.pooled(tensors, pooler, "classifier" if texts else pair),
            *(() if texts else tagged(tensors, "classifier")),
            *spans(tensors),
        )


def _layer(theirs: str, ours: str) -> Table:
    return (
        *(
            rule
            for what in ("query", "key", "value")
            for rule in both(f"{theirs}.attention.{what}", f"{ours}.mixer.{what}")
        ),
        *both(f"{theirs}.attention.dense", f"{ours}.mixer.out"),
        *norms(f"{theirs}.attention.LayerNorm", f"{ours}.wiring.norms.0"),
        *both(f"{theirs}.ffn", f"{ours}.feedforward.up"),
        *both(f"{theirs}.ffn_output", f"{ours}.feedforward.down"),
        *norms(f"{theirs}.full_layer_layer_norm", f"{ours}.wiring.norms.1"),
    )
