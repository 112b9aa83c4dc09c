"""How any checkpoint of images is measured: a classifier by its own classes, CLIP by the names that it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import HeedError, InputError
from ...data.base import Examples
from ...pipelines.base import Pipeline
from ...pipelines.media.vision import ImageClassification, ZeroShotImageClassification
from ..labels.base import in_order
from ..measures import Measure, no_generation
from .base import MOST_UNREADABLE, NAMED, Unreadable, place_of
from .judged import Judged

if TYPE_CHECKING:
    from ...pipelines.settings import GenerationConfig
    from ..base import Notify

AT_ONCE = 16  # images that are classified together


class Sorting(Measure):
    """How often the most probable class of an image is the one it is labelled with."""

    columns = ("image", "label")

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def evaluate(
        self, examples: Examples, config: GenerationConfig | None = None, notify: Notify | None = None
    ) -> Judged:
        no_generation(config, "a model of images")
        rows = list(examples)
        names = self._classes([row[1].strip() for row in rows])
        zero_shot = isinstance(self.pipeline, ZeroShotImageClassification)
        cells, wanted, found, wrong = list[str](), list[int](), list[list[float]](), list[str]()
        for number, (cell, label) in enumerate(rows, 1):
            try:
                told = self.pipeline.classify([place_of(cell)], names if zero_shot else ())[0]
            except HeedError as error:
                wrong.append(str(error))
                continue
            chances = {one.label: one.probability for one in told}
            cells.append(cell)
            wanted.append(self._class(label.strip(), names))
            found.append([chances[name] for name in names])
            if notify is not None and (number % AT_ONCE == 0 or number == len(rows)):
                notify(number, len(rows))
        unreadable = Unreadable(len(wrong), tuple(wrong[:NAMED]))
        if len(wrong) > MOST_UNREADABLE * len(rows):
            raise InputError(unreadable.told())
        judged = Judged.of(cells, np.array(wanted), np.array(found), names)
        return judged.with_metrics({}, unreadable.metrics())

    def _classes(self, labels: list[str]) -> tuple[str, ...]:
        """Those of a classifier; of CLIP those of the data."""
        if isinstance(self.pipeline, ZeroShotImageClassification):
            return in_order(labels)
        return self.pipeline.labels if isinstance(self.pipeline, ImageClassification) else ()

    @staticmethod
    def _class(label: str, names: tuple[str, ...]) -> int:
        """By its name or, as data often has it, by its number."""
        if label in names:
            return names.index(label)
        if label.isdecimal() and int(label) < len(names):
            return int(label)
        raise InputError(f"{label[:40]!r} is not a class of this model, which has {', '.join(names[:8])}")
