"""Images: from a file to the numbers that a model is fed, as the preprocessor_config.json beside it says.

    how = Preparation.of_folder("vit-base")
    images = how.batch(["cat.jpg", "dog.png"])        # [2, 3, 224, 224]

A file is not trusted: only plain raster formats are decoded, the first picture of several, and nothing with more pixels
than `PIXELS`, or more than its bytes can hold.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import torch
from annotated_types import Ge, Le
from numpy.typing import NDArray
from pydantic import BeforeValidator, ConfigDict, Strict, model_validator
from torch import Tensor

from ..core.config import Config, Data, Flag, Number, Positive, Size, read_data
from ..core.errors import ConfigError, InputError, MissingExtra

if TYPE_CHECKING:
    from PIL import Image

    Source: TypeAlias = Path | str | bytes | NDArray[np.uint8] | Tensor | Image.Image

Resample: TypeAlias = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
RESAMPLES: tuple[Resample, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # as Pillow counts

PIXELS = 1 << 26  # of an image, at most: 8192 x 8192
SIDE = 4096  # pixels of one side of what a model is shown
BYTES = 1 << 28  # of a file
SMALL = 1 << 20  # pixels that any file may claim
DENSE = 1 << 12  # pixels that a byte may stand for; a blank GIF has 1,300 of them
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
CHANNELS = (1, 3, 4)  # grey, colours, colours and how opaque they are
FILES = ("preprocessor_config.json", "processor_config.json")


class Preparation(Config):
    """x = (scale · crop( resize( image ) ) - mean) / std, every step optional, in the order in which they are named."""

    size: tuple[Size, Size] | None = None  # height and width, whatever becomes of the proportions
    shortest: Size | None = None  # or the shorter side, and the longer one in proportion
    longest: Size | None = None  # but that one at most
    resample: Resample = "bilinear"  # how pixels are computed when the size changes
    crop: tuple[Size, Size] | None = None  # height and width, from the middle; what is too small gets a black border
    scale: Positive | None = 1 / 255  # what pixels from 0 to 255 are multiplied by; None: nothing
    mean: tuple[Number, ...] | None = None  # of each channel
    std: tuple[Positive, ...] | None = None  # of each channel: what is left after the mean is divided by

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.size is not None and self.shortest is not None:
            raise ValueError("name size or shortest, not both")
        if self.longest is not None and self.shortest is None:
            raise ValueError("longest limits what shortest gives; name shortest too")
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise ValueError("mean and std belong together: name both, with one number for each channel")
        if self.channels not in (1, 3):
            raise ValueError(f"an image has one channel or three, not {self.channels}")
        for name, sides in (("size", self.size), ("crop", self.crop)):
            if sides is not None and max(sides) > SIDE:
                raise ValueError(f"{name} is {sides[0]}x{sides[1]}; a model is shown at most {SIDE} pixels a side")
        return self

    @property
    def channels(self) -> int:
        """Three are colours, one is grey."""
        return 3 if self.mean is None else len(self.mean)

    @classmethod
    def of(cls, theirs: Data) -> Self:
        """As a preprocessor_config.json says."""
        return cls(**Theirs.of(theirs).ours())

    @classmethod
    def of_folder(cls, folder: Path | str) -> Self:
        """As the file in a checkpoint's folder says."""
        found = cls.find(folder)
        if found is None:
            raise ConfigError(f"{folder} holds no {FILES[0]}, which says how its images are to be prepared")
        return found

    @classmethod
    def find(cls, folder: Path | str) -> Self | None:
        """The same; None if there is no such file."""
        alone, among = (Path(folder) / name for name in FILES)
        if alone.is_file():
            return cls.of(read_data(alone))
        if among.is_file() and isinstance(found := read_data(among).get("image_processor"), dict):
            return cls.of(found)
        return None

    def batch(self, sources: Sequence[Source]) -> Tensor:
        """Images of one size as one tensor. [B, C, H, W]"""
        images = [self.one(source) for source in sources]
        sizes = sorted({tuple(image.shape[1:]) for image in images})
        if len(sizes) != 1:
            raise InputError(f"images of {len(sizes)} sizes ({sizes[:4]}) are no batch; set size or crop, or give some")
        return torch.stack(images)

    def one(self, source: Source) -> Tensor:
        """One image. [C, H, W]"""
        return self.numbers(self.resized(upright(source, self.channels)))

    def resized(self, image: Image.Image) -> Image.Image:
        """A picture in the size that is asked for, before anything is cropped."""
        height, width = self._target(image.height, image.width)
        if (self.size or self.shortest) is None:
            return image
        return image.resize((width, height), RESAMPLES.index(self.resample))

    def numbers(self, image: Image.Image) -> Tensor:
        """A picture of that size as what a model takes. [C, H, W]"""
        pixels: NDArray[np.uint8] = np.asarray(image).reshape(image.height, image.width, self.channels)
        pixels = pixels if self.crop is None else _middle(pixels, self.crop)
        numbers: NDArray[Any] = pixels.astype(np.float32)
        if self.scale is not None:
            numbers = (pixels * np.float64(self.scale)).astype(np.float32)  # rounded once, as the references do
        if self.mean is not None:
            numbers = (numbers - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return torch.from_numpy(np.ascontiguousarray(numbers.transpose(2, 0, 1)))

    def _target(self, height: int, width: int) -> tuple[int, int]:
        """The size to resize to."""
        if self.size is not None:
            return self.size
        if self.shortest is None:
            return height, width
        short, long, wanted = min(height, width), max(height, width), float(self.shortest)
        if self.longest is not None and long / short * self.shortest > self.longest:
            wanted = self.longest * short / long
        sides = round(wanted), int(wanted * long / short)
        if self.longest is not None and short == sides[0]:
            sides = short, long
        if not 0 < sides[0] * sides[1] <= PIXELS:
            raise InputError(f"an image of {height}x{width} would become {sides[0]}x{sides[1]}; crop it first")
        return sides if height <= width else sides[::-1]


def upright(source: Source, channels: int = 3) -> Image.Image:
    """A file, its bytes, pixels or a Pillow image: turned as its camera was held, in colours or (1) in grey.

    What is transparent lies on white.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra.of("Pillow", "images") from None
    image = _decoded(source) if isinstance(source, Path | str | bytes) else _given(source)
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
    return image.convert("RGB" if channels == 3 else "L")


def must_open(path: Path) -> None:
    """Raise unless a file begins as an image that can be opened; what follows is not decoded."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingExtra.of("Pillow", "images") from None
    _decoded(path, whole=False)


def _decoded(source: Path | str | bytes, *, whole: bool = True) -> Image.Image:
    """The first picture of a file; if it is not wanted whole, what its header tells of it."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    name = "these bytes" if isinstance(source, bytes) else str(source)
    try:
        if not isinstance(source, bytes) and not Path(source).is_file():
            raise InputError(f"{name} is not a file; give the path of an image")
        length = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
        if length > BYTES:
            raise InputError(f"{name}: {length} bytes of image; heed opens at most {BYTES}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes that are checked here, and of data that is of no interest
            with Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS) as image:
                _must_fit(image.width, image.height, name)  # known from the header, before anything is decoded
                _must_hold(image.width * image.height, length, name)
                if not whole:
                    return image
                image.load()
                turned = ImageOps.exif_transpose(image)
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(f"{name} is no image that heed opens; it opens {', '.join(FORMATS)}") from None
    except Exception as error:  # decoders of broken files raise anything
        raise InputError(f"{name} cannot be decoded ({type(error).__name__}: {error}); is the file whole?") from None
    return turned


def _given(source: NDArray[np.uint8] | Tensor | Image.Image) -> Image.Image:
    """Pixels as a Pillow image."""
    from PIL import Image

    if isinstance(source, Image.Image):
        _must_fit(source.width, source.height, "this image")
        return source
    pixels: Any = source.detach().cpu().numpy() if isinstance(source, Tensor) else source
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        kind = pixels.dtype if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise InputError(f"an image is a path, bytes, a Pillow image or pixels from 0 to 255 as uint8, not {kind}")
    if pixels.ndim == 3 and pixels.shape[0] in CHANNELS:  # channels first, as models have them
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in CHANNELS) or not pixels.size:
        raise InputError(f"pixels must be [height, width], with 1, 3 or 4 channels or without, not {pixels.shape}")
    _must_fit(pixels.shape[1], pixels.shape[0], "these pixels")
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    return Image.fromarray(np.ascontiguousarray(pixels))


def _must_fit(width: int, height: int, name: str) -> None:
    if width * height > PIXELS:
        raise InputError(f"{name}: {width}x{height} pixels; heed opens at most {PIXELS}; make it smaller first")


def _must_hold(pixels: int, length: int, name: str) -> None:
    """A header may claim any size; the bytes for it must be there."""
    if pixels > max(SMALL, DENSE * length):
        raise InputError(
            f"{name}: {pixels:,} pixels are claimed by {length:,} bytes, which cannot hold them; is it whole?"
        )


def _middle(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """The middle of a picture, with a black border where it is too small. [H, W, C]"""
    for axis, wanted in enumerate(size):
        have = pixels.shape[axis]
        if wanted > have:
            before = -(-(wanted - have) // 2)
            border = [(0, 0)] * 3
            border[axis] = (before, wanted - have - before)
            pixels = np.pad(pixels, border)
        else:
            begin = (have - wanted) // 2
            pixels = pixels.take(range(begin, begin + wanted), axis)
    return pixels


def _square(value: object) -> object:
    """One number for both sides, or two, or a table of them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"height": value, "width": value}
    return {"height": value[0], "width": value[1]} if isinstance(value, list | tuple) and len(value) == 2 else value


