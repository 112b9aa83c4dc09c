"""Speech recognition: what is said in a sound, as text, with an encoder-decoder (Whisper, Radford et al. 2022).

A sound longer than a model takes at once is cut into windows that follow one another. Each ends in the quietest place
of its last seconds, so that no word is cut if there is a pause; windows are transcribed independently of one another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ... import engine
from ...core.contract import Given, Where
from ...core.errors import InputError
from ...core.interfaces import Encodes, LanguageModel
from ...core.state import Seen
from ...core.tables import renamed_arguments
from ...decode import AnyStrategy, Greedy, Never, generate
from ...media.sounds import LogMel, Sound, read
from ...parts.inputs.audio import Mels
from ...text import Tokenizer
from ..attentions import Inspected
from ..base import AnyModel, Pipeline
from ..generation import room
from ..results import Response
from .speech_settings import SpeechSettings, SpeechTask, code_of

BATCH = 8  # windows that are transcribed in one batch
SEARCHED, HUSH = 5.0, 0.2  # seconds at a window's end where a pause is looked for; seconds of one
GREEDY = Greedy()


class SpeechPipeline(Pipeline):
    """A model that transcribes sounds."""

    reads = "sound"
    model: AnyModel
    strategy: AnyStrategy = GREEDY  # how texts are found, unless a call names another one
    _encoder: Encodes
    rate: int  # samples per second
    window: int  # samples that are taken at once

    @property
    def can(self) -> tuple[str, ...]:
        return ("transcribe",)

    @renamed_arguments(how="strategy")
    def transcribe(
        self,
        sound: Sound | list[Any] | tuple[Any, ...],
        *,
        language: str | None = None,
        task: SpeechTask = "transcribe",
        strategy: AnyStrategy | None = None,
    ) -> Any:  # overloads of `Verbs` tell what
        """What is said in a sound file, or in mono samples at the model's rate; of a list, in each."""
        how = self.strategy if strategy is None else strategy
        if isinstance(sound, list | tuple):
            return [self._transcribed(one, language, task, how) for one in sound]
        return self._transcribed(sound, language, task, how)

    @torch.no_grad()
    def _transcribed(self, sound: Sound, language: str | None, task: SpeechTask, strategy: AnyStrategy) -> str:
        parts = list(windows(read(sound, self.rate), self.window, self.rate))
        return "".join(self._said(parts, language, task, strategy)).strip()

    def respond(self, text: str) -> Response:
        said = self.transcribe(Path(text))
        return Response(said, {"text": said})

    @abstractmethod
    def _said(
        self, parts: Sequence[Tensor], language: str | None, task: SpeechTask, strategy: AnyStrategy
    ) -> Iterator[str]:
        """The text of each window, to be joined."""

    @torch.no_grad()
    def inspect(self, text: Any, target: str | None = None) -> Inspected:
        """The first window of a sound, whose tokens are called by their seconds; and what is said in it."""
        first = self._filled(next(windows(read(text, self.rate), self.window, self.rate)))
        seconds, ids = len(first) / self.rate, self._ids(text, target)
        frames = self._fed(self._features(first))[None]

        def timed(count: int) -> list[str]:
            return [f"{place * seconds / count:.2f}s" for place in range(count)]

        if ids is None:
            return Inspected(source=frames, sources=timed)
        return Inspected(torch.tensor([ids], device=frames.device), tuple(self.tokenizer.tokens(ids)), frames, timed)

    def _ids(self, sound: Sound, target: str | None) -> list[int] | None:
        """What a decoder is given: the ids that it would write itself, unless it is told; None: there is no decoder."""
        if target is not None:
            raise InputError("a target is what a decoder answers with, and this model has none: leave it out")
        return None

    def _filled(self, part: Tensor) -> Tensor:
        """A window as the model takes it."""
        return part

    @abstractmethod
    def _features(self, part: Tensor) -> Tensor:
        """What the encoder is given of a window."""

    def _fed(self, x: Tensor) -> Tensor:
        """As the model's weights are."""
        weight = next(self.model.parameters())
        return x.to(weight.device, weight.dtype)

    def _heard(self, features: Sequence[Tensor]) -> Seen:
        """The stream of several sounds."""
        return heard(self._encoder, [self._fed(one) for one in features])


def heard(model: Encodes, features: Sequence[Tensor]) -> Seen:
    """The stream of several sounds, side by side."""
    lengths = torch.tensor([len(one) for one in features], device=features[0].device)
    where = Where.run(len(features), int(lengths[0]), device=lengths.device)
    if bool((lengths != lengths[0]).any()):
        where = Where.ragged(lengths)
    encoder: Any = model  # which is a mixer as well
    stream: Seen = engine.compile(encoder).encode(pad_sequence(list(features), batch_first=True), where)
    return stream


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


