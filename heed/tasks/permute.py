"""Permutation language modelling: tokens are predicted in a random order, from whatever was revealed before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..core.config import Flag, Size
from ..core.contract import Where
from ..core.errors import ConfigError
from ..core.interfaces import LanguageModel, Permutes
from ..data.base import Examples
from ..parts.outputs.loss import NO_LABEL, Loss, headed_cross_entropy
from ..pipelines.base import AnyModel, Ids, Padded, Pipeline
from ..pipelines.settings import GenerationConfig
from ..text import Tokenizer
from .base import Batch, Item, Notify, proposed
from .causal import Causal, Windows
from .metrics import Metrics, corpus_cross_entropy, perplexity


class Permute(Causal):
    """A random order of the tokens, of which the last are predicted: -Σ_{t>c} log p( x_{z_t} | x_{z_1} ... x_{z_t-1} ).

    Yang et al. 2019, sec. 2.3. Every window of every round has an order z of its own; one of `share` tokens is
    predicted (the paper's K), so that enough is known of each. A token sees what is earlier in that order, wherever it
    stands in the text. A model that has learnt this can be asked in any order; it generates from left to right.
    """

    kind: Literal["permute"] = "permute"  # type: ignore[assignment]  # a task of its own
    share: Size = 6  # one of so many tokens is predicted
    mutual: Flag = False  # tokens that are not predicted all see one another, as in the authors' code

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Orders:
        return Orders(self.every(examples), tokenizer, self.context)

    def batch(self, items: Sequence[Item]) -> Batch:
        """Tokens with the order of their revelation; a token that is predicted is its own label."""
        ranks = [self._ranks(order) for _, order in items]
        tokens, known = Padded.of([row for row, _ in items]), [self.known(len(order)) for _, order in items]
        width = tokens.tokens.shape[1]
        order, labels = np.full((len(items), width), -1), np.full((len(items), width), NO_LABEL)
        for row, (ids, drawn) in enumerate(items):
            order[row, : len(ids)] = ranks[row]
            labels[row, : len(ids)] = np.where(drawn >= known[row], ids, NO_LABEL)
        where = Where(torch.from_numpy(order), tokens.where.position.contiguous())
        count = sum(len(ids) - few for (ids, _), few in zip(items, known, strict=True))
        return Batch(Padded(tokens.tokens, where), torch.from_numpy(labels), None, count)

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        if not isinstance(model, Permutes):
            raise self._misfit(model)
        asked, labels = targets(batch)
        stream, head = model.asked(batch.inputs.tokens, batch.inputs.where, asked)
        return headed_cross_entropy(stream, head, labels)

    def must_fit(self, model: AnyModel) -> None:
        if not (isinstance(model, Permutes) and isinstance(model, LanguageModel) and model.streams):
            raise self._misfit(model)

    def cost(self, item: Item) -> int:
        return len(item[0])

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        """`loss` and `perplexity` of what is predicted in random orders; `bits_per_byte` of reading, token by token."""
        nats, tokens = corpus_cross_entropy(self, pipeline.model, self.corpus(examples, pipeline.tokenizer))
        reading = Causal(of=self.of, context=self.context, decode=self.decode)
        read = reading.evaluate(pipeline, examples, config, notify)
        mean = {"loss": nats / tokens, "perplexity": perplexity(nats, tokens), "tokens": tokens}
        return {**mean, **{name: read[name] for name in ("bits_per_byte", "bytes")}, "reading_loss": read["loss"]}

    def known(self, length: int) -> int:
        """How many of so many tokens are given rather than predicted: all but one in `share`, one at least."""
        return max(1, length - max(1, length // self.share))

    def _ranks(self, order: Ids) -> Ids:
        """The order as it is revealed: given tokens at once, if they are `mutual`."""
        first = self.known(len(order)) - 1
        return np.maximum(order - first, 0) if self.mutual else order

    def _misfit(self, model: AnyModel) -> ConfigError:
        return ConfigError(
            f"tokens are to be predicted in any order, which {type(model).__name__} cannot; use model.kind=xlnet"
            + proposed(model)
        )


def targets(batch: Batch) -> tuple[Where, Tensor]:
    """Where something is to be predicted, and what: the columns with labels, side by side. [B, M]"""
    labels, where = batch.labels, batch.inputs.where
    wanted = labels != NO_LABEL
    count = max(1, int(wanted.sum(1).max()))
    column = (~wanted).byte().argsort(dim=1, stable=True)[:, :count]
    real = wanted.gather(1, column)
    order = where.order.gather(1, column).masked_fill(~real, -1)
    return Where(order, where.position.gather(1, column)), labels.gather(1, column)


class Orders(Windows):
    """Windows of texts, each with a random order of its tokens; other ones in every round."""

    def round(self, number: int, seed: int) -> list[Item]:
        return _ordered(super().round(number, seed), np.random.default_rng((seed, number, 2)))

    def once(self) -> list[Item]:
        return _ordered(super().once(), np.random.default_rng(0))


def _ordered(items: list[Item], draw: np.random.Generator) -> list[Item]:
    """Each with the rank of every token in an order that is drawn for it."""
    return [(tokens, draw.permutation(len(tokens)).astype(np.int32)) for (tokens,) in items]
