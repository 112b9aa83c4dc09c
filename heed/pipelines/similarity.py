"""How near two texts are: by the cosine of their embeddings, or by a head that reads both in one frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.errors import InputError
from ..text import Tokenizer
from .base import AnyModel
from .encoder import EncoderPipeline, Pooling
from .results import Response
from .verbs import Many

SPLIT = "\t"  # between the two texts of a line


class SimilarityPipeline(EncoderPipeline):
    """An encoder that compares texts; what it says lies between the smallest and the largest score it learnt from."""

    what = "an encoder that compares texts"

    def __init__(
        self,
        model: AnyModel,
        tokenizer: Tokenizer,
        pooling: Pooling,
        longest: int | None = None,
        *,
        together: bool = False,
        scale: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        super().__init__(model, tokenizer, ("similarity",), pooling, longest, "regression")
        self.together, self.scale = together, scale

    @property
    def can(self) -> tuple[str, ...]:
        return ("similarity", *super().can)

    def similarity(self, pairs: tuple[str, str] | Many[tuple[str, str]]) -> Any:  # overloads of `Verbs` tell what
        """The score of a pair of texts, or of each of several."""
        one = isinstance(pairs, tuple) and len(pairs) == 2 and all(isinstance(text, str) for text in pairs)
        given: Sequence[Any] = [pairs] if one else list(pairs)
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
            raise InputError("a pair of texts, or a list of pairs, is needed: similarity((text, other))")
        found = self._shares(given)
        low, high = self.scale
        scores = [low + (high - low) * share for share in found]
        return scores[0] if one else scores

    def respond(self, text: str) -> Response:
        """A line with a tab is a pair; any other is embedded."""
        if SPLIT not in text:
            return super().respond(text)
        one, _, other = text.partition(SPLIT)
        score = self.similarity((one, other))
        return Response(f"{score:.4f}", {"similarity": score})

    def _shares(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Scores from 0 to 1, as they are learnt."""
        if not pairs:
            return []
        if self.together:
            return [found[0].probability for found in self.classify(list(pairs))]
        one, other = (self.embed([pair[side] for pair in pairs], unit=True) for side in (0, 1))
        return torch.einsum("bd,bd->b", one.double(), other.double()).tolist()
