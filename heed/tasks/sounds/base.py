"""Tasks that learn from sounds: how a file becomes what a model hears, and which files cannot be learnt from."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from ...core.config import Positive, Text
from ...core.errors import ConfigError, InputError, counted
from ...core.interfaces import Hearing, Hears
from ...decode import AnyStrategy, Greedy
from ...media.augment import Augment, OfFrames
from ...media.sounds import AnySoundFeatures, LogMel, read
from ...parts.inputs.audio import FrameStep
from ...pipelines.base import AnyModel, Ids, Pipeline
from ...pipelines.media.speech import SpeechPipeline
from ...pipelines.media.speech_settings import features_of
from ...text import Tokenizer
from ..base import Notify
from ..media.base import MediaCorpus, MediaTask, Sample, readable
from ..metrics import Metrics, corpus_cross_entropy
from .scores import Heard, must_have_jiwer

if TYPE_CHECKING:
    from ...data.base import Example, Examples
    from ...pipelines.settings import GenerationConfig

SOUND = "sound"
SHOWN = 5  # characters that are told one by one
LOST = 0.2  # share of characters that a tokenizer may lack
Case = Literal["kept", "lower", "upper"]


class SoundTask(MediaTask):
    """Sounds are read at the rate of the features, whatever theirs is; several channels become their mean."""

    unit: ClassVar[str] = "sound"
    costs: ClassVar[str] = "frame"
    takes: ClassVar[type[Augment]] = OfFrames

    features: AnySoundFeatures = LogMel()  # what the model is fed of a sound
    longest: Positive = 30.0  # seconds of a sound; longer ones are left out, and counted
    window: Positive | None = None  # seconds, to which silence fills up every sound, as Whisper was taught; None: none
    column: Text | None = None  # of a table, that says what a sound is; None: the task's own
    strided: tuple[FrameStep, ...] | None = None  # convolutions that make frames of the features; None: the model's

    @property
    @abstractmethod
    def told(self) -> str:
        """What the column of what is learnt is called."""

    @property
    def columns(self) -> tuple[str, ...]:
        return ("sound", self.column or self.told)

    def fitted(self, model: AnyModel, beside: Path | None) -> Self:
        """With the features that the files of a base name, and the convolutions of the model."""
        features = self.features if beside is None else features_of(beside) or self.features
        strided = tuple(FrameStep(*one) for one in hearing(model).strided)
        return self.model_copy(update={"features": features, "strided": strided})

    def must_take(self) -> None:
        """Two sounds have two lengths, so that none is mixed with another."""
        super().must_take()
        if (pairing := self.pairing) is not None:
            raise InputError(f"augment: {pairing.dump()['kind']} is nothing for sounds, which differ in length")

    def must_hear(self, model: AnyModel) -> None:
        """Raise unless the model takes what the features are."""
        embeddings, kind = hearing(model), self.features.dump()["kind"]
        bins = self.features.bins if isinstance(self.features, LogMel) else None
        if bins != embeddings.bands:
            wanted = "samples" if embeddings.bands is None else f"logmel with bins={embeddings.bands}"
            told = kind if bins is None else f"{kind} with bins={bins}"
            raise ConfigError(f"the model takes {wanted}, task.features is {told}; make them fit")
        longest, most = embeddings.longest, self._numbers(self.window or self.longest)
        for one in embeddings.strided:
            most = FrameStep(*one).frames(most)
        if longest is not None and most > longest:
            raise ConfigError(
                f"sounds of {self.window or self.longest:g} seconds have {most:,} frames, the model has places for "
                f"{longest:,}; set task.longest={self.longest * longest / most:.4g}, or model.frames={most}"
            )

    def frames(self, length: int) -> int:
        """Frames of the model's stream that so many of the features become."""
        for convolution in self.strided or ():
            length = convolution.frames(length)
        return length

    def decoded(self, cell: str, draw: np.random.Generator | None) -> Tensor:
        found = self._features(cell)
        if draw is not None:
            for one in self.augments(OfFrames):
                found = one.frames(found, draw)
        return found

    def looked(self, cell: str) -> int:
        """Frames of the model's stream, one at least."""
        found = self._features(cell)
        frames = self.frames(len(found))
        if frames < 1:
            raise InputError(f"{cell} is too short: its {len(found):,} samples make no frame")
        return frames

    def _features(self, cell: str) -> Tensor:
        samples = read(Path(cell), self.features.rate, self.longest)
        if self.window is not None:
            whole = int(self.window * self.features.rate)
            samples = torch.nn.functional.pad(samples[:whole], (0, max(0, whole - len(samples))))
        try:
            return self.features(samples)
        except InputError as error:
            raise InputError(f"{cell}: {error}") from None

    def _numbers(self, seconds: float) -> int:
        """Frames of the features of a sound of such a length."""
        samples = int(seconds * self.features.rate)
        return samples // self.features.step if isinstance(self.features, LogMel) else samples


