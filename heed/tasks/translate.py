"""Sequence to sequence (translation): a target is generated from a source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..core.config import Share, Size
from ..core.errors import ConfigError, InputError, counted
from ..core.interfaces import Encodes, LanguageModel
from ..data.base import Example, Examples
from ..parts.outputs.loss import Loss
from ..pipelines.base import AnyModel, Padded, Pipeline
from ..pipelines.generation import GenerationPipeline
from ..pipelines.settings import GenerationConfig
from ..pipelines.text import Text2TextGeneration, encoded
from .base import Batch, Corpus, GeneratingTask, Item, Notify, next_token_loss, proposed, some
from .metrics import Metrics, agreement, corpus_cross_entropy, must_have_sacrebleu, perplexity

if TYPE_CHECKING:
    from ..text import Tokenizer

ROUND = 8192  # examples of an endless source that are encoded and sorted together


class Translate(GeneratingTask):
    """A target is predicted from a source: -Σ_t log p(y_t | y_<t, x), labels smoothed (Vaswani et al. 2017)."""

    kind: Literal["translate"] = "translate"
    smoothing: Share = 0.1  # share of probability that all other labels get (label smoothing)
    case: Literal["kept", "ignored"] = "kept"  # whether metrics distinguish upper and lower case
    longest: Size = 256  # tokens of a source or target, end token included; longer pairs are left out and counted

    @property
    def columns(self) -> tuple[str, ...]:
        return ("source", "target")

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Pairs:
        return Pairs(examples, tokenizer, self.longest)

    def batch(self, items: Sequence[Item]) -> Batch:
        return Batch.shifted([target for _, target in items], Padded.of([source for source, _ in items]))

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        where = batch.inputs.where.give(encoder_output=encoded(model, batch.source))
        return next_token_loss(model, batch, where, self.smoothing if model.training else 0.0)

    def must_fit(self, model: AnyModel) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, LanguageModel) and model.streams):
            raise ConfigError(
                f"to translate, a model must encode a source, then decode looking back only; {type(model).__name__} "
                f"does not: use model.kind=seq2seq or model.kind=transformer{proposed(model)}"
            )

    def cost(self, item: Item) -> int:
        source, target = item
        return max(len(source), len(target) - 1)

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> Text2TextGeneration:
        return Text2TextGeneration(model, tokenizer, self.decode, longest=self.longest)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        must_have_sacrebleu()  # before anything is decoded
        if not isinstance(pipeline, GenerationPipeline):
            raise InputError(f"translations are generated, and this cannot: it is {pipeline.what}")
        corpus = self.corpus(examples, pipeline.tokenizer)
        nats, tokens = corpus_cross_entropy(self, pipeline.model, corpus)
        pairs = [pair for pair, fits in zip(examples, corpus.fits, strict=True) if fits]
        settled = (config or GenerationConfig(strategy=pipeline.strategy)).seeded(0)  # metrics are the same each time
        generated = pipeline.completions([source for source, _ in pairs], settled, notify=notify)
        return {
            "loss": nats / tokens,
            "perplexity": perplexity(nats, tokens),
            **agreement([best[0].text for best in generated], [target for _, target in pairs], self.case),
            "left_out": corpus.left_out,
        }


class Pairs(Corpus):
    """Encoded pairs: a source with its end token, a target between begin and end."""

    def __init__(self, examples: Examples, tokenizer: Tokenizer, longest: int) -> None:
        self._examples, self._tokenizer, self._longest = examples, tokenizer, longest
        self.endless = examples.endless
        self._begin, self._end = tokenizer.need("begin"), tokenizer.need("end")
        self.fits: list[bool] = []  # whether an example is short enough, in their order
        self._items = [] if examples.endless else some(self._encoded(examples), self.report())

    def round(self, number: int, seed: int) -> list[Item]:
        if self.endless:
            size = min(ROUND, len(self._examples))
            some_of_them = (self._examples[index] for index in range(number * size, (number + 1) * size))
            return some(self._encoded(some_of_them), self.report())
        order = np.random.default_rng((seed, number, 0)).permutation(len(self._items))
        return [self._items[place] for place in order]

    def once(self) -> list[Item]:
        return self._encoded(self._examples) if self.endless else self._items

    def report(self) -> str:
        kept = "pairs without end" if self.endless else counted(len(self._examples) - self.left_out, "pair")
        too_long = f", {self.left_out:,} left out: longer than {self._longest} tokens (task.longest)"
        return kept + (too_long if self.left_out else "")

    def _encoded(self, examples: Iterable[Example]) -> list[Item]:
        sources, targets = zip(*examples, strict=True) if (examples := list(examples)) else ((), ())
        xs, ys = self._tokenizer.encode_all(sources), self._tokenizer.encode_all(targets)
        fits = [max(len(x), len(y)) < self._longest for x, y in zip(xs, ys, strict=True)]
        self.fits += fits
        return [
            (np.array([*x, self._end], np.int32), np.array([self._begin, *y, self._end], np.int32))
            for x, y, short in zip(xs, ys, fits, strict=True)
            if short
        ]

    @property
    def left_out(self) -> int:
        """Pairs that are too long."""
        return self.fits.count(False)
