"""RandAugment: a few changes of many, each as strong as one number says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ...core.config import Fraction, Size
from .base import OfPicture

if TYPE_CHECKING:
    from PIL import Image

Change: TypeAlias = "Callable[[Image.Image, float], Image.Image]"  # a picture, and how much of the most, from -1 to 1
TURN, SHEAR, SHIFT, TONE = 30.0, 0.3, 0.3, 0.9  # the most: degrees, slope, of a side, of brightness and the like


class RandAugment(OfPicture):
    """`count` changes in a row, each drawn from a table and as strong as `strength` says (Cubuk et al. 2020).

    Turned, sheared, moved; colours, contrast, brightness, sharpness; tones spread out, dropped, inverted above a
    threshold. Which side a change goes to is drawn, too. Cubuk et al. 2020, arXiv 1909.13719, with its table of 14 but
    for the identity, which a strength near 0 is.
    """

    kind: Literal["rand"] = "rand"
    count: Size = 2  # changes in a row
    strength: Fraction = 0.3  # of the most that each can be

    def picture(self, picture: Image.Image, draw: np.random.Generator) -> Image.Image:
        for _ in range(self.count):
            change = CHANGES[int(draw.integers(len(CHANGES)))]
            picture = change(picture, self.strength * (1 if draw.random() < 0.5 else -1))
        return picture


def _turned(picture: Image.Image, much: float) -> Image.Image:
    from PIL import Image

    return picture.rotate(TURN * much, resample=Image.Resampling.BILINEAR)


def _mapped(picture: Image.Image, *matrix: float) -> Image.Image:
    from PIL import Image

    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)


def _sheared_across(picture: Image.Image, much: float) -> Image.Image:
    return _mapped(picture, 1, SHEAR * much, -SHEAR * much * picture.height / 2, 0, 1, 0)


def _sheared_down(picture: Image.Image, much: float) -> Image.Image:
    return _mapped(picture, 1, 0, 0, SHEAR * much, 1, -SHEAR * much * picture.width / 2)


def _moved_across(picture: Image.Image, much: float) -> Image.Image:
    return _mapped(picture, 1, 0, SHIFT * much * picture.width, 0, 1, 0)


def _moved_down(picture: Image.Image, much: float) -> Image.Image:
    return _mapped(picture, 1, 0, 0, 0, 1, SHIFT * much * picture.height)


def _enhanced(name: str) -> Change:
    def change(picture: Image.Image, much: float) -> Image.Image:
        from PIL import ImageEnhance

        enhanced: Image.Image = getattr(ImageEnhance, name)(picture).enhance(1 + TONE * much)
        return enhanced

    return change


def _spread(picture: Image.Image, much: float) -> Image.Image:
    """The tones from black to white, as many pixels of each as of any other if it is strong, else only stretched."""
    from PIL import ImageOps

    return ImageOps.equalize(picture) if much > 0 else ImageOps.autocontrast(picture)


def _dropped(picture: Image.Image, much: float) -> Image.Image:
    """Fewer bits of every tone."""
    from PIL import ImageOps

    return ImageOps.posterize(picture, 8 - round(4 * abs(much)))


def _inverted(picture: Image.Image, much: float) -> Image.Image:
    """Tones above a threshold become their opposites."""
    from PIL import ImageOps

    return ImageOps.solarize(picture, round(256 * (1 - abs(much))))


CHANGES: tuple[Change, ...] = (
    *(_turned, _sheared_across, _sheared_down, _moved_across, _moved_down),
    *map(_enhanced, ("Color", "Contrast", "Brightness", "Sharpness")),
    *(_spread, _dropped, _inverted),
)
