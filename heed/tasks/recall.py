"""Recall: an answer is predicted after a prompt, and nothing else is: what synthetic probes of memory ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from .. import engine
from ..core.errors import counted
from ..data.base import Examples
from ..parts.outputs.loss import NO_LABEL
from ..pipelines.base import AnyModel, Padded, Pipeline
from ..pipelines.settings import GenerationConfig
from ..pipelines.text import TextGeneration
from .base import Batch, Corpus, Item, Notify, some
from .causal import Causal
from .feed import bucketed
from .metrics import BUDGET, Metrics

if TYPE_CHECKING:
    from ..text import Tokenizer

ROUND = 8192  # examples of an endless source that are encoded and sorted together


class Recall(Causal):
    """The tokens of an answer are predicted after a prompt: -Σ_t log p(y_t | x, y_<t); the prompt costs nothing.

    The data is made on the spot (data.kind=probes: recall, copy, reverse, induction) or comes from files with a prompt
    and an answer. `accuracy` counts tokens of answers, each predicted after the right ones; `exact` whole answers.
    """

    kind: Literal["recall"] = "recall"  # type: ignore[assignment]  # a task of its own

    @property
    def main(self) -> str:
        return "accuracy"

    @property
    def columns(self) -> tuple[str, ...]:
        return ("prompt", "answer")

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Prompts:  # type: ignore[override]
        return Prompts(examples, tokenizer)

    def batch(self, items: Sequence[Item]) -> Batch:
        rows = [np.concatenate(item) for item in items]
        labels = [row[1:].copy() for row in rows]
        for label, (prompt, _) in zip(labels, items, strict=True):
            label[: len(prompt) - 1] = NO_LABEL
        count = sum(len(answer) for _, answer in items)
        return Batch(Padded.of([row[:-1] for row in rows]), Padded.of(labels, NO_LABEL).tokens, tokens=count)

    def cost(self, item: Item) -> int:
        return len(item[0]) + len(item[1]) - 1

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> TextGeneration:
        return TextGeneration(model, tokenizer, self.decode, context=self.context, framed=False)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        model, nats, right, exact = engine.compile(pipeline.model), 0.0, 0, 0
        items = self.corpus(examples, pipeline.tokenizer).once()
        tokens = sum(len(answer) for _, answer in items)
        with torch.no_grad():
            for part in bucketed(items, self.cost, BUDGET):
                batch = self.batch(part).to(pipeline.device)
                nats += float(self.loss(model, batch).nats)
                logits = model(batch.inputs.tokens, batch.inputs.where)[0]
                asked = batch.labels != NO_LABEL
                same = (logits.argmax(-1) == batch.labels) | ~asked
                right += int((same & asked).sum())
                exact += int(same.all(1).sum())
        return {
            "loss": nats / tokens,
            "accuracy": 100 * right / tokens,
            "exact": 100 * exact / len(items),
            "examples": len(items),
        }


class Prompts(Corpus):
    """Prompts after a begin token, and answers."""

    def __init__(self, examples: Examples, tokenizer: Tokenizer) -> None:
        self._examples, self._tokenizer, self.endless = examples, tokenizer, examples.endless
        self._begin = tokenizer.need("begin")
        self._items = [] if self.endless else some(self._encoded(range(len(examples))), self.report())

    def round(self, number: int, seed: int) -> list[Item]:
        if self.endless:
            size = min(ROUND, len(self._examples))
            return self._encoded(range(number * size, (number + 1) * size))
        order = np.random.default_rng((seed, number, 0)).permutation(len(self._items))
        return [self._items[place] for place in order]

    def once(self) -> list[Item]:
        return self._items or self._encoded(range(len(self._examples)))

    def report(self) -> str:
        return "prompts without end" if self.endless else counted(len(self._examples), "prompt")

    def _encoded(self, numbers: range) -> list[Item]:
        prompts, answers = zip(*(self._examples[number] for number in numbers), strict=True)
        xs, ys = self._tokenizer.encode_all(prompts), self._tokenizer.encode_all(answers)
        return [
            (np.array([self._begin, *x], np.int32), np.array(y, np.int32)) for x, y in zip(xs, ys, strict=True) if y
        ]
