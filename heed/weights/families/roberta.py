"""RoBERTa (Liu et al. 2019): BERT whose positions are counted from the padding id on."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Count, Size
from ...parts.positions import AddedConfig, Learned
from ..formats.safetensors import Tensors
from ..rename import Ignored
from .base import Places, prefix
from .encoders import Bertlike, Prediction
from .found import Found, spans, tagged

PREDICTION = Prediction("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias")


class Roberta(Bertlike):
    """RoBERTa, XLM-RoBERTa and CamemBERT.

    Token i of a text, not counting padding ids, stands at row pad_token_id + 1 + i of the table: position i. A padding
    id stands at row pad_token_id, which is position -1.
    """

    types: ClassVar[tuple[str, ...]] = ("roberta", "xlm-roberta", "camembert")
    paper: ClassVar[str] = "Liu et al. 2019, arXiv 1907.11692"
    stem: ClassVar[str] = "roberta."
    decodes: ClassVar[bool] = True

    vocab_size: Size = 50265
    pad_token_id: Count = 1

    @property
    def places(self) -> Places:
        return "ranks"

    @property
    def uncounted(self) -> int:
        return self.pad_token_id

    @property
    def position(self) -> AddedConfig | None:
        unused = self.uncounted + 1
        return Learned.Config(length=self.max_position_embeddings - unused, offset=unused)

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        pooler = f"{prefix(tensors, self.stem)}pooler.dense"
        texts = self.of_texts(tensors, pooler)
        return (
            *self.masked(tensors, PREDICTION, "gelu"),
            *self._of_texts(tensors, pooler, "classifier" if texts else None),
            *(() if texts else tagged(tensors, "classifier")),
            *spans(tensors),
        )

    def _of_texts(self, tensors: Tensors, pooler: str, scores: str | None) -> tuple[Found, ...]:
        if "classifier.dense.weight" not in tensors:
            return self.pooled(tensors, pooler, scores)
        (found,) = self.pooled(tensors, "classifier.dense", "classifier.out_proj")
        unused = (Ignored(f"{pooler}.{what}") for what in ("weight", "bias"))  # old files hold a pooler, too
        return (Found(found.head, (*found.names, *unused)),)
