"""Families of decoders: a language model, or its backbone with a head that tells something of a text it has read."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Text
from ...parts.outputs.heads import HeadConfig, Pooled
from ..formats.safetensors import Tensors
from ..rename import Table, both
from .base import Family, prefix
from .found import Found, classes, spans, tagged

ANY_BACKBONE = "transformer."  # what the reference calls some backbones below a head for answers, whatever their family


class Generative(Family):
    """A family that continues a text. Which head it has, the names of the tensors tell.

    A class of a text is read off its last token, which alone has seen all others: logits = W·x_last, without a bias.
    """

    stem: ClassVar[str]  # what stands before the names of the backbone where there are heads

    architectures: tuple[Text, ...] | None = None

    def prefix(self, tensors: Tensors) -> str:
        """What stands before the names of the backbone here."""
        return prefix(tensors, self.stem) or prefix(tensors, ANY_BACKBONE)

    def lm_head(self, tensors: Tensors) -> str:
        """What the file calls the head of a language model."""
        return "lm_head.weight"

    def headless(self, tensors: Tensors) -> bool:
        """Whether the backbone was saved alone, or with another head: the embeddings are the nearest to a language
        model's."""
        return self.lm_head(tensors) not in tensors and (not self.prefix(tensors) or bool(self.found(tensors)))

    def asked(self, tensors: Tensors) -> tuple[HeadConfig, ...] | None:
        """The heads, as a decoder is configured with them."""
        return tuple(found.head for found in self.found(tensors)) or None

    def answers(self, tensors: Tensors) -> Table:
        """The names of all heads."""
        return tuple(rule for found in self.found(tensors) for rule in found.names)

    def found(self, tensors: Tensors) -> tuple[Found, ...]:
        """The heads whose tensors are there, beside that of a language model."""
        return (*self._scored(tensors), *tagged(tensors, "classifier"), *spans(tensors))

    def _scored(self, tensors: Tensors) -> tuple[Found, ...]:
        """`score` is about texts or, in newer families, about tokens: the architecture tells, or else its bias."""
        if "score.weight" not in tensors:
            return ()
        told, bias = " ".join(self.architectures or ()), "score.bias" in tensors
        if "TokenClassification" in told or (bias and "SequenceClassification" not in told):
            return tagged(tensors, "score")
        head = Pooled.Config(pool="last", labels=classes(tensors, "score"), bias=bias)
        return (Found(head, both("score", "heads.pooled.scores")),)
