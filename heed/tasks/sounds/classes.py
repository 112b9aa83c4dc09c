"""Classification of sounds: one class of a whole clip, if what is told of clips are classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from torch import Tensor

from ...core.errors import ConfigError, InputError, counted
from ...core.interfaces import Asked, Encodes
from ...media.sounds import LogMel, read
from ...pipelines.base import AnyModel, Padded
from ...pipelines.media.hearing import SoundClassification
from ..base import Batch
from ..floors import linear_numbers, most_frequent
from ..labels.classify import MANY
from ..labels.scores import Numbers, single_class
from ..media.base import Frames, Loaded
from ..media.classes import ClassesTask
from ..metrics import Metrics
from .base import SoundTask
from .ctc import CTC

if TYPE_CHECKING:
    from ...data.base import Examples
    from ...text import Tokenizer


TIMES = 3  # sounds of a class, on average, at least


class Sounds(SoundTask, ClassesTask):
    """One class of a sound: -log p(c | x), p = softmax( W pool(x) ), x the stream of its frames.

    The data decides: names that come again and again are classes. Texts that do not are what is said, and the task
    becomes `ctc`, which learns to write them.
    """

    kind: Literal["sounds"] = "sounds"

    @property
    def told(self) -> str:
        return "heard"

    def informed(self, examples: Examples) -> Self:
        names = {example[1].strip() for example in examples}
        if self.labels is not None or (len(names) <= MANY and TIMES * len(names) <= len(examples)):
            silent = sum(not example[1].strip() for example in examples)
            if silent:
                raise InputError(f"{counted(silent, 'sound')} without a label; name one, or leave them out")
            return super().informed(examples)
        given: dict[str, Any] = {name: getattr(self, name) for name in SoundTask.model_fields}
        spoken: Any = CTC(**{**given, "column": self.column or self.told})
        return cast(Self, spoken)  # what learns from here on

    @property
    def otherwise(self) -> str:
        return ". What is said in sounds is learnt by task.kind=ctc or transcribe"

    def must_fit(self, model: AnyModel) -> None:
        self.must_hear(model)
        if not isinstance(model, Asked) or "pooled" not in model.heads:
            raise ConfigError(
                f"classes are told by a head that pools frames, which {type(model).__name__} has not; use "
                "model.kind=audio or wav2vec2"
            )

    def side_by_side(self, loaded: Sequence[Loaded]) -> Padded:
        return Frames.of_sounds([one.numbers for one in loaded])

    def logits(self, model: AnyModel, batch: Batch) -> Tensor:
        if not (isinstance(model, Encodes) and isinstance(model, Asked)):
            raise ConfigError(f"{type(model).__name__} hears no sounds")
        seen = model.encode(batch.inputs.tokens, batch.inputs.where)
        logits: Tensor = model.heads["pooled"](seen.parts[0], seen)
        return logits

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> SoundClassification:
        return SoundClassification(model, self.features, self.classes, "single_label_classification", self.longest)

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        (known, classes), (asked, wanted) = (self._statistics(some) for some in (train, examples))
        found = {"majority": most_frequent(classes, len(wanted)), "linear": linear_numbers(known, classes, asked)}
        return {name: single_class(wanted, one, self.classes) for name, one in found.items()}

    def _statistics(self, examples: Examples) -> tuple[Numbers, Numbers]:
        """Mean and spread of each band of the log-mel spectrogram of a sound, and its length; its class."""
        samples = self.found(examples).samples
        features = self.features if isinstance(self.features, LogMel) else LogMel(rate=self.features.rate)
        rows = []
        for sample in samples:
            frames = features(read(sample.cell, features.rate, self.longest)).numpy()
            rows.append(np.concatenate([frames.mean(0), frames.std(0), [np.log(len(frames))]]))
        return np.stack(rows), np.array([int(sample.label[0]) for sample in samples])
