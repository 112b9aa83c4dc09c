"""ELECTRA (Clark et al. 2020): BERT with narrow embeddings that tells which tokens a generator put in."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Size
from ...parts.inputs.tokens import Narrow
from ...parts.outputs.heads import Replaced
from ..formats.safetensors import Tensors
from ..rename import Table, both
from .base import prefix
from .encoders import Bertlike, Prediction
from .found import Found, spans, tagged

GENERATOR = Prediction("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head")


class Electra(Bertlike):
    """ELECTRA's discriminator and its generator."""

    types: ClassVar[tuple[str, ...]] = ("electra",)
    paper: ClassVar[str] = "Clark et al. 2020, arXiv 2003.10555"
    stem: ClassVar[str] = "electra."
    decodes: ClassVar[bool] = True

    vocab_size: Size = 30522
    embedding_size: Size = 128
    hidden_size: Size = 256
    num_attention_heads: Size = 4
    intermediate_size: Size = 1024

    @property
    def narrow(self) -> Narrow | None:
        return None if self.embedding_size == self.hidden_size else Narrow(size=self.embedding_size)

    def names(self, tensors: Tensors) -> Table:
        return *super().names(tensors), *both(f"{prefix(tensors, self.stem)}embeddings_project", "embeddings.narrow")

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        classified = "classifier.out_proj" if "classifier.dense.weight" in tensors else None
        return (
            *self.masked(tensors, GENERATOR, "gelu"),
            *self.pooled(tensors, "classifier.dense", classified, "gelu"),
            *tagged(tensors, "classifier"),
            *spans(tensors),
            *self._replaced(tensors),
        )

    def _replaced(self, tensors: Tensors) -> tuple[Found, ...]:
        theirs, ours = "discriminator_predictions", "heads.replaced"
        if f"{theirs}.dense.weight" not in tensors:
            return ()
        names = *both(f"{theirs}.dense", f"{ours}.transform"), *both(f"{theirs}.dense_prediction", f"{ours}.scores")
        return (Found(Replaced.Config(activation=self.hidden_act), names),)