class Sides(Config):
    """How large, in the reference's words."""

    height: Size | None = None
    width: Size | None = None
    shortest_edge: Size | None = None
    longest_edge: Size | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        named = {name for name, value in self if value is not None}
        if named not in ({"height", "width"}, {"shortest_edge"}, {"shortest_edge", "longest_edge"}):
            given = ", ".join(sorted(named)) or "nothing"
            raise ValueError(f"name height and width, or shortest_edge (and longest_edge); it names {given}")
        return self

    @property
    def both(self) -> tuple[int, int] | None:
        return None if self.height is None or self.width is None else (self.height, self.width)


class Theirs(Config):
    """The part of a preprocessor_config.json that matters here; what else it holds is passed over."""

    model_config = ConfigDict(extra="ignore")

    do_resize: Flag
    size: Annotated[Sides, BeforeValidator(_square)]
    resample: Annotated[int, Strict(), Ge(0), Le(len(RESAMPLES) - 1)]
    do_center_crop: Flag = False
    crop_size: Annotated[Sides, BeforeValidator(_square)] | None = None
    do_rescale: Flag = True
    rescale_factor: Positive = 1 / 255
    do_normalize: Flag = True
    image_mean: tuple[Number, ...] | Number
    image_std: tuple[Positive, ...] | Positive
    do_pad: Flag = False
    use_square_size: Flag = False

    @classmethod
    def of(cls, data: Data) -> Self:
        """With the defaults of the class that the file names."""
        name = data.get("image_processor_type") or data.get("feature_extractor_type")
        kind = str(name).removesuffix("Fast").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
        if kind not in PROCESSORS:
            known = ", ".join(f"{known}ImageProcessor" for known in PROCESSORS)
            raise ConfigError(f"images are to be prepared by {name!r}, which heed does not know; it knows {known}")
        given = {field: value for field, value in data.items() if value is not None}
        edge = given.get("size")
        if kind == "CLIP" and isinstance(edge, int) and not isinstance(edge, bool):
            given["size"] = {"shortest_edge": edge}  # one number is the shorter side there, both sides elsewhere
        return cls.load({**PROCESSORS[kind], **given})

    @model_validator(mode="after")
    def _can(self) -> Self:
        if self.do_pad or self.use_square_size:
            raise ValueError("do_pad and use_square_size are not what heed does with images")
        if self.do_center_crop and (self.crop_size is None or self.crop_size.both is None):
            raise ValueError("do_center_crop needs a crop_size with height and width")
        return self

    def ours(self) -> dict[str, Any]:
        """The same in heed's words."""
        made: dict[str, Any] = {"resample": RESAMPLES[self.resample]}
        made["scale"] = self.rescale_factor if self.do_rescale else None
        if self.do_resize:
            made |= {"size": self.size.both, "shortest": self.size.shortest_edge, "longest": self.size.longest_edge}
        if self.do_center_crop and self.crop_size is not None:
            made["crop"] = self.crop_size.both
        if self.do_normalize:
            made |= {"mean": _each(self.image_mean), "std": _each(self.image_std)}
        return made


HALF = {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5)}
PROCESSORS: dict[str, Data] = {  # what a file leaves out, by the class that it names
    "ViT": {"do_resize": True, "size": 224, "resample": 2, **HALF},
    "DeiT": {"do_resize": True, "size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224, **HALF},
    "CLIP": {
        "do_resize": True,
        "size": {"shortest_edge": 224},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": 224,
        "image_mean": (0.48145466, 0.4578275, 0.40821073),
        "image_std": (0.26862954, 0.26130258, 0.27577711),
    },
}


def _each(numbers: tuple[float, ...] | float) -> tuple[float, ...]:
    return numbers if isinstance(numbers, tuple) else (numbers,) * 3
