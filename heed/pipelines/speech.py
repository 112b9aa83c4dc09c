"""A model that hears in use: what is said in a sound, as text.

A sound longer than a model hears at once is cut into windows that follow one another. Each ends in the quietest place
of its last seconds, so that no word is cut if there is a pause; windows are written down independently of one another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Self, TypeAlias

import torch
from pydantic import model_validator
from torch import Tensor

from ..core.config import Flag, Size, Theirs
from ..decode import AnyStrategy, Greedy
from ..media.sounds import RATE, RATES, Sound, read
from ..tasks.base import AnyModel
from .base import Pipeline, Response

Wish: TypeAlias = Literal["transcribe", "translate"]  # in the language that is spoken, or in English

MOST = 1 << 24  # samples of a window
TOGETHER = 8  # windows that are heard in one batch
SEARCHED, HUSH = 5.0, 0.2  # seconds at a window's end where a pause is looked for; seconds of one
GREEDY = Greedy()


class Features(Theirs):
    """A preprocessor_config.json."""

    feature_size: Size = 80
    sampling_rate: Size = RATE
    hop_length: Size = 160
    n_fft: Size = 400
    chunk_length: Size = 30  # seconds
    do_normalize: Flag = True  # of Wav2Vec2 alone

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.sampling_rate > RATES[1]:
            raise ValueError(f"sampling_rate is {self.sampling_rate}; heed hears at most {RATES[1]} samples a second")
        if self.sampling_rate * self.chunk_length > MOST:
            raise ValueError(
                f"{self.chunk_length} seconds of {self.sampling_rate} samples each are more than heed hears at once"
            )
        return self


class Hearer(Pipeline):
    """A model that hears and writes down."""

    model: AnyModel
    rate: int  # samples per second
    window: int  # samples that are heard at once

    def transcribe(
        self, sound: Sound, *, language: str | None = None, task: Wish = "transcribe", how: AnyStrategy = GREEDY
    ) -> str:
        """What is said in a sound file, or in mono samples at the model's rate."""
        parts = list(windows(read(sound, self.rate), self.window, self.rate))
        with torch.no_grad():
            return "".join(self._texts(parts, language, task, how)).strip()

    def respond(self, text: str) -> Response:
        said = self.transcribe(Path(text))
        return Response(said, {"text": said})

    @abstractmethod
    def _texts(self, parts: Sequence[Tensor], language: str | None, task: Wish, how: AnyStrategy) -> Iterator[str]:
        """The text of each window, to be joined."""

    def _fed(self, x: Tensor) -> Tensor:
        """As the model's weights are."""
        weight = next(self.model.parameters())
        return x.to(weight.device, weight.dtype)


def windows(samples: Tensor, longest: int, rate: int) -> Iterator[Tensor]:
    """Parts of at most so many samples, one after the other; all but the last end where it is quiet."""
    begin = longest - min(int(SEARCHED * rate), longest // 2)
    hush = min(int(HUSH * rate), longest - begin)
    step = max(1, hush // 8)
    while len(samples) > longest:
        power = samples[begin:longest].square().unfold(0, hush, step).mean(1)
        quietest = len(power) - 1 - int(power.flip(0).argmin())  # the last of equals
        end = begin + quietest * step + hush // 2
        yield samples[:end]
        samples = samples[end:]
    yield samples