class SpeechRecognition(SpeechPipeline):
    """The prompt is <start> <language> <task> <no timestamps>; the completion is the text of a window."""

    what = "an encoder-decoder that transcribes speech"

    def __init__(
        self, model: AnyModel, tokenizer: Tokenizer, settings: SpeechSettings, strategy: AnyStrategy = GREEDY
    ) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, LanguageModel)):
            raise InputError(
                f"to transcribe, a model needs an audio encoder and a decoder; {type(model).__name__} has not both"
            )
        self.model, self.tokenizer, self.settings = model.eval(), tokenizer, settings
        self.rate, self.window = settings.features.rate, int(settings.seconds * settings.features.rate)
        self.strategy = strategy
        self._encoder = model
        self._must_fit(model)

    def language(self, sound: Sound) -> str | None:
        """The code of the language that a sound begins in; None if the model knows English only."""
        first = next(windows(read(sound, self.rate), self.window, self.rate))
        with torch.no_grad():
            return self._detected(self._first_logits(self._encoded([first])))

    def _must_fit(self, model: AnyModel) -> None:
        """Raise unless the model takes what the features of a window are."""
        embeddings, features = model.get_submodule("encoder.embeddings"), self.settings.features
        if not isinstance(embeddings, Mels) or not isinstance(features, LogMel):
            return
        bins, frames = embeddings.first.in_channels, self.window // features.step
        if bins != features.bins:
            raise InputError(
                f"the model takes {bins} mel bins (num_mel_bins), the features have {features.bins} (feature_size in "
                "preprocessor_config.json); set the latter to the former"
            )
        if embeddings.position is not None and frames > 2 * (longest := embeddings.position.longest or frames):
            raise InputError(
                f"a window of {self.settings.seconds:g} seconds has {frames} frames, the model has places for "
                f"{2 * longest}; set chunk_length in preprocessor_config.json accordingly"
            )

    def _said(
        self, parts: Sequence[Tensor], language: str | None, task: SpeechTask, strategy: AnyStrategy
    ) -> Iterator[str]:
        named = language or self.settings.language
        code = None if named is None else code_of(named)
        self.settings.must_know(code, task)
        for begin in range(0, len(parts), BATCH):
            heard = self._encoded(parts[begin : begin + BATCH])
            logits = self._first_logits(heard)
            code = code or self._detected(logits)
            yield from self._generated(heard, self.settings.asked(code, task), logits.shape[1], strategy)

    def _encoded(self, parts: Sequence[Tensor]) -> Seen:
        return self._heard([self._features(self._filled(part)) for part in parts])

    def _filled(self, part: Tensor) -> Tensor:
        return torch.nn.functional.pad(part, (0, self.window - len(part))) if self.settings.filled else part

    def _features(self, part: Tensor) -> Tensor:
        return self.settings.features(part)

    def _ids(self, sound: Sound, target: str | None) -> list[int]:
        said = self.transcribe(sound) if target is None else target
        code = self.language(sound) if self.settings.language is None else code_of(self.settings.language)
        return [*self.settings.asked(code, "transcribe"), *self.tokenizer.encode(said)]

    def _first_logits(self, heard: Seen) -> Tensor:
        """Of the token after the start: which language it is. [rows, vocabulary]"""
        rows = heard.shape[0]
        tokens = torch.full((rows, 1), self.settings.start, device=heard.order.device)
        logits, _ = engine.compile(self.model)(
            tokens, Where.run(rows, 1, device=tokens.device).give(encoder_output=heard)
        )
        return logits[:, 0]

    def _detected(self, logits: Tensor) -> str | None:
        """The most probable language of the first window."""
        found = {code: float(logits[0, token]) for code, token in self.settings.languages if token < logits.shape[1]}
        return max(found, key=lambda code: found[code], default=None)

    def _generated(self, heard: Seen, prompt: list[int], vocabulary: int, strategy: AnyStrategy) -> Iterator[str]:
        settings = self.settings
        found = generate(
            self.model,
            [prompt] * heard.shape[0],
            max_new_tokens=min(settings.max_new_tokens, room(self.model) - len(prompt)),
            end=settings.ends,
            strategy=strategy,
            given=Given(encoder_output=heard),
            constraint=Never(settings.never, vocabulary, settings.never_first),
        )
        words = min(self.tokenizer.size, vocabulary if settings.no_timestamps is None else settings.no_timestamps)
        for best in found:
            yield self.tokenizer.decode([token for token in best[0].tokens if token < words])
