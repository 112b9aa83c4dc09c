"""What an augmentation is: of a picture, of frames of sound, or of two examples at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from torch import Tensor

from ...core.config import Config, Fraction, Positive

if TYPE_CHECKING:
    from PIL import Image

STREAM = 3  # of what is drawn for one example: 0 to 2 are those of a round


class Augment(Config):
    """An example changed in a way that leaves what it is, drawn anew for every example in every round."""


class OfPicture(Augment):
    """Of one picture, before it becomes numbers."""

    whole: ClassVar[bool] = False  # whether it wants the picture as the file has it, before it is made smaller

    @abstractmethod
    def picture(self, picture: Image.Image, draw: np.random.Generator) -> Image.Image:
        """The picture, changed."""


class OfFrames(Augment):
    """Of one sound, as frames of numbers."""

    @abstractmethod
    def frames(self, frames: Tensor, draw: np.random.Generator) -> Tensor:
        """The frames, changed. [T, channels], or bare samples [N]"""


class OfPair(Augment):
    """Of two examples: what becomes of both, and of what they are."""

    @abstractmethod
    def share(self, draw: np.random.Generator) -> float:
        """How much of the first is in it, from 0 to 1."""

    def mixed(self, one: Tensor, other: Tensor, share: float) -> Tensor:
        """Both in one."""
        return share * one + (1 - share) * other


class Mixup(OfPair):
    """x' = λ·x + (1-λ)·x*, y' = λ·y + (1-λ)·y*, λ ~ Beta(α, α) (Zhang et al. 2018, arXiv 1710.09412).

    The other example x* is drawn from all of the data, not from the batch: so what an example becomes does not depend
    on what stands beside it.
    """

    kind: Literal["mixup"] = "mixup"
    alpha: Positive = 0.2  # α: the smaller, the more is left of one of the two
    chance: Fraction = 1.0  # how many examples are mixed

    def share(self, draw: np.random.Generator) -> float:
        mixes, drawn = draw.random() < self.chance, float(draw.beta(self.alpha, self.alpha))
        return max(drawn, 1 - drawn) if mixes else 1.0


def drawing(seed: int, number: int, index: int) -> np.random.Generator:
    """What is drawn for one example in one round, whatever stands beside it and wherever it is loaded."""
    return np.random.default_rng((seed, number, STREAM, index))
