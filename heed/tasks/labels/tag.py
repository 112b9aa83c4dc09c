"""Tagging: a label for each word of a sentence; parts of speech, or parts of entities (IOB2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from ...core.config import Share, Text
from ...core.errors import ConfigError, InputError, counted
from ...data.base import Example, Examples
from ...data.conll import SENTENCE, listed
from ...parts.outputs.heads import Tagged
from ...parts.outputs.loss import NO_LABEL, Loss, cross_entropy
from ...pipelines.base import AnyModel, Padded, Pipeline
from ...pipelines.encoder import WordTagger
from ...pipelines.labels.tagging import Scheme, scheme_of
from ...pipelines.settings import GenerationConfig
from ...text.alignment import FramedWords, framed_words, joined, pieces
from ..base import Batch, Item, Notify
from ..floors import frequent_tags, windowed_tags
from ..metrics import Metrics, corpus_cross_entropy
from .base import LabelledTexts, LabelTask, fields, in_order
from .span_scores import must_have_seqeval, word_metrics

if TYPE_CHECKING:
    from ...text import Tokenizer

MANY, FEW = 1000, 10  # labels, more than which are no labels; so many may be, of however few words
AT_ONCE = 64  # sentences that are tagged between two words about progress


class Tag(LabelTask):
    """A label for each word: -log p(c | x), p = softmax( W x_i ), where i is the first token of the word.

    Labels such as B-PER, I-PER and O spell entities (IOB2), which are then measured by F1, too.
    """

    kind: Literal["tag"] = "tag"
    labels: tuple[Text, ...] | None = None  # names of the labels; None: those of the training data
    scheme: Literal["auto", "iob2", "iobes", "none"] = "auto"  # how labels spell entities; auto: by their look
    smoothing: Share = 0.0  # share of probability that all other labels get (label smoothing)

    @property
    def main(self) -> str:
        return "f1" if self.spells else "accuracy"

    @property
    def columns(self) -> tuple[str, ...]:
        return SENTENCE

    def texts(self, example: Example) -> Sequence[str]:
        return (joined(listed(example[0])).text,)

    def informed(self, examples: Examples) -> Self:
        """With the labels that occur."""
        if self.labels is not None:
            return self
        found = Counter(label for example in examples for label in listed(example[1]))
        if len(found) > min(MANY, max(FEW, found.total() // 2)):
            raise InputError(
                f"{counted(len(found), 'different label')} of {counted(found.total(), 'word')}, such as "
                f"{next(iter(found))[:60]!r}: these are words, not labels. Which column is which? Set data.columns, "
                "for example --set 'data.columns=[0, 3]'"
            )
        if len(found) < 2:
            raise InputError(f"all words have the label {next(iter(found))!r}; needed are two labels at least")
        informed = self.model_copy(update={"labels": in_order(found)})
        if informed.spells == "iob2":
            _must_begin_with_b(examples)
        return informed

    @property
    def spells(self) -> Scheme | None:
        """The scheme by which labels spell entities."""
        match self.scheme:
            case "auto":
                return scheme_of(self.labels or ())
            case "none":
                return None
            case scheme:
                return scheme

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels or ()

    def head(self) -> Tagged.Config:
        if self.labels is None:
            raise ConfigError("the names of the labels are not known yet; the training data tells them")
        return Tagged.Config(labels=len(self.labels))

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> TaggedTexts:
        known = {name: number for number, name in enumerate(self.labels or ())}
        rows = [(listed(words), listed(labels)) for words, labels in examples]
        strange = self._must_be_known([label for _, labels in rows for label in labels])
        framed = framed_words(tokenizer, [joined(words) for words, _ in rows])
        items, cut = list[Item](), 0
        for sentence, (_, labels) in zip(framed, rows, strict=True):
            wanted = iter([known.get(label, NO_LABEL) for label in labels])
            parts = list(pieces(sentence, self.longest))
            cut += len(parts) > 1
            items += [_item(piece, [next(wanted) for _ in piece.firsts]) for piece in parts]
        return TaggedTexts(items, cut, self.longest, strange).dropping(self.drop, tokenizer)

    def batch(self, items: Sequence[Item]) -> Batch:
        labels = Padded.of([labels for _, labels in items], NO_LABEL).tokens
        return Batch(Padded.of([tokens for tokens, _ in items]), labels, tokens=int((labels != NO_LABEL).sum()))

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        return cross_entropy(self.logits(model, batch), batch.labels, self.smoothing if model.training else 0.0)

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> WordTagger:
        return WordTagger(model, tokenizer, self.labels or (), longest=self.longest)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        self.no_generation(config)
        if self.spells:
            must_have_seqeval()
        rows = list(examples)
        wanted, found = [listed(labels) for _, labels in rows], list[list[str]]()
        strange = self._must_be_known([label for labels in wanted for label in labels])
        nats, count = corpus_cross_entropy(self, pipeline.model, self.corpus(examples, pipeline.tokenizer))
        for begin in range(0, len(rows), AT_ONCE):
            some = [listed(words) for words, _ in rows[begin : begin + AT_ONCE]]
            found += [tagged.labels for tagged in pipeline.tag(words=some)]
            if notify is not None:
                notify(min(begin + AT_ONCE, len(rows)), len(rows))
        unknown: Metrics = {"words with unknown labels": strange.total()} if strange else {}
        return {"loss": nats / max(count, 1), **word_metrics(wanted, found, self.spells), **unknown}

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        known = [(listed(words), listed(labels)) for words, labels in train]
        rows, wanted = zip(*((listed(words), listed(labels)) for words, labels in examples), strict=True)
        return {
            "frequent tag": word_metrics(wanted, frequent_tags(known, rows), self.spells),
            "windowed": word_metrics(wanted, windowed_tags(known, rows), self.spells),
        }

    def _must_be_known(self, labels: Sequence[str]) -> Counter[str]:
        """Labels that the model was not trained on, of which there must be few: their words count as wrong."""
        strange = Counter(label for label in labels if label not in (self.labels or ()))
        if 2 * strange.total() > len(labels):
            told = ", ".join(f"{name[:40]!r} ({count:,})" for name, count in strange.most_common(5))
            raise InputError(
                f"most words have labels that the model was not trained on: {told}; it knows "
                f"{', '.join((self.labels or ())[:20])}. Set data.columns, or train with data that has them"
            )
        return strange


class TaggedTexts(LabelledTexts):
    """Sentences in their frames, long ones in pieces; a label at the first token of each word."""

    def __init__(self, items: Sequence[Item], cut: int, longest: int, strange: Counter[str]) -> None:
        self._strange = strange
        super().__init__(items, cut, longest)

    def report(self) -> str:
        words = sum(int((labels != NO_LABEL).sum()) for _, labels in self._items) + self._strange.total()
        told = f"{counted(words, 'word')} in {counted(len(self._items), 'text')}"
        if self._cut:
            told += f", {counted(self._cut, 'sentence')} cut into pieces of {self._longest} tokens (task.longest)"
        if self._strange:
            names = ", ".join(f"{name[:20]!r}" for name in list(self._strange)[:5])
            told += (
                f", {counted(self._strange.total(), 'word')} with labels that are not in the training data ({names})"
            )
        return told


def _item(piece: FramedWords, wanted: Sequence[int]) -> Item:
    """Ids with their segments, and the labels. [T, 2], [T]"""
    labels = np.full(len(piece.framed.ids), NO_LABEL, np.int32)
    labels[piece.firsts] = wanted
    return fields(piece.framed), labels


def _must_begin_with_b(examples: Examples) -> None:
    """In IOB1 most entities begin with I-, and none of them would count."""
    begun = Counter[str]()
    for example in examples:
        before = "O"
        for label in listed(example[1]):
            if label != "O" and (label.startswith("B-") or before[2:] != label[2:]):
                begun[label[0]] += 1
            before = label
    if begun["I"] > begun["B"]:
        raise InputError(
            f"{begun['I']:,} of {begun.total():,} entities begin with I-, as in IOB1; write B- at the first word of "
            "each (IOB2), or set task.scheme=none to measure words alone"
        )
