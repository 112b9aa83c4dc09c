"""Rewriting: text to text in general. Summaries, corrections, paraphrases, translations with a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..core.config import Size, Text
from ..core.errors import InputError
from ..data.base import Example, Examples, several
from ..pipelines.base import AnyModel, Pipeline
from ..pipelines.generation import GenerationPipeline
from ..pipelines.settings import GenerationConfig
from ..pipelines.text import Rewriting
from .base import Item, Notify
from .floors import lead
from .metrics import Metrics, corpus_cross_entropy, perplexity
from .texts import bleu, edits, must_have_rouge, rouge
from .translate import Pairs, Translate

if TYPE_CHECKING:
    from ..text import Tokenizer


class Rewrite(Translate):
    """A target is generated from a source, by an encoder-decoder: -Σ_t log p(y_t | y_<t, x).

    A source that is longer than `longest` is cut, since the beginning of a document says most of it; a target that is
    longer than `longest_target` is left out. Examples may have several references: the first is learnt from, metrics
    take the best of them.
    """

    kind: Literal["rewrite"] = "rewrite"  # type: ignore[assignment]  # a task of its own
    prompt: Text = ""  # what every source begins with: "summarize: "
    longest_target: Size = 128  # tokens of a target, end token included

    @property
    def main(self) -> str:
        return "rouge_l"

    def texts(self, example: Example) -> Sequence[str]:
        return (self.prompt + example[0], *several(example[1]))

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Rewritings:
        return Rewritings(examples, tokenizer, self)

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> Rewriting:
        return Rewriting(model, tokenizer, self.decode, longest=self.longest, before=self.prompt)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        must_have_rouge()  # before anything is decoded
        if not isinstance(pipeline, GenerationPipeline):
            raise InputError(f"texts are to be generated, and this cannot: it is {pipeline.what}")
        corpus = self.corpus(examples, pipeline.tokenizer)
        nats, tokens = corpus_cross_entropy(self, pipeline.model, corpus)
        settled = (config or GenerationConfig(strategy=pipeline.strategy)).seeded(0)
        generated = pipeline.completions([source for source, _ in examples], settled, notify=notify)
        return {
            "loss": nats / tokens,
            "perplexity": perplexity(nats, tokens),
            **self._scores(examples, [best[0].text for best in generated]),
            "cut": corpus.cut,
            "left_out": corpus.left_out,
        }

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        sources = [source for source, _ in examples]
        return {
            "lead": self._scores(examples, [lead(source) for source in sources]),
            "copy": self._scores(examples, sources),
        }

    def _scores(self, examples: Examples, generated: Sequence[str]) -> Metrics:
        sources = [source for source, _ in examples]
        wanted = [several(target) for _, target in examples]
        return {
            **rouge(generated, wanted),
            **bleu(generated, wanted, lowercase=self.case == "ignored"),
            **edits(sources, generated, wanted),
            "pairs": len(sources),
        }


class Rewritings(Pairs):
    """Encoded pairs whose sources are cut where they are too long."""

    def __init__(self, examples: Examples, tokenizer: Tokenizer, task: Rewrite) -> None:
        self._task, self.cut = task, 0
        super().__init__(examples, tokenizer, task.longest)

    def report(self) -> str:
        cut = f", {self.cut:,} sources cut to {self._task.longest} tokens (task.longest)" if self.cut else ""
        long = f", {self.left_out:,} left out: targets longer than {self._task.longest_target} (task.longest_target)"
        return super().report().partition(",")[0] + cut + (long if self.left_out else "")

    def _encoded(self, examples: Iterable[Example]) -> list[Item]:
        task, rows = self._task, list(examples)
        xs = self._tokenizer.encode_all([task.prompt + source for source, _ in rows])
        ys = self._tokenizer.encode_all([several(target)[0] for _, target in rows])
        self.cut += sum(len(x) >= task.longest for x in xs)
        fits = [len(y) < task.longest_target for y in ys]
        self.fits += fits
        return [
            (
                np.array([*x[: task.longest - 1], self._end], np.int32),
                np.array([self._begin, *y, self._end], np.int32),
            )
            for x, y, short in zip(xs, ys, fits, strict=True)
            if short
        ]
