"""Where in a picture one looks: crops, zooms, mirror images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from ...core.config import Fraction, Positive, Share
from .base import OfPicture

if TYPE_CHECKING:
    from PIL import Image


class Crop(OfPicture):
    """Moved by up to a share of its sides; what moves in is black (Krizhevsky et al. 2012, sec. 4.1)."""

    kind: Literal["crop"] = "crop"
    pad: Share = 0.125  # of each side: 4 pixels of 32

    def picture(self, picture: Image.Image, draw: np.random.Generator) -> Image.Image:
        down, right = (int(draw.integers(-most, most + 1)) for most in self._most(picture))
        return picture.crop((right, down, right + picture.width, down + picture.height))

    def _most(self, picture: Image.Image) -> tuple[int, int]:
        return round(self.pad * picture.height), round(self.pad * picture.width)


class Zoom(OfPicture):
    """A part of the picture, which is then made as large as all of it (Szegedy et al. 2015, sec. 6)."""

    whole: ClassVar[bool] = True

    kind: Literal["zoom"] = "zoom"
    least: Fraction = 0.35  # of the area that is looked at
    ratio: Positive = 4 / 3  # of the sides, one way or the other, at most

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.ratio < 1:
            raise ValueError(f"ratio is the longer side by the shorter one, 1 at least, not {self.ratio}")
        return self

    def picture(self, picture: Image.Image, draw: np.random.Generator) -> Image.Image:
        area = picture.width * picture.height * draw.uniform(self.least, 1.0)
        shape = math.exp(draw.uniform(-math.log(self.ratio), math.log(self.ratio)))
        width = min(picture.width, max(1, round(math.sqrt(area * shape))))
        height = min(picture.height, max(1, round(math.sqrt(area / shape))))
        left, top = (int(draw.integers(0, side + 1)) for side in (picture.width - width, picture.height - height))
        return picture.crop((left, top, left + width, top + height))


class Flip(OfPicture):
    """Mirrored, left for right: for what has no side, which letters and digits have."""

    kind: Literal["flip"] = "flip"
    chance: Fraction = 0.5  # share of pictures that are mirrored

    def picture(self, picture: Image.Image, draw: np.random.Generator) -> Image.Image:
        from PIL import Image

        return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < self.chance else picture
