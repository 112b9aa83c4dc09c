"""Language modelling: every token is predicted from those before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..core.config import Size
from ..core.errors import ConfigError, InputError, counted
from ..core.interfaces import Encodes, LanguageModel
from ..data.base import Examples
from ..parts.outputs.loss import Loss
from ..pipelines.base import AnyModel, Ids, Pipeline
from ..pipelines.settings import GenerationConfig
from ..pipelines.text import TextGeneration
from .base import Batch, Corpus, GeneratingTask, Item, Notify, TextTask, next_token_loss, proposed, some
from .metrics import Metrics, corpus_cross_entropy, perplexity

if TYPE_CHECKING:
    from ..text import Tokenizer

AT_ONCE = 1000  # texts that are encoded together


class Causal(TextTask, GeneratingTask):
    """Every token is predicted from those before it: -Σ_t log p(x_t | x_<t)."""

    kind: Literal["causal"] = "causal"
    context: Size = 256  # tokens that are predicted together

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Windows:
        return Windows(self.every(examples), tokenizer, self.context)

    def batch(self, items: Sequence[Item]) -> Batch:
        return Batch.shifted([tokens for (tokens,) in items])

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        return next_token_loss(model, batch, batch.inputs.where)

    def must_fit(self, model: AnyModel) -> None:
        if isinstance(model, Encodes) or not (isinstance(model, LanguageModel) and model.streams):
            raise ConfigError(
                f"a language model must predict the next token from those before it, {type(model).__name__} does not; "
                f"use model.kind=decoder with a mask that looks back only{proposed(model)}"
            )

    def cost(self, item: Item) -> int:
        return len(item[0]) - 1

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> TextGeneration:
        return TextGeneration(model, tokenizer, self.decode, context=self.context, framed=False)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        if config not in (None, GenerationConfig(strategy=self.decode)):
            raise InputError(
                "a language model is evaluated without generating text: leave --beam, --temperature ... out"
            )
        corpus = self.corpus(examples, pipeline.tokenizer)
        nats, tokens = corpus_cross_entropy(self, pipeline.model, corpus)
        return {
            "loss": nats / tokens,
            "perplexity": perplexity(nats, tokens),
            "bits_per_byte": nats / log(2) / corpus.bytes,
            "tokens": tokens,
            "bytes": corpus.bytes,
        }


class Windows(Corpus):
    """All texts in one row, each after an end token, cut into windows; another cut in every round."""

    def __init__(self, given: Iterable[str], tokenizer: Tokenizer, context: int) -> None:
        self.context, self.bytes, self._texts = context, 0, 0
        between, pieces = tokenizer.need("end"), list[Ids]()
        texts = list(given)
        for begin in range(0, len(texts), AT_ONCE):
            some_texts = texts[begin : begin + AT_ONCE]
            self.bytes += sum(len(text.encode()) for text in some_texts)
            pieces += [np.array([between, *ids], np.int32) for ids in tokenizer.encode_all(some_texts)]
        self.tokens: Ids = np.concatenate(pieces) if pieces else np.zeros(0, np.int32)
        self._texts = len(texts)
        some(self.once(), self.report())

    def round(self, number: int, seed: int) -> list[Item]:
        draw = np.random.default_rng((seed, number, 0))
        slack = min(self.context, max(1, len(self.tokens) - self.context))
        windows = self._cut(int(draw.integers(slack)))
        return [windows[place] for place in draw.permutation(len(windows))]

    def once(self) -> list[Item]:
        return self._cut(0)

    def report(self) -> str:
        return f"{counted(len(self.tokens), 'token')} of {counted(self._texts, 'text')} in windows of {self.context}"

    def _cut(self, first: int) -> list[Item]:
        """Windows that overlap by one token, so that every token but the first is predicted once."""
        starts = range(first, len(self.tokens) - 1, self.context)
        return [(self.tokens[start : start + self.context + 1],) for start in starts]
