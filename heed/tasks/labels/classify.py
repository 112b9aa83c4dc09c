"""Classification: one class, or several, of a text or of a pair of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import torch

from ...core.config import Flag, Share, Text
from ...core.errors import ConfigError, InputError, counted
from ...data.base import SEVERAL, Example, Examples, several
from ...parts.outputs.heads import Pool, Pooled
from ...parts.outputs.loss import NO_LABEL, Loss, cross_entropy
from ...pipelines.base import AnyModel, Padded, Pipeline
from ...pipelines.encoder import EncoderPipeline
from ...pipelines.settings import GenerationConfig
from ..base import Batch, Item, Notify
from ..floors import linear_classes, most_frequent
from ..metrics import Metrics, corpus_cross_entropy
from .base import LabelledTexts, LabelTask, fields, framed_texts, in_order
from .scores import Numbers, several_classes, single_class

if TYPE_CHECKING:
    from ...text import Tokenizer

MANY = 1000  # classes, more than which are no classes
FEW = 5  # examples of a class, fewer than which teach nothing
UNEVEN = 0.8  # share of examples of one class, from which on accuracy says little
AT_ONCE = 64  # texts that are classified between two words about progress


class Classify(LabelTask):
    """One class of a text: -log p(c | x), p = softmax( W pool(x) ). With `several`: each class by itself, by a sigmoid.

    With `pair` a text comes with a second one (premise and hypothesis, question and answer), both in one frame.
    """

    even: ClassVar[bool] = True

    kind: Literal["classify"] = "classify"
    labels: tuple[Text, ...] | None = None  # names of the classes; None: those of the training data
    pair: Flag = False  # examples are pairs of texts: the columns text, pair, label
    several: Flag = False  # a text may have several classes, or none
    separator: Text = ","  # between the classes of a text
    pool: Pool = "mean"  # what stands for the text: the mean of its tokens, the first or last token, the maximum
    smoothing: Share = 0.0  # share of probability that all other classes get (label smoothing)

    @property
    def main(self) -> str:
        return "accuracy"

    @property
    def columns(self) -> tuple[str, ...]:
        return ("text", "pair", "label") if self.pair else ("text", "label")

    def texts(self, example: Example) -> Sequence[str]:
        return example[:-1]

    def informed(self, examples: Examples) -> Self:
        """With the classes that occur."""
        if self.labels is not None:
            return self
        found = Counter(name for example in examples for name in self._names(example[-1]))
        if not self.several and "" in found:
            raise InputError(f"{counted(found[''], 'example')} without a label; name one, or set task.several=true")
        if len(found) > min(MANY, max(2, len(examples) // 2)):
            raise InputError(
                f"{counted(len(found), 'different label')} in {counted(len(examples), 'example')}, such as "
                f"{next(iter(found))[:60]!r}: that is a text, not a class. Which column is which? Set data.columns to "
                f"those of {', '.join(self.columns)}, for example --set 'data.columns=[1, 0]'"
            )
        if len(found) < 2 and not self.several:
            raise InputError(f"all examples have the label {next(iter(found), '')!r}; needed are two classes at least")
        return self.model_copy(update={"labels": in_order(found)})

    def noticed(self, examples: Examples) -> Sequence[str]:
        """Classes that most texts have, and classes that hardly any has."""
        counts = Counter(name for example in examples for name in self._names(example[-1]))
        (most, often), told = counts.most_common(1)[0], list[str]()
        if often >= UNEVEN * len(examples) and not self.several:
            told.append(
                f"{100 * often / len(examples):.0f} % of the examples have the label {most!r}: always saying so "
                "is right as often, so look at macro F1 instead of accuracy (class imbalance)"
            )
        rare = [name for name, count in counts.items() if count < FEW]
        if rare:
            names = ", ".join(f"{name[:40]!r}" for name in rare[:5])
            told.append(f"{counted(len(rare), 'label')} with fewer than {FEW} examples, too few to learn: {names}")
        return told

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels or ()

    def head(self) -> Pooled.Config:
        if self.labels is None:
            raise ConfigError("the names of the classes are not known yet; the training data tells them")
        return Pooled.Config(pool=self.pool, labels=len(self.labels))

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> LabelledTexts:
        rows = list(examples)
        wanted = self._wanted(rows)
        pairs = [row[1] for row in rows] if self.pair else None
        framed, cut = framed_texts(tokenizer, [row[0] for row in rows], pairs, self.longest)
        items = [(fields(one), label) for one, label in zip(framed, wanted, strict=True)]
        return LabelledTexts(items, cut, self.longest).dropping(self.drop, tokenizer)

    def batch(self, items: Sequence[Item]) -> Batch:
        labels = np.stack([label for _, label in items]).astype(np.int64)  # [B, 1], or [B, classes]
        return Batch(Padded.of([tokens for tokens, _ in items]), torch.from_numpy(labels), tokens=labels.size)

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        logits, labels = self.logits(model, batch), batch.labels
        if not self.several:
            return cross_entropy(logits, labels, self.smoothing if model.training else 0.0)
        real = labels != NO_LABEL
        each = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits), reduction="none")
        total = each.masked_fill(~real, 0).sum()
        return Loss(total, total.detach())

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> EncoderPipeline:
        problem: Literal["multi_label_classification", "single_label_classification"] = (
            "multi_label_classification" if self.several else "single_label_classification"
        )
        return EncoderPipeline(model, tokenizer, self.labels or (), longest=self.longest, problem=problem)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        self.no_generation(config)
        rows, labels = list(examples), self.labels or ()
        wanted = np.stack(self._wanted(rows))
        nats, count = corpus_cross_entropy(self, pipeline.model, self.corpus(examples, pipeline.tokenizer))
        texts = [(row[0], row[1]) if self.pair else row[0] for row in rows]
        probability = np.zeros((len(rows), len(labels)))
        for begin in range(0, len(rows), AT_ONCE):
            for place, found in enumerate(pipeline.classify(texts[begin : begin + AT_ONCE]), begin):
                probability[place, [labels.index(one.label) for one in found]] = [one.probability for one in found]
            if notify is not None:
                notify(min(begin + AT_ONCE, len(rows)), len(rows))
        chosen: Numbers = probability > 0.5 if self.several else probability.argmax(1)
        return {"loss": nats / count, **self._scores(wanted, chosen)}

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        known, rows = list(train), list(examples)
        classes, wanted = (np.stack(self._wanted(some)) for some in (known, rows))
        classes = classes if self.several else classes[:, 0]
        joined = [["\n".join(self.texts(row)) for row in some] for some in (known, rows)]
        return {
            "majority": self._scores(wanted, most_frequent(classes, len(rows))),
            "linear": self._scores(wanted, linear_classes(joined[0], classes, joined[1])),
        }

    def _scores(self, wanted: Numbers, found: Numbers) -> Metrics:
        labels = self.labels or ()
        return several_classes(wanted, found, labels) if self.several else single_class(wanted[:, 0], found, labels)

    def _names(self, label: str) -> list[str]:
        """The classes that a cell names."""
        if not self.several:
            return [label.strip()]
        parts = several(label) if SEVERAL in label else label.split(self.separator)
        return [name for part in parts if (name := part.strip())]

    def _wanted(self, rows: Sequence[Example]) -> list[np.ndarray[tuple[int], np.dtype[np.int32]]]:
        """The number of the class of each example, [1], or 1 for each class that it has, [classes]."""
        known = {name: number for number, name in enumerate(self.labels or ())}
        named = [self._names(row[-1]) for row in rows]
        strange = Counter(name for names in named for name in names if name not in known)
        if strange:
            told = ", ".join(f"{name[:40]!r} ({count:,})" for name, count in strange.most_common(5))
            raise InputError(
                f"{counted(strange.total(), 'label')} that the model was not trained on: {told}; it knows "
                f"{', '.join(list(known)[:20])}. Correct them, or train with data that has them"
            )
        if not self.several:
            return [np.array([known[name]], np.int32) for (name,) in named]
        return [np.isin(np.arange(len(known)), [known[name] for name in names]).astype(np.int32) for names in named]
