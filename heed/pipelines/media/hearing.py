"""Classes of sounds: what a whole sound is, by an encoder with a head that pools its frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.errors import InputError
from ...core.interfaces import Asked, Encodes
from ...media.sounds import LONGEST, Sound, SoundFeatures, read
from ..base import AnyModel, Pipeline
from ..results import Problem, Response, classes_told, predictions
from .speech import BATCH, heard


class SoundClassification(Pipeline):
    """A classifier of sounds, each heard whole."""

    what = "a classifier of sounds"
    reads = "sound"

    def __init__(
        self,
        model: AnyModel,
        features: SoundFeatures,
        labels: Sequence[str] = (),
        problem: Problem | None = None,
        longest: float = LONGEST,
    ) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, Asked) and "pooled" in model.heads):
            raise InputError(f"a model that hears and has classes is needed; {type(model).__name__} is none")
        self.model, self.features, self.longest = model.eval(), features, longest
        self.labels, self.problem = tuple(labels), problem
        self._encoder, self._head = model, model.heads["pooled"]

    @property
    def can(self) -> tuple[str, ...]:
        return ("classify",)

    @torch.no_grad()
    def classify(self, given: Any, labels: Sequence[str] = ()) -> Any:  # overloads of `Verbs` tell what
        if labels:
            raise InputError("the classes of this model are fixed; leave labels out")
        if given is None or isinstance(given, Mapping | int | float):
            raise InputError(f"a sound or a list of sounds (paths, for example) is needed, not {type(given).__name__}")
        single = not isinstance(given, list | tuple)
        sounds: list[Sound] = [given] if single else list(given)
        rows = (row for begin in range(0, len(sounds), BATCH) for row in self._logits(sounds[begin : begin + BATCH]))
        found = [predictions(row, self.labels, self.problem) for row in rows]
        return found[0] if single else found

    def respond(self, text: str) -> Response:
        return classes_told(self.classify(text), most=5)

    def _logits(self, sounds: Sequence[Sound]) -> Tensor:
        """[sounds, classes]"""
        weight = next(self.model.parameters())
        features = [self.features(read(sound, self.features.rate, self.longest)) for sound in sounds]
        seen = heard(self._encoder, [one.to(weight.device, weight.dtype) for one in features])
        logits: Tensor = self._head(seen.parts[0], seen)
        return logits
