"""Sounds: from a file to mono samples at the rate a model was trained on, and from samples to what it is fed.

Nothing in a file is trusted: it is read piece by piece, and no further than a sound may be long.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor

from ..core.config import Config, Flag, OneOf, Positive, Size
from ..core.errors import InputError, MissingExtra

Sound: TypeAlias = "Path | str | Tensor | np.ndarray[Any, Any]"  # a file, or mono samples

RATE = 16_000  # samples per second of most speech models
LONGEST = 2 * 60 * 60  # seconds
RATES = (1_000, 768_000)  # samples per second that a file may have
BLOCK = 1 << 18  # numbers that are read at once
TOP = 8_000.0  # hertz: the upper edge of Whisper's highest filter, whatever the rate
QUIET = 1e-10  # the least power that is told from none
MOST = 1 << 24  # numbers that the filters may be made of


def read(sound: Sound, rate: int = RATE, longest: float = LONGEST) -> Tensor:
    """Mono samples at this rate, float32 [N]: of a file (WAV, FLAC, OGG ...), or those that are given.

    Channels of a file are averaged. Samples that are given must have the rate already.
    """
    if isinstance(sound, str | Path):
        return _resampled(*_opened(Path(sound), longest), rate)
    try:
        samples = torch.as_tensor(sound).detach().cpu()
    except (TypeError, ValueError, RuntimeError):  # torch has many words for what is no array
        raise InputError(f"one sound is needed, a file or mono samples, not a {type(sound).__name__}") from None
    if samples.dim() != 1 or not samples.is_floating_point():
        raise InputError(
            f"a sound is a file, or mono samples of shape [samples] from -1 to 1; got {samples.dtype} of shape "
            f"{tuple(samples.shape)}; average the channels, and divide whole numbers by the largest one"
        )
    if not len(samples):
        raise InputError("a sound of no samples was given; give one that has some")
    _must_fit(len(samples) / rate, longest, "these samples")
    return _finite(samples.float(), "these samples")


class SoundFeatures(Config):
    """What a model is fed of the samples of a sound."""

    rate: Size = RATE  # samples per second

    @abstractmethod
    def __call__(self, samples: Tensor) -> Tensor:
        """Samples at this rate [N] as the model takes them: [N], or [frames, bins]."""


class LogMel(SoundFeatures):
    """log10 of the power in each mel band, from frame to frame, as Whisper takes it (Radford et al. 2022, sec. 2.2).

    Power below 10^-8 of the loudest is lifted to that; then (x + 4) / 4.
    """

    kind: Literal["logmel"] = "logmel"
    bins: Size = 80  # bands
    window: Size = 400  # samples of a frame
    step: Size = 160  # samples from frame to frame
    top: Positive = TOP  # hertz: the upper edge of the highest band

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.bins * self.window > MOST or self.rate > RATES[1] or self.step > self.window:
            raise ValueError(
                f"{self.bins} bins of windows of {self.window} samples, {self.step} apart, at a rate of {self.rate} "
                "are no features of a sound"
            )
        return self

    def __call__(self, samples: Tensor) -> Tensor:
        """[N] -> [frames, bins], a frame for every whole step."""
        if samples.shape[-1] <= self.window // 2:
            raise InputError(f"a spectrogram needs more than {self.window // 2} samples, not {samples.shape[-1]}")
        waves = torch.stft(
            samples, self.window, self.step, window=torch.hann_window(self.window).to(samples), return_complex=True
        )
        power = mel_filters(self.bins, self.window, self.rate, self.top).to(samples) @ waves[..., :-1].abs().square()
        logs = power.clamp(min=QUIET).log10()
        return ((logs.clamp(min=float(logs.max()) - 8.0) + 4.0) / 4.0).mT


class Samples(SoundFeatures):
    """The samples themselves, as Wav2Vec2 takes them (Baevski et al. 2020)."""

    kind: Literal["samples"] = "samples"
    standard: Flag = True  # brought to mean 0 and variance 1

    def __call__(self, samples: Tensor) -> Tensor:
        """[N] -> [N]"""
        return standardised(samples) if self.standard else samples


@lru_cache
def mel_filters(bins: int, window: int, rate: int, top: float = TOP) -> Tensor:
    """Triangles over the frequencies of a spectrum, each of area one, evenly spaced in mels. [bins, window/2 + 1]"""
    edges = _hertz(torch.linspace(0.0, float(_mels(torch.tensor(top).double())), bins + 2, dtype=torch.float64))
    frequency = torch.linspace(0.0, rate // 2, window // 2 + 1, dtype=torch.float64)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequency - low) / (middle - low), (high - frequency) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0.0) * 2.0 / (high - low)


def standardised(samples: Tensor) -> Tensor:
    """(x - mean) / sqrt(var + 10^-7): what Wav2Vec2 is fed."""
    wide = samples.double()
    return ((wide - wide.mean()) / (wide.var(correction=0) + 1e-7).sqrt()).to(samples.dtype)


FEATURES: tuple[type[SoundFeatures], ...] = (LogMel, Samples)
AnySoundFeatures = Annotated[SoundFeatures, OneOf(lambda: FEATURES)]


def _mels(hertz: Tensor) -> Tensor:
    """Slaney's scale: linear below 1000 Hz, 27 steps to a factor of 6.4 above."""
    return torch.where(hertz < 1000.0, hertz * 3 / 200, 15 + 27 * (hertz.clamp(min=1.0) / 1000).log() / np.log(6.4))


def _hertz(mels: Tensor) -> Tensor:
    """The way back."""
    return torch.where(mels < 15.0, mels * 200 / 3, 1000 * (np.log(6.4) * (mels - 15) / 27).exp())


def _opened(path: Path, longest: float) -> tuple[np.ndarray[Any, Any], int]:
    """The mean of a file's channels, and its rate."""
    try:
        import soundfile  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra.of("soundfile", "audio") from None
    try:
        if not path.is_file():
            raise InputError(f"{path} is not a file; give the path of a sound (WAV, FLAC, OGG ...)")
        with soundfile.SoundFile(path) as file:
            rate, channels = file.samplerate, file.channels
            if not RATES[0] <= rate <= RATES[1]:
                raise InputError(f"{path} has {rate} samples per second; heed reads {RATES[0]} to {RATES[1]}")
            _must_fit(file.frames / rate, longest, str(path))
            most, parts, count = int(longest * rate), list[np.ndarray[Any, Any]](), 0
            for block in file.blocks(max(1, BLOCK // channels), dtype="float32", always_2d=True):
                parts.append(block.mean(1))
                count += len(block)
                if count > most:  # the header said otherwise
                    _must_fit(count / rate, longest, str(path))
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a sound: {error}") from None
    if not count:
        raise InputError(f"{path} holds no samples")
    return np.concatenate(parts), rate


def _resampled(samples: np.ndarray[Any, Any], given: int, rate: int) -> Tensor:
    if given != rate:
        try:
            import soxr  # type: ignore[import-untyped]
        except ImportError:
            raise MissingExtra.of("soxr", "audio") from None
        samples = soxr.resample(samples, given, rate)
    return _finite(torch.from_numpy(np.ascontiguousarray(samples, np.float32)), "the file")


def _must_fit(seconds: float, longest: float, what: str) -> None:
    if seconds > longest:
        raise InputError(f"{what}: {seconds:,.0f} seconds of sound; at most {longest:,.0f} are read at once; cut it")


def _finite(samples: Tensor, what: str) -> Tensor:
    if not bool(samples.isfinite().all()):
        raise InputError(f"{what}: some samples are infinite or not numbers")
    return samples
