"""Transcription by an encoder-decoder (Whisper): the sound is encoded, the text is written token by token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from ...core.config import Share, Size, Text
from ...core.errors import ConfigError
from ...core.interfaces import Encodes, LanguageModel
from ...parts.outputs.loss import NO_LABEL, Loss
from ...pipelines.base import AnyModel
from ...pipelines.generation import room
from ...pipelines.media.speech import SpeechRecognition
from ...pipelines.media.speech_settings import SpeechSettings, settings_beside
from ...pipelines.text import encoded
from ..base import Batch, Item, next_token_loss
from ..media.base import Frames, Sample
from .base import TranscribingTask, Transcripts

if TYPE_CHECKING:
    from ...data.base import Examples
    from ...text import Tokenizer


class Transcribe(TranscribingTask):
    """-Σ_t log p(y_t | y_<t, x): a text y is written from the frames x of a sound (Radford et al. 2022).

    A base brings its prompt (<start> <language> <task> <no timestamps>), which is given and not learnt, and its window,
    to which silence fills up every sound. Texts longer than `longest_text` are left out, and counted.
    """

    kind: Literal["transcribe"] = "transcribe"
    smoothing: Share = 0.0  # share of probability that all other tokens get (label smoothing)
    longest_text: Size = 200  # tokens of a text, prompt and end token included
    language: Text | None = None  # that is spoken, of a base that knows several: its code or English name
    base: SpeechSettings | None = None  # prompt, window and tokens, by the files of a base; None: there is none

    def fitted(self, model: AnyModel, beside: Path | None) -> Self:
        fitted = super().fitted(model, beside)
        told = None if beside is None else settings_beside(beside)
        if told is None:
            return fitted
        update = {"base": told, "features": told.features, "window": float(told.seconds)}
        return fitted.model_copy(update={**update, "longest": min(self.longest, float(told.seconds))})

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Transcripts:
        settings = self._settings(tokenizer)
        prompt, end = settings.prompt_of(self.language), settings.ends[0]
        most = self.longest_text - len(prompt) - 1
        why = f"their texts are longer than {self.longest_text} tokens (task.longest_text)"
        found = self.transcripts(examples, tokenizer, lambda ids, _: len(ids) <= most, why)
        found.samples = [self._framed(sample, prompt, end) for sample in found.samples]
        return found

    @staticmethod
    def _framed(sample: Sample, prompt: Sequence[int], end: int) -> Sample:
        return sample._replace(label=(*prompt, *sample.label, end))

    def batch(self, items: Sequence[Item]) -> Batch:
        loaded = self.loaded(items)
        source = Frames.of_sounds([one.numbers for one in loaded])
        batch = Batch.shifted([one.label for one in loaded], source)
        given = 0 if self.base is None else len(self.base.prompt_of(self.language)) - 1
        if given:
            batch.labels[:, :given] = NO_LABEL
        return Batch(batch.inputs, batch.labels, source, batch.tokens - given * len(loaded))

    def cost(self, item: Item) -> int:
        return max(item.length, len(item.label) - 1) if isinstance(item, Sample) else 1

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        where = batch.inputs.where.give(encoder_output=encoded(model, batch.source))
        return next_token_loss(model, batch, where, self.smoothing if model.training else 0.0)

    def must_fit(self, model: AnyModel) -> None:
        self.must_hear(model)
        if not (isinstance(model, Encodes) and isinstance(model, LanguageModel)):
            raise ConfigError(
                f"to transcribe, a model must encode a sound, then decode a text; {type(model).__name__} does not: use "
                "model.kind=whisper, or task.kind=ctc"
            )
        if room(model) < self.longest_text:
            raise ConfigError(
                f"task.longest_text is {self.longest_text} tokens, the model has places for {room(model)}; set "
                f"task.longest_text={room(model)}"
            )

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> SpeechRecognition:
        return SpeechRecognition(model, tokenizer, self._settings(tokenizer), strategy=self.decode)

    def _settings(self, tokenizer: Tokenizer) -> SpeechSettings:
        """Those of the base, or such as a model has that began from nothing: bare sounds, and a text after <s>."""
        most = self.longest_text
        if self.base is not None:
            return self.base.model_copy(update={"language": self.language or self.base.language})
        return SpeechSettings.trained(self.features, tokenizer, seconds=self.longest, most=most)
