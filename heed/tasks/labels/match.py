"""Matching: how near two texts are, learnt from scores, or from pairs that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.config import Number, Positive
from ...core.errors import InputError, counted
from ...data.base import Example, Examples
from ...parts.outputs.heads import Pool, Pooled
from ...parts.outputs.loss import NO_LABEL, Loss
from ...pipelines.base import AnyModel, Padded, Pipeline
from ...pipelines.encoder import Pooling
from ...pipelines.settings import GenerationConfig
from ...pipelines.similarity import SimilarityPipeline
from ..base import Batch, Item, Notify
from ..floors import cosine, nearest
from ..metrics import Metrics, corpus_cross_entropy
from .base import LabelledTexts, LabelTask, fields, framed_texts
from .scores import Numbers, spearman

if TYPE_CHECKING:
    from ...text import Tokenizer

How = Literal["apart", "together", "contrast"]
FINE = 1 << 20  # scores are kept as whole numbers of this, so that items are ids and nothing else
AT_ONCE = 64  # pairs that are compared between two words about progress


class Match(LabelTask):
    """How near two texts are, from pairs with a score, or from pairs that belong together.

    apart     (cos(u, v) - y)², u and v the pooled streams of the two texts (Reimers & Gurevych 2019)
    together  (w·pool(x) - y)², x the stream of both in one frame: nearer to the data, but no embedding
    contrast  -log softmax_j( cos(u_i, v_j) / τ )_i over all j of a batch, both ways (van den Oord et al. 2018)

    y is the score, from 0 for the smallest of the training data to 1 for the largest. Classes of pairs are learnt by
    `classify` with `pair`. In `contrast` the other pairs of a piece of a batch are what a text is told apart from, so
    that the loss depends on what stands together (training.accumulate, processes).
    """

    even: ClassVar[bool] = True

    kind: Literal["match"] = "match"
    how: How = "apart"  # learnt are scores of two texts apart, or together in one frame, or who belongs to whom
    low: Number | None = None  # the smallest score; None: that of the training data
    high: Number | None = None  # the largest score
    pool: Pool = "mean"  # how an embedding is made of the stream
    temperature: Positive = 0.05  # τ of `contrast`

    @property
    def main(self) -> str:
        return "accuracy" if self.how == "contrast" else "spearman"

    @property
    def columns(self) -> tuple[str, ...]:
        return ("text", "pair") if self.how == "contrast" else ("text", "pair", "score")

    def texts(self, example: Example) -> Sequence[str]:
        return example[:2]

    def informed(self, examples: Examples) -> Self:
        """With the range of the scores."""
        if self.how == "contrast" or (self.low is not None and self.high is not None):
            return self
        scores = _numbers(list(examples))
        low, high = float(scores.min()), float(scores.max())
        if low == high:
            raise InputError(f"all pairs have the score {low:g}; needed are different ones, or task.how=contrast")
        return self.model_copy(update={"low": low, "high": high})

    @property
    def scale(self) -> tuple[float, float]:
        """The smallest and the largest score."""
        return (0.0 if self.low is None else self.low, 1.0 if self.high is None else self.high)

    def head(self) -> Pooled.Config:
        return Pooled.Config(pool=self.pool, labels=1 if self.how == "together" else None)

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> LabelledTexts:
        rows = list(examples)
        one, other = ([row[side] for row in rows] for side in (0, 1))
        if self.how == "together":
            framed, cut = framed_texts(tokenizer, one, other, self.longest)
            parts: list[tuple[Numbers, ...]] = [(fields(row),) for row in framed]
        else:
            firsts, cut_first = framed_texts(tokenizer, one, None, self.longest)
            others, cut_other = framed_texts(tokenizer, other, None, self.longest)
            parts, cut = [(fields(a), fields(b)) for a, b in zip(firsts, others, strict=True)], cut_first + cut_other
        labels = [] if self.how == "contrast" else [np.array([round(FINE * y)], np.int32) for y in self._shares(rows)]
        items = [(*part, label) for part, label in zip(parts, labels, strict=True)] if labels else parts
        return LabelledTexts(items, cut, self.longest).dropping(self.drop, tokenizer)

    def batch(self, items: Sequence[Item]) -> Batch:
        sides = [Padded.of([item[side] for item in items]) for side in range(1 if self.how == "together" else 2)]
        source = sides[1] if len(sides) == 2 else None
        if self.how == "contrast":
            labels = np.arange(len(items))[:, None]
        else:
            labels = np.stack([item[-1] for item in items]).astype(np.int64)
        return Batch(sides[0], torch.from_numpy(labels), source, len(items))

    def cost(self, item: Item) -> int:
        return len(item[0]) if self.how == "together" else len(item[0]) + len(item[1])

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        real = (batch.labels != NO_LABEL)[:, 0]
        if self.how == "contrast":
            total = self._contrast(*self._embeddings(model, batch), real)
        else:
            said = self._said(model, batch)
            total = ((said - batch.labels[:, 0].to(said) / FINE).square() * real).sum()
        return Loss(total, total.detach())

    def _said(self, model: AnyModel, batch: Batch) -> Tensor:
        """Scores from 0 to 1. [B]"""
        if self.how == "together":
            return self.logits(model, batch)[:, 0]
        return F.cosine_similarity(*self._embeddings(model, batch))

    def _embeddings(self, model: AnyModel, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of both texts. [B, D], [B, D]"""
        if batch.source is None:
            raise InputError("a batch of pairs has two sides")
        other = Batch(batch.source, batch.labels)
        return self.logits(model, batch), self.logits(model, other)

    def _contrast(self, one: Tensor, other: Tensor, real: Tensor) -> Tensor:
        """Each text is to find its own partner among those of the batch, from either side."""
        near = F.normalize(one, dim=-1) @ F.normalize(other, dim=-1).mT / self.temperature
        label = torch.arange(len(near), device=near.device).masked_fill(~real, NO_LABEL)
        ways = [F.cross_entropy(side, label, ignore_index=NO_LABEL, reduction="sum") for side in (near, near.mT)]
        return (ways[0] + ways[1]) / 2

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> SimilarityPipeline:
        together = self.how == "together"
        return SimilarityPipeline(
            model, tokenizer, Pooling(self.pool), self.longest, together=together, scale=self.scale
        )

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        self.no_generation(config)
        if not isinstance(pipeline, SimilarityPipeline):
            raise InputError(f"texts are to be compared, and this cannot: it is {pipeline.what}")
        rows = list(examples)
        pairs, found = [(row[0], row[1]) for row in rows], list[float]()
        if self.how == "contrast":
            return self._found_partners(pipeline, pairs)
        for begin in range(0, len(pairs), AT_ONCE):
            found += pipeline.similarity(pairs[begin : begin + AT_ONCE])
            if notify is not None:
                notify(len(found), len(pairs))
        nats, count = corpus_cross_entropy(self, pipeline.model, self.corpus(examples, pipeline.tokenizer))
        return {"loss": nats / count, **self._scores(rows, np.array(found))}

    def _found_partners(self, pipeline: SimilarityPipeline, pairs: Sequence[tuple[str, str]]) -> Metrics:
        """How often the nearest of all second texts is the one that belongs to a first."""
        one, other = (pipeline.embed([pair[side] for pair in pairs], unit=True).double() for side in (0, 1))
        return _partners((one @ other.mT).argmax(1).numpy(force=True), [pair[1] for pair in pairs])

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        rows = list(examples)
        known = [text for example in train for text in self.texts(example)]
        ones, others = [row[0] for row in rows], [row[1] for row in rows]
        if self.how == "contrast":
            return {"cosine": _partners(nearest(known, ones, others), others)}
        low, high = self.scale
        return {"cosine": self._scores(rows, low + (high - low) * cosine(known, ones, others))}

    def _scores(self, rows: Sequence[Example], found: Numbers) -> Metrics:
        """Spearman's rank correlation; of scores of two values also how often a pair is on the right side."""
        wanted, (low, high) = _numbers(rows), self.scale
        told: Metrics = {"spearman": spearman(wanted, found), "pairs": len(rows)}
        if set(wanted.tolist()) <= {low, high}:
            middle = (low + high) / 2
            told["accuracy"] = 100 * float(((found > middle) == (wanted > middle)).mean())
        return told

    def _shares(self, rows: Sequence[Example]) -> Numbers:
        low, high = self.scale
        return (_numbers(rows) - low) / (high - low)


def _partners(places: Numbers, texts: Sequence[str]) -> Metrics:
    """How often the text at a place is the one that belongs there."""
    right = [texts[int(place)] == text for place, text in zip(places, texts, strict=True)]
    return {"accuracy": 100 * sum(right) / len(right), "pairs": len(texts)}


def _numbers(rows: Sequence[Example]) -> Numbers:
    """The scores of pairs."""
    found, strange = np.zeros(len(rows)), list[str]()
    for place, row in enumerate(rows):
        try:
            found[place] = float(row[2])
        except ValueError:
            strange.append(row[2])
    if strange or not np.isfinite(found).all():
        told = (
            f"{counted(len(strange), 'score')} that are no numbers, such as {strange[0][:60]!r}" if strange else "nan"
        )
        raise InputError(
            f"{told}; a score is a number. Which column is which? Set data.columns to those of text, pair, score, for "
            "example --set 'data.columns=[1, 2, 0]'; pairs with classes: heed train classify --set task.pair=true"
        )
    return found
