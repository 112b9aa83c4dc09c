"""Classification of files: one class of each image or sound, whatever makes numbers of it."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from ... import engine
from ...core.config import Share, Text
from ...core.errors import ConfigError, InputError, counted
from ...data.base import Example, Examples
from ...parts.outputs.heads import Pool, Pooled
from ...parts.outputs.loss import NO_LABEL, Loss, cross_entropy
from ...pipelines.base import AnyModel, Padded, Pipeline
from ...pipelines.settings import GenerationConfig
from ..base import Batch, Item, Notify
from ..labels.base import LabelTask, in_order
from ..labels.classify import FEW, MANY, UNEVEN
from .base import Loaded, MediaCorpus, MediaTask, balance
from .judged import Judged

if TYPE_CHECKING:
    from ...text import Tokenizer

AT_ONCE = 64  # files that are classified together


class ClassesTask(MediaTask):
    """One class of a file: -log p(c | x), p = softmax( W pool(x) ), x the stream that a model makes of it.

    Mixed examples count by their shares: -Σ_k λ_k log p(c_k | x).
    """

    labels: tuple[Text, ...] | None = None  # names of the classes; None: those of the training data
    pool: Pool = "mean"  # what stands for the file, unless the model's head says it: the mean of its stream, the first
    smoothing: Share = 0.0  # share of probability that all other classes get (label smoothing)

    @abstractmethod
    def side_by_side(self, loaded: Sequence[Loaded]) -> Padded:
        """The numbers of several files."""

    @abstractmethod
    def logits(self, model: AnyModel, batch: Batch) -> Tensor:
        """The logit of each class. [B, classes]"""

    @property
    def main(self) -> str:
        return "accuracy"

    def texts(self, example: Example) -> Sequence[str]:
        return ()

    def informed(self, examples: Examples) -> Self:
        if self.labels is not None:
            return self
        found = Counter(example[1].strip() for example in examples)
        if len(found) > min(MANY, max(2, len(examples) // 2)):
            raise InputError(
                f"{counted(len(found), 'different label')} in {counted(len(examples), self.unit)}, such as "
                f"{next(iter(found))[:60]!r}: those are no classes{self.otherwise}"
            )
        if len(found) < 2:
            raise InputError(
                f"all {self.unit}s have the class {next(iter(found), '')!r}; needed are two classes at least, a folder "
                "for each: files/one, files/other"
            )
        return self.model_copy(update={"labels": in_order(found)})

    @property
    def otherwise(self) -> str:
        """How texts are learnt that are no classes."""
        return ""

    def noticed(self, examples: Examples) -> Sequence[str]:
        names = [example[1].strip() for example in examples]
        counts, told = Counter(names), [f"classes: {balance(names)}"]
        most, often = counts.most_common(1)[0]
        if often >= UNEVEN * len(names):
            told.append(
                f"{100 * often / len(names):.0f} % of the {self.unit}s are {most!r}: always saying so is right as "
                "often, so look at macro F1 instead of accuracy (class imbalance)"
            )
        rare = [f"{name[:40]!r}" for name, count in counts.items() if count < FEW]
        if rare:
            told.append(
                f"{counted(len(rare), 'class')} with fewer than {FEW} {self.unit}s, too few to learn: "
                f"{', '.join(rare[:5])}"
            )
        return told

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels or ()

    def head(self) -> Pooled.Config:
        if self.labels is None:
            raise ConfigError("the names of the classes are not known yet; the training data tells them")
        return Pooled.Config(pool=self.pool, labels=len(self.labels))

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> MediaCorpus:
        return self.found(examples)

    def found(self, examples: Examples) -> MediaCorpus:
        """The files that can be decoded, each with its class."""
        numbers = {name: np.array([number], np.int32) for number, name in enumerate(self.classes)}
        strange = Counter(row[1].strip() for row in examples if row[1].strip() not in numbers)
        if strange:
            told = ", ".join(f"{name[:40]!r} ({count:,})" for name, count in strange.most_common(5))
            raise InputError(
                f"{counted(strange.total(), self.unit)} of classes that the model was not trained on: {told}; it knows "
                f"{', '.join(self.classes[:20])}. Correct them, or train with data that has them"
            )
        return self.seen(examples, lambda row: numbers[row[1].strip()])

    def batch(self, items: Sequence[Item]) -> Batch:
        loaded = self.loaded(items)
        labels = [np.concatenate([one.label, one.label if one.other is None else one.other]) for one in loaded]
        shares = [[one.share, 1 - one.share] for one in loaded]
        return Batch(
            self.side_by_side(loaded),
            torch.from_numpy(np.stack(labels).astype(np.int64)),  # [B, 2]: of what was mixed, twice the same if nothing
            tokens=len(loaded),
            shares=torch.tensor(shares),
        )

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        logits, smoothing = self.logits(model, batch), self.smoothing if model.training else 0.0
        first = cross_entropy(logits, batch.labels[:, 0], smoothing)
        if batch.shares is None or bool((batch.shares[:, 0] == 1).all()):
            return first
        return self._mixed(logits, batch.labels, batch.shares, smoothing)

    @staticmethod
    def _mixed(logits: Tensor, labels: Tensor, shares: Tensor, smoothing: float) -> Loss:
        """-Σ_k λ_k log p(c_k | x), and what of it is plain cross-entropy."""
        log = logits.log_softmax(-1, dtype=torch.float32)
        real = labels[:, :1] != NO_LABEL
        each = -(log.gather(1, labels.clamp(min=0)) * shares).sum(1, keepdim=True)
        nats = (each * real).sum()
        spread = -(log.mean(-1, keepdim=True) * real).sum()
        return Loss((1 - smoothing) * nats + smoothing * spread, nats.detach())

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Judged:
        LabelTask.no_generation(config)
        corpus, model = self.found(examples), engine.compile(pipeline.model)
        items, nats, logits = corpus.once(), 0.0, list[Tensor]()
        with torch.no_grad():
            for begin in range(0, len(items), AT_ONCE):
                batch = self.batch([self.fetch(item) for item in items[begin : begin + AT_ONCE]]).to(
                    model.device or torch.device("cpu")
                )
                logits.append(self.logits(model, batch).float().cpu())
                nats += float(cross_entropy(logits[-1], batch.labels[:, 0].cpu()).nats)
                if notify is not None:
                    notify(min(begin + AT_ONCE, len(items)), len(items))
        wanted = np.array([int(item.label[0]) for item in corpus.samples])
        cells = [sample.cell for sample in corpus.samples]
        judged = Judged.of(cells, wanted, torch.cat(logits).softmax(-1).numpy(), self.classes)
        return judged.with_metrics({"loss": nats / len(items)}, corpus.unreadable.metrics())
