"""Longer contexts than a rotation was trained for: rules that slow its frequencies down.

f_c = base^(-2c/n) are the frequencies that the model was trained with, n the number of rotated channels.

Two rules, `Dynamic` and `LongRope`, are published with frequencies that depend on how long the sequence is. Keys that
were remembered while it was shorter would then have turned at another speed than those beside them, and a sequence cut
into calls would give other numbers than in one call. So here the length is declared (`length`), the frequencies follow
from that, and positions that the declaration does not cover are refused. Without a declaration it is the length that
the model was trained with.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal, Self

from annotated_types import Ge, Le
from pydantic import Strict, model_validator

from ...core.config import Config, Flag, OneOf, Positive, Size
from ...core.errors import ConfigError

Frequencies = tuple[float, ...]
Turns = Annotated[float, Strict(), Ge(1e-9), Le(1e9)]  # within a context


class Scaling(Config):
    """A rule from frequencies to frequencies."""

    @abstractmethod
    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        """The frequencies to use instead of these."""

    @property
    def amplitude(self) -> float:
        """What cosine and sine are multiplied by."""
        return 1.0

    @property
    def covers(self) -> int | None:
        """How many positions it is meant for; None = any number."""
        return None


class Linear(Scaling):
    """Position interpolation (Chen et al. 2023): f_c / factor, as if the tokens stood closer together."""

    kind: Literal["linear"] = "linear"
    factor: Positive  # how many times the original length it is stretched to

    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        return tuple(f / self.factor for f in frequency)


class Llama3(Scaling):
    """The rule of Llama 3.1: waves that fit often enough into the original context stay as they are.

    With λ = 2π/f and o = `original`: f if λ < o/high; f/factor if λ > o/low; between the two
    s·f + (1-s)·f/factor with s = (o/λ - low) / (high - low).
    """

    kind: Literal["llama3"] = "llama3"
    factor: Positive  # how many times slower long waves turn
    low: Positive = 1.0  # waves that fit less often into the original context are long
    high: Positive = 4.0  # those that fit more often stay as they are
    original: Size = 8192  # tokens of the context in training

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
    factor: Positive  # how many times the original length it is stretched to
    original: Size  # tokens of the context in training
    fast: Turns = 32.0  # channels that turn more often within the original context are kept
    slow: Turns = 1.0  # those that turn less often are interpolated
    attention: Positive | None = None  # what cosine and sine are multiplied by; None: by the paper's rule
    whole: Flag = True  # the ramp begins and ends at whole channels

    @property
    def amplitude(self) -> float:
        if self.attention is not None:
            return self.attention
        return 0.1 * math.log(self.factor) + 1 if self.factor > 1 else 1.0

    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        size = 2 * len(frequency)
        low, high = self._channel(self.fast, size, base), self._channel(self.slow, size, base)
        if self.whole:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0.0), min(high, size - 1.0)
        if low == high:
            high += 0.001  # as in the authors' code: a step instead of a ramp of no width
        ramp = [min(max((c - low) / (high - low), 0.0), 1.0) for c in range(len(frequency))]
        return tuple((1 - r) * f + r * f / self.factor for r, f in zip(ramp, frequency, strict=True))

    def _channel(self, turns: float, size: int, base: float) -> float:
        return size * math.log(self.original / (2 * math.pi * turns)) / (2 * math.log(base))


class Dynamic(Scaling):
    """Dynamic NTK scaling (bloc97 & emozilla 2023; Peng et al. 2023, sec. 3.3): the base grows with the length L.

    f_c = b^(-2c/n) with b = base · (factor·L/o - (factor - 1))^(n/(n-2)), o = `original` and L = `length`, at least o.
    Up to the original length nothing changes. The authors take L anew at every call; see above for why it is declared.
    """

    kind: Literal["dynamic"] = "dynamic"
    factor: Positive  # of the base's growth
    original: Size  # tokens of the context in training
    length: Size | None = None  # of the longest sequence; None: as in training

    @property
    def covers(self) -> int:
        return max(self.length or 0, self.original)

    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        size = 2 * len(frequency)
        if self.covers == self.original:
            return frequency
        if size == 2:
            raise ConfigError("dynamic scaling changes the base, but two rotated channels turn at the speed 1 for any")
        stretch = (self.factor * self.covers / self.original - (self.factor - 1)) ** (size / (size - 2))
        return tuple(f * stretch ** (-2 * c / size) for c, f in enumerate(frequency))


class LongRope(Scaling):
    """LongRoPE (Ding et al. 2024): a searched divisor for each channel, f_c / short_c or f_c / long_c.

    `short` is for sequences up to the original length o, `long` for longer ones; `length` says which. Cosine and sine
    are multiplied by sqrt(1 + ln(factor) / ln(o)) either way, or by `attention` if it is given.
    """

    kind: Literal["longrope"] = "longrope"
    short: tuple[Positive, ...]  # divisors of the frequencies for sequences up to the original length
    long: tuple[Positive, ...]  # those for longer ones
    factor: Positive  # how many times the original length it is stretched to
    original: Size  # tokens of the context in training
    attention: Positive | None = None  # what cosine and sine are multiplied by; None: by the paper's rule
    length: Size | None = None  # of the longest sequence; None: as in training

    @model_validator(mode="after")
    def _some_length(self) -> Self:
        if self.original < 2:
            raise ValueError("longrope divides by ln(original); original must be at least 2")
        return self

    @property
    def covers(self) -> int | None:
        return None if (self.length or 0) > self.original else self.original

    @property
    def amplitude(self) -> float:
        if self.attention is not None:
            return self.attention
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original)) if self.factor > 1 else 1.0

    def apply(self, frequency: Frequencies, base: float) -> Frequencies:
        divisors = self.long if self.covers is None else self.short
        if len(divisors) != len(frequency):
            raise ConfigError(
                f"longrope has {len(divisors)} divisors, but {2 * len(frequency)} channels turn two by two; "
                f"needed are {len(frequency)}"
            )
        return tuple(f / divisor for f, divisor in zip(frequency, divisors, strict=True))


SCALINGS: tuple[type[Scaling], ...] = (Linear, Llama3, Yarn, Dynamic, LongRope)
AnyScaling = Annotated[Scaling, OneOf(lambda: SCALINGS)]
