"""Classification of images: a folder of class folders, or a table of paths, to a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from torch import Tensor

from ...core.errors import ConfigError
from ...core.interfaces import Asked, Matches, Sees
from ...core.state import Seen
from ...data.base import Examples
from ...media.augment import Augment, OfPicture
from ...media.images import Preparation, must_open, upright
from ...pipelines.base import AnyModel, Padded
from ...pipelines.media.vision import ImageClassification
from ..base import Batch
from ..floors import linear_numbers, most_frequent
from ..labels.scores import Numbers, single_class
from ..metrics import Metrics
from .base import Loaded, MediaTask, Pixels, place_of
from .classes import ClassesTask

if TYPE_CHECKING:
    from PIL import Image

    from ...text import Tokenizer

FLOOR_SIDE = 32  # pixels of a side that linear models are given, at most


class PictureTask(MediaTask):
    """A task that learns from images, however they are asked about."""

    unit: ClassVar[str] = "image"
    costs: ClassVar[str] = "image"
    takes: ClassVar[type[Augment]] = OfPicture

    prepare: Preparation | None = None  # how a picture becomes numbers; None: to the model's size, from -1 to 1

    def fitted(self, model: AnyModel, beside: Path | None) -> Self:
        if self.prepare is not None:
            self.must_show(self.prepare, model)
            return self
        prepare = None if beside is None else Preparation.find(beside)
        if prepare is None:
            if not isinstance(model, Sees | Matches):
                raise self.no_images(model)
            channels, height, width = model.shown
            half = (0.5,) * channels
            prepare = Preparation(size=(height, width), mean=half, std=half)
        if prepare.scale is None:
            raise ConfigError("the base takes pixels from 0 to 255; name task.prepare with scale=1.0")
        self.must_show(prepare, model)
        return self.model_copy(update={"prepare": prepare})

    def must_show(self, prepare: Preparation, model: AnyModel) -> None:
        """Raise unless pictures are prepared as the model takes them."""
        if not isinstance(model, Sees | Matches):
            raise self.no_images(model)
        channels, height, width = model.shown
        given = prepare.crop or prepare.size
        if prepare.channels != channels or given != (height, width):
            told = "none" if given is None else f"{given[0]}x{given[1]}"
            raise ConfigError(
                f"the model is shown images of {channels} channels and {height}x{width} pixels, task.prepare makes "
                f"{prepare.channels} channels and the size {told}; leave task.prepare out, or make them agree"
            )

    @staticmethod
    def no_images(model: AnyModel) -> ConfigError:
        return ConfigError(
            f"{type(model).__name__} looks at no images; use model.kind=vit, vision, swin or convnet, or clip"
        )

    @property
    def prepared(self) -> Preparation:
        """How pictures become numbers, which must be known by now."""
        if self.prepare is None:
            raise ConfigError("how images are prepared is not known yet; the model tells (task.fitted)")
        return self.prepare

    def decoded(self, cell: str, draw: np.random.Generator | None) -> Tensor:
        prepare = self.prepared
        picture = upright(place_of(cell), prepare.channels)
        if draw is None:
            return prepare.numbers(prepare.resized(picture))
        picture = self._changed(picture, draw, whole=True)
        return prepare.numbers(self._changed(prepare.resized(picture), draw, whole=False))

    def _changed(self, picture: Image.Image, draw: np.random.Generator, *, whole: bool) -> Image.Image:
        for one in self.augments(OfPicture):
            if one.whole is whole:
                picture = one.picture(picture, draw)
        return picture

    def looked(self, cell: str) -> int:
        place = place_of(cell)
        if isinstance(place, Path) and self.check == "header":
            must_open(place)
        elif isinstance(place, Path):
            upright(place)
        return 1


class Images(PictureTask, ClassesTask):
    """One class of an image: -log p(c | x), p = softmax( W pool(x) ), x the stream of its patches.

    Mixed examples count by their shares: -Σ_k λ_k log p(c_k | x).
    """

    kind: Literal["images"] = "images"

    @property
    def columns(self) -> tuple[str, ...]:
        return ("image", "label")

    @property
    def otherwise(self) -> str:
        return ". Texts of images are learnt by heed train clip-small"

    def must_fit(self, model: AnyModel) -> None:
        if not isinstance(model, Sees) or not isinstance(model, Asked) or "pooled" not in model.heads:
            raise self.no_images(model)

    def side_by_side(self, loaded: Sequence[Loaded]) -> Padded:
        return Pixels.of_images([one.numbers for one in loaded])

    def logits(self, model: AnyModel, batch: Batch) -> Tensor:
        if not isinstance(model, Sees) or not isinstance(model, Asked):
            raise self.no_images(model)
        seen: Seen = model.see(batch.inputs.tokens)
        logits: Tensor = model.heads["pooled"](seen.parts[0], seen)
        return logits

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> ImageClassification:
        return ImageClassification(model, self.prepared, self.classes, "single_label_classification")

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        (known, classes), (asked, wanted) = (self._pixels(some) for some in (train, examples))
        found = {"majority": most_frequent(classes, len(wanted)), "linear": linear_numbers(known, classes, asked)}
        return {name: single_class(wanted, one, self.classes) for name, one in found.items()}

    def _pixels(self, examples: Examples) -> tuple[Numbers, Numbers]:
        """The bare pixels of small pictures, [images, pixels], and their classes."""
        samples = self.found(examples).samples
        height, width = self.prepared.crop or self.prepared.size or (FLOOR_SIDE, FLOOR_SIDE)
        small = Preparation(
            size=(min(height, FLOOR_SIDE), min(width, FLOOR_SIDE)),
            mean=(0.0,) * self.prepared.channels,
            std=(1.0,) * self.prepared.channels,
        )
        rows = [small.one(place_of(sample.cell)).flatten().numpy() for sample in samples]
        return np.stack(rows), np.array([int(sample.label[0]) for sample in samples])
