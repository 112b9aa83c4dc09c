"""What a checkpoint that hears is measured by: error rates of transcripts, and accuracy of classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ...core.errors import InputError
from ...data.base import Examples
from ...pipelines import GenerationConfig
from ...pipelines.media.hearing import SoundClassification
from ...pipelines.media.speech import SpeechPipeline
from ..base import Notify
from ..measures import Measure, no_generation
from ..media.base import NAMED, Unreadable
from ..media.judged import Judged
from ..metrics import Metrics
from .scores import Heard, error_rates, must_have_jiwer

T = TypeVar("T")

MARKS = re.compile(r"[^\w\s']")


class Hearing(Measure):
    """How far transcripts are from what is said; also without case and marks, which corpora do not agree about."""

    columns = ("sound", "transcript")

    def __init__(self, pipeline: SpeechPipeline) -> None:
        self.pipeline = pipeline

    def evaluate(
        self, examples: Examples, config: GenerationConfig | None = None, notify: Notify | None = None
    ) -> Metrics:
        must_have_jiwer()  # before anything is decoded
        strategy = None if config is None else config.strategy
        rows, said, unreadable = _each(examples, lambda cell: self.pipeline.transcribe(cell, strategy=strategy), notify)
        cells, wanted = [cell for cell, _ in rows], [text for _, text in rows]
        plain = error_rates(list(map(_plain, said)), list(map(_plain, wanted)))
        heard = Heard.of(cells, said, wanted)
        more: Metrics = {"plain_wer": plain["wer"], "plain_cer": plain["cer"], "sounds": len(rows)}
        return heard.with_metrics({}, {**more, **unreadable.metrics()})


class Recognising(Measure):
    """How often the most probable class of a sound is the one that it is labelled with."""

    columns = ("sound", "label")

    def __init__(self, pipeline: SoundClassification) -> None:
        self.pipeline = pipeline

    def evaluate(
        self, examples: Examples, config: GenerationConfig | None = None, notify: Notify | None = None
    ) -> Metrics:
        no_generation(config, "a classifier")
        labels = self.pipeline.labels
        strange = {label for _, label in examples} - set(labels)
        if strange:
            raise InputError(
                f"{min(strange)[:40]!r} is not a class of this model, which has {', '.join(labels[:8]) or 'no names'}"
            )
        rows, found, unreadable = _each(examples, self.pipeline.classify, notify)
        wanted = np.array([labels.index(label) for _, label in rows])
        probability = np.zeros((len(rows), len(labels)))
        for row, classes in enumerate(found):
            probability[row, [labels.index(one.label) for one in classes]] = [one.probability for one in classes]
        judged = Judged.of([cell for cell, _ in rows], wanted, probability, labels)
        return judged.with_metrics({}, unreadable.metrics())


def _each(
    examples: Examples, ask: Callable[[str], T], notify: Notify | None
) -> tuple[Sequence[tuple[str, str]], list[T], Unreadable]:
    """What a model says of every sound that can be read."""
    rows, found, wrong = list[tuple[str, str]](), list[T](), list[str]()
    for number, (cell, told) in enumerate(examples, 1):
        try:
            found.append(ask(cell))
            rows.append((cell, told))
        except InputError as error:
            wrong.append(str(error))
        if notify is not None:
            notify(number, len(examples))
    unreadable = Unreadable(len(wrong), tuple(wrong[:NAMED]))
    if not rows:
        raise InputError(f"there is nothing to evaluate: {unreadable.told()}")
    return rows, found, unreadable


def _plain(text: str) -> str:
    return MARKS.sub(" ", text.lower())
