"""Figures: medians with their spread, ratios of neighbours, and how they are written."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000


@dataclass(frozen=True)
class Figure:
    """A median between two bounds: quartiles of what was measured, or the 95 % interval of a ratio."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Figure:
        """Median and quartiles."""
        return cls(*quartiles(samples))

    def __str__(self) -> str:
        return f"{short(self.middle)} ({short(self.low)} – {short(self.high)})"


def faster(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """How many times as fast we are: the median over rounds of their seconds by ours."""
    return Figure(*quotient(theirs, ours))


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """The median between them."""
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else 3 * [*samples]
    return low, middle, high


def quotient(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """The median of what was measured side by side, one by the other, within its 95 % bootstrap interval."""
    pairs = [a / b for a, b in zip(above, below, strict=True)]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    cut = round(0.025 * RESAMPLES)
    return medians[cut], statistics.median(pairs), medians[-cut - 1]


def short(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
