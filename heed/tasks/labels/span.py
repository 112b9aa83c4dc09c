"""Extractive question answering: where in a text the answer to a question begins, and where it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import torch

from ...core.config import Flag, Size
from ...core.errors import counted
from ...data.base import Example, Examples
from ...data.questions import QUESTION, Wanted, answers_in
from ...parts.outputs.heads import Spans
from ...parts.outputs.loss import Loss, cross_entropy
from ...pipelines.base import AnyModel, Padded, Pipeline
from ...pipelines.encoder import EncoderPipeline
from ...pipelines.labels.answering import Reading
from ...pipelines.settings import GenerationConfig
from ...text.alignment import Asking, Span, covering, windows
from ..base import Batch, Item, Notify
from ..floors import named_in, nearest_sentences
from ..metrics import Metrics, corpus_cross_entropy
from .base import LabelledTexts, LabelTask, fields
from .span_scores import answer_metrics

if TYPE_CHECKING:
    from ...text import Tokenizer

AT_ONCE = 16  # questions that are answered between two words about progress
NOWHERE = (0, 0)  # where an answer begins and ends that is not in a window: at its first token


class SpanTask(LabelTask):
    """The answer to a question is a part of a text: -½ log p(i) -½ log q(j), the softmax of W x over all tokens.

    Question and context stand in one frame. A long context falls into windows that overlap; in those without the
    answer, and where there is none at all (SQuAD 2), the first token is to be found.
    """

    even: ClassVar[bool] = True

    kind: Literal["span"] = "span"
    longest: Size = 384  # tokens of a window, question and frame included
    stride: Size = 128  # tokens of the context that two windows share
    question: Size = 64  # tokens of a question; longer ones are cut, and counted
    limit: Size = 30  # tokens of an answer, at most
    no_answer: Flag | None = None  # whether a question may have no answer; None: if one of the training data has none

    @property
    def main(self) -> str:
        return "f1"

    @property
    def columns(self) -> tuple[str, ...]:
        return QUESTION

    def texts(self, example: Example) -> Sequence[str]:
        return example[:-1]

    def informed(self, examples: Examples) -> Self:
        """With whether all questions have answers."""
        if self.no_answer is not None:
            return self
        return self.model_copy(update={"no_answer": any(not answers_in(example[-1]) for example in examples)})

    def head(self) -> Spans.Config:
        return Spans.Config()

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> AskedTexts:
        rows = list(examples)
        aligned = tokenizer.aligned_all([row[0] for row in rows], [row[1] for row in rows])
        items, notes = list[Item](), Counter[str]()
        for pair, (_, context, cell) in zip(aligned, rows, strict=True):
            asking = windows(pair, self.longest, self.stride, self.question)
            notes[CUT] += asking.cut
            answers = answers_in(cell)
            place, told = _found(context, answers)
            notes[MOVED] += not told
            if answers and place is None:
                notes[ABSENT] += 1
                continue
            notes[NONE] += not answers
            tokens = None if place is None else covering(asking.spans, *place)
            notes[INSIDE] += place is not None and _held(asking.spans, tokens) != place
            labelled = list(_items(asking, tokens))
            notes[APART] += tokens is not None and all(tuple(label) == NOWHERE for _, label in labelled)
            items += labelled
        return AskedTexts(items, len(rows), notes).dropping(self.drop, tokenizer)

    def batch(self, items: Sequence[Item]) -> Batch:
        labels = np.stack([label for _, label in items]).astype(np.int64)  # [B, 2]
        return Batch(Padded.of([tokens for tokens, _ in items]), torch.from_numpy(labels), tokens=labels.size)

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        """Over the tokens that are there: padding cannot be an answer."""
        logits = self.logits(model, batch).masked_fill(~batch.inputs.where.real[..., None], float("-inf"))  # [B, T, 2]
        return cross_entropy(logits.mT, batch.labels)

    @property
    def reading(self) -> Reading:
        return Reading(self.longest, self.stride, self.question, self.limit, bool(self.no_answer))

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> EncoderPipeline:
        return EncoderPipeline(model, tokenizer, longest=self.longest, reading=self.reading)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        self.no_generation(config)
        rows, found = list(examples), list[str]()
        nats, count = corpus_cross_entropy(self, pipeline.model, self.corpus(examples, pipeline.tokenizer))
        for begin in range(0, len(rows), AT_ONCE):
            some = rows[begin : begin + AT_ONCE]
            found += [one.text for one in pipeline.answer([row[0] for row in some], [row[1] for row in some])]
            if notify is not None:
                notify(begin + len(some), len(rows))
        return {"loss": nats / count, **answer_metrics(found, _references(rows))}

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        rows = list(examples)
        near = nearest_sentences([row[0] for row in rows], [row[1] for row in rows])
        pairs = list(zip((row[0] for row in rows), near, strict=True))
        answers = {"sentence": near, "name or number": [named_in(sentence, question) for question, sentence in pairs]}
        if self.no_answer:
            answers["no answer"] = [""] * len(rows)
        return {name: answer_metrics(found, _references(rows)) for name, found in answers.items()}


CUT = "long question cut to task.question tokens"
MOVED = "answer that stands elsewhere than is said, taken where it is nearest to that"
ABSENT = "answer that is not in its context, left out"
NONE = "question without an answer"
INSIDE = "answer that begins or ends within a token"
APART = "answer that no window holds as a whole"


class AskedTexts(LabelledTexts):
    """Windows, each with the first and the last token of the answer."""

    def __init__(self, items: Sequence[Item], questions: int, notes: Counter[str]) -> None:
        self._questions, self._notes = questions, notes
        super().__init__(items)

    def report(self) -> str:
        told = f"{counted(self._questions, 'question')} in {counted(len(self._items), 'window')}"
        return told + "".join(f"; {count:,} × {what}" for what, count in self._notes.items() if count)


def _references(rows: Sequence[Example]) -> list[list[str]]:
    """The answers of each question that count as right."""
    return [[one.text for one in answers_in(row[-1])] for row in rows]


def _found(context: str, answers: Sequence[Wanted]) -> tuple[Span | None, bool]:
    """Where the first answer that is in the context stands, and whether that is where it is said to, if it is said.

    Where nothing is said, its first place is taken.
    """
    for text, start in answers:
        begin = _nearest(context, text, start or 0)
        if begin is not None:
            return (begin, begin + len(text)), start in (None, begin)
    return None, True


def _nearest(context: str, text: str, start: int) -> int | None:
    return min(_occurrences(context, text), key=lambda place: abs(place - start), default=None)


def _occurrences(context: str, text: str) -> Iterator[int]:
    place = context.find(text)
    while place >= 0:
        yield place
        place = context.find(text, place + 1)


def _held(spans: Sequence[Span], tokens: Span | None) -> Span | None:
    """The characters of some tokens in a row."""
    return None if tokens is None else (spans[tokens[0]][0], spans[tokens[1]][1])


def _items(asking: Asking, tokens: Span | None) -> Iterator[Item]:
    for window in asking.windows:
        label = NOWHERE
        if tokens is not None and window.begin <= tokens[0] and tokens[1] < window.begin + window.size:
            label = (tokens[0] - window.begin + window.first, tokens[1] - window.begin + window.first)
        yield fields(window.framed), np.array(label, np.int32)
