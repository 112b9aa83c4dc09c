"""Frames of sound: what is hidden of them, and how loud they are. Bare samples have no bands; all else is the same."""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import Tensor

from ...core.config import Count, Positive, Share
from .base import OfFrames


class SpecAugment(OfFrames):
    """Bands of frequencies and stretches of time hidden by the mean of all frames (Park et al. 2019, sec. 2).

    Each is as wide as is drawn from 0 to its most, and lies anywhere. Time is not warped: the number of frames stays.
    """

    kind: Literal["spec"] = "spec"
    bands: Count = 2  # that are hidden
    band: Share = 0.2  # of all bands, that one hides at most
    spans: Count = 2  # stretches of time that are hidden
    span: Share = 0.1  # of all frames, that one hides at most

    def frames(self, frames: Tensor, draw: np.random.Generator) -> Tensor:
        hidden, mean = frames.clone(), frames.mean()
        for _ in range(self.bands if frames.dim() == 2 else 0):
            first, count = _part(draw, frames.shape[1], self.band)
            hidden[:, first : first + count] = mean
        for _ in range(self.spans):
            first, count = _part(draw, len(frames), self.span)
            hidden[first : first + count] = mean
        return hidden


class Loudness(OfFrames):
    """Louder or softer by up to so many decibels: the logarithms of all bands move alike.

    Frames are (log10 power + 4) / 4 (`LogMel`), so that 10 decibels are a quarter. Samples are multiplied.
    """

    kind: Literal["loudness"] = "loudness"
    decibels: Positive = 6.0  # up or down

    def frames(self, frames: Tensor, draw: np.random.Generator) -> Tensor:
        decibels = float(draw.uniform(-self.decibels, self.decibels))
        return frames + decibels / 40 if frames.dim() == 2 else frames * 10 ** (decibels / 20)


class Shift(OfFrames):
    """Begun a little earlier or later: what leaves at one end is lost, what comes in is as quiet as can be."""

    kind: Literal["shift"] = "shift"
    share: Share = 0.1  # of all frames, at most

    def frames(self, frames: Tensor, draw: np.random.Generator) -> Tensor:
        most = int(self.share * len(frames))
        steps = int(draw.integers(-most, most + 1))
        moved = frames.roll(steps, 0)
        quiet = frames.amin(0) if frames.dim() == 2 else frames.mean()
        if steps > 0:
            moved[:steps] = quiet
        elif steps < 0:
            moved[steps:] = quiet
        return moved


def _part(draw: np.random.Generator, length: int, share: float) -> tuple[int, int]:
    """Where a part begins and how long it is."""
    count = int(draw.integers(0, int(share * length) + 1))
    return int(draw.integers(0, length - count + 1)), count