class TranscribingTask(SoundTask):
    """A task that learns what is said."""

    wordless: ClassVar[bool] = False
    unit: ClassVar[str] = "token"

    decode: AnyStrategy = Greedy()  # how texts are found, unless a call names another strategy
    case: Case = "kept"  # of the texts, before the tokenizer reads them, and while errors are counted

    @property
    def strategy(self) -> AnyStrategy | None:
        return self.decode

    @property
    def told(self) -> str:
        return "transcript"

    def texts(self, example: Example) -> Sequence[str]:
        return (self.cased(example[1]),)

    def cased(self, text: str) -> str:
        """A transcript as it is learnt: spaces alone between words."""
        text = " ".join(text.split())
        return text if self.case == "kept" else text.lower() if self.case == "lower" else text.upper()

    @abstractmethod
    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Transcripts: ...

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Heard:
        must_have_jiwer()  # before anything is decoded
        corpus = self.corpus(examples, pipeline.tokenizer)
        nats, tokens = corpus_cross_entropy(self, pipeline.model, corpus)
        said = transcribed(pipeline, corpus.cells, config, notify)
        heard = Heard.of(corpus.cells, [self.cased(text) for text in said], corpus.wanted)
        after: Metrics = {"sounds": len(said), "left_out": corpus.left_out, **corpus.unreadable.metrics()}
        return heard.with_metrics({"loss": nats / tokens}, after)

    def transcripts(
        self, examples: Examples, tokenizer: Tokenizer, fits: Callable[[Ids, int], bool], why: str
    ) -> Transcripts:
        """The corpus: sounds that can be read, with a text that can be learnt from them."""
        self.must_take()
        kept, unreadable = readable(list(examples), self.looked)
        texts = [self.cased(text) for (_, text), _ in kept]
        rows = [np.array(ids, np.int32) for ids in tokenizer.encode_all(texts)]
        lacking = _lacking(tokenizer, texts, rows)
        samples, wanted, empty, refused = list[Sample](), list[str](), 0, 0
        for ((cell, _), length), text, ids in zip(kept, texts, rows, strict=True):
            if not len(ids):
                empty += 1
            elif not fits(ids, length):
                refused += 1
            else:
                samples.append(Sample(cell, tuple(ids.tolist()), length))
                wanted.append(text)
        notes = [f"{counted(empty, 'empty transcript')} left out"] if empty else []
        notes += [f"{counted(refused, 'sound')} left out: {why}"] if refused else []
        notes += [lacking] if lacking else []
        return Transcripts(samples, SOUND, unreadable, wanted=wanted, left_out=empty + refused, notes=notes)


class Transcripts(MediaCorpus):
    """Sounds and what is said in them; what was left out is told."""

    def __init__(self, *given: object, wanted: Sequence[str], left_out: int, notes: Iterable[str]) -> None:
        self.wanted, self.left_out, self._notes = wanted, left_out, tuple(notes)
        super().__init__(*given)  # type: ignore[arg-type]  # as MediaCorpus takes them

    @property
    def cells(self) -> list[str]:
        """Where the sounds lie, in the order of `wanted`."""
        return [sample.cell for sample in self.samples]

    def report(self) -> str:
        return "; ".join([super().report(), *self._notes])


def hearing(model: AnyModel) -> Hearing:
    """What a model, or its encoder, hears sounds by."""
    found = next((part.hearing for part in model.modules() if isinstance(part, Hears)), None)
    if found is None:
        raise ConfigError(
            f"a task of sounds needs a model that hears: {type(model).__name__} does not; use model.kind=audio, "
            "wav2vec2, or whisper for task.kind=transcribe"
        )
    return found


def _lacking(tokenizer: Tokenizer, texts: Sequence[str], rows: Sequence[Ids]) -> str:
    """What a tokenizer reads as unknown, in words; an error if that is much of it."""
    if tokenizer.unknown is None:
        return ""
    places = [at for at, ids in enumerate(rows) if bool((ids == tokenizer.unknown).any())]
    if not places:
        return ""
    every = {letter for at in places for letter in texts[at]}
    strange = {letter for letter in every if tokenizer.unknown in tokenizer.encode(letter)}
    letters = Counter(letter for at in places for letter in texts[at] if letter in strange)
    named = ", ".join(f"{letter!r} ({count:,})" for letter, count in letters.most_common(SHOWN))
    lost, total = sum(int((ids == tokenizer.unknown).sum()) for ids in rows), sum(map(len, rows))
    told = f"{counted(lost, 'token')} of {counted(len(places), 'text')} unknown to the tokenizer"
    told += f": {named}" if named else ""
    if lost > LOST * total:
        raise InputError(
            f"{told}, of {total:,} in all; that teaches nothing. If the tokenizer knows one case of letters alone, set "
            "task.case=upper or lower; else correct the texts, or let a new tokenizer be made of them"
        )
    return told


def transcribed(
    pipeline: Pipeline, cells: Sequence[str], config: GenerationConfig | None, notify: Notify | None
) -> list[str]:
    """What a model hears in each file."""
    if not isinstance(pipeline, SpeechPipeline):
        raise InputError(f"sounds are to be transcribed, and this cannot: it is {pipeline.what}")
    strategy, said = None if config is None else config.strategy, list[str]()
    for cell in cells:
        said.append(pipeline.transcribe(cell) if strategy is None else pipeline.transcribe(cell, strategy=strategy))
        if notify is not None:
            notify(len(said), len(cells))
    return said
