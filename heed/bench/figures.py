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
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        return cls(*statistics.quantiles(samples, n=4, method="inclusive"))

    def __str__(self) -> str:
        return f"{short(self.middle)} ({short(self.low)} – {short(self.high)})"


def faster(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """How many times as fast we are: the median over rounds of their seconds by ours, with its bootstrap interval."""
    pairs = [their / our for our, their in zip(ours, theirs, strict=True)]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    cut = round(0.025 * RESAMPLES)
    return Figure(medians[cut], statistics.median(pairs), medians[-cut - 1])


def short(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
