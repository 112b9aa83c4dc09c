"""BERT (Devlin et al. 2019): post-norm, learned positions and segments."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Size
from ..formats.safetensors import Tensors
from .base import prefix
from .encoders import BERTS, Bertlike
from .found import Found, spans, tagged


class Bert(Bertlike):
    """BERT and what was trained in its shape, with any of its heads or none."""

    types: ClassVar[tuple[str, ...]] = ("bert",)
    paper: ClassVar[str] = "Devlin et al. 2019, arXiv 1810.04805"
    stem: ClassVar[str] = "bert."
    decodes: ClassVar[bool] = True

    vocab_size: Size = 30522

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        pooler = f"{prefix(tensors, self.stem)}pooler.dense"
        texts = self.of_texts(tensors, pooler)
        pair = "cls.seq_relationship" if "cls.seq_relationship.weight" in tensors else None
        return (
            *self.masked(tensors, BERTS, self.hidden_act),
            *self.pooled(tensors, pooler, "classifier" if texts else pair),
            *(() if texts else tagged(tensors, "classifier")),
            *spans(tensors),
        )
