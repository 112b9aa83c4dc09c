"""Longer contexts than a rotation was trained for: rules that slow its frequencies down.

f_c = base^(-2c/n) are the frequencies that the model was trained with, n the number of rotated channels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal, Self

from pydantic import model_validator

from ...core.config import Config, OneOf, Positive, Size

Frequencies = tuple[float, ...]


class Scaling(Config):
    """A rule from frequencies to frequencies."""

    @abstractmethod
    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        """The frequencies to use instead of these."""

    @property
    def amplitude(self) -> float:
        """What cosine and sine are multiplied by."""
        return 1.0


class Linear(Scaling):
    """Position interpolation (Chen et al. 2023): f_c / factor, as if the tokens stood closer together."""

    kind: Literal["linear"] = "linear"
    factor: Positive

    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        return tuple(f / self.factor for f in frequency)


class Llama3(Scaling):
    """The rule of Llama 3.1: waves that fit often enough into the original context stay as they are.

    With λ = 2π/f and o = `original`: f if λ < o/high; f/factor if λ > o/low; between the two
    s·f + (1-s)·f/factor with s = (o/λ - low) / (high - low).
    """

    kind: Literal["llama3"] = "llama3"
    factor: Positive
    low: Positive = 1.0
    high: Positive = 4.0
    original: Size = 8192

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be less than high {self.high}: turns per original context")
        return self

    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        def one(f: float) -> float:
            turns = self.original * f / (2 * math.pi)  # o/λ
            share = min(max((turns - self.low) / (self.high - self.low), 0.0), 1.0)
            return share * f + (1 - share) * f / self.factor

        return tuple(one(f) for f in frequency)


class Yarn(Scaling):
    """YaRN (Peng et al. 2023): channels that turn often are kept, those that turn seldom are interpolated.

    D(t) = n·ln(o/(2πt)) / (2 ln base) is the channel that turns t times within the original context o. Between
    D(fast) and D(slow) a ramp r_c rises from 0 to 1: f_c' = (1 - r_c)·f_c + r_c·f_c/factor. Cosine and sine are
    multiplied by 0.1·ln(factor) + 1, or by `attention` if it is given.
    """

    kind: Literal["yarn"] = "yarn"
    factor: Positive
    original: Size
    fast: Positive = 32.0
    slow: Positive = 1.0
    attention: Positive | None = None

    @property
    def amplitude(self) -> float:
        if self.attention is not None:
            return self.attention
        return 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0

    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        size = 2 * len(frequency)
        low = max(math.floor(self._channel(self.fast, size, base)), 0)
        high: float = min(math.ceil(self._channel(self.slow, size, base)), size - 1)
        if low == high:
            high += 0.001  # as in the authors' code: a step instead of a ramp of no width
        ramp = [min(max((c - low) / (high - low), 0.0), 1.0) for c in range(len(frequency))]
        return tuple((1 - r) * f + r * f / self.factor for r, f in zip(ramp, frequency, strict=True))

    def _channel(self, turns: float, size: int, base: float) -> float:
        return size * math.log(self.original / (2 * math.pi * turns)) / (2 * math.log(base))


SCALINGS: tuple[type[Scaling], ...] = (Linear, Llama3, Yarn)
AnyScaling = Annotated[Scaling, OneOf(lambda: SCALINGS)]
