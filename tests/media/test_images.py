"""Images beside the reference library's own preparation, and files that are refused."""

from __future__ import annotations

import builtins
import json
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile
from torch import Tensor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from heed.core.errors import ConfigError, InputError, MissingExtra
from heed.media.images import PIXELS, PROCESSORS, Preparation, upright

REFERENCES = {"ViT": ViTImageProcessorPil, "DeiT": DeiTImageProcessorPil, "CLIP": CLIPImageProcessorPil}
SAME = 1e-6


def picture(height: int, width: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Smooth enough to be resized, rough enough to tell filters apart."""
    draw = np.random.default_rng(seed)
    depth = len(Image.new(mode, (1, 1)).getbands())
    pixels = draw.integers(0, 256, (height, width, depth), dtype=np.uint8)
    return Image.fromarray(pixels.squeeze(2) if depth == 1 else pixels, mode)


def stored(image: Image.Image, kind: str = "PNG", **more: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def wanted(reference: Any, image: Image.Image) -> Tensor:
    made: Tensor = reference(image, return_tensors="pt")["pixel_values"][0]
    return made


CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "do_resize": st.booleans(),
        "size": st.sampled_from([17, {"height": 9, "width": 14}, {"shortest_edge": 11}, [12, 8]])
        | st.sampled_from([{"shortest_edge": 12, "longest_edge": 15}, {"shortest_edge": 20, "longest_edge": 400}]),
        "resample": st.integers(0, 5),
        "do_center_crop": st.booleans(),
        "crop_size": st.sampled_from([7, 16, {"height": 30, "width": 5}]),
        "do_rescale": st.just(True),
        "rescale_factor": st.sampled_from([1 / 255, 0.01]),
        "do_normalize": st.booleans(),
        "image_mean": st.sampled_from([[0.1, 0.2, 0.3], 0.4]),
        "image_std": st.sampled_from([[0.5, 0.6, 0.7], 0.8]),
        "do_convert_rgb": st.sampled_from([True, None]),
    },
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(list(REFERENCES)),
    config=CONFIGS,
    height=st.integers(1, 40),
    width=st.integers(1, 40),
)
def test_as_the_reference_prepares_them(kind: str, config: dict[str, Any], height: int, width: int) -> None:
    if config.get("do_center_crop") and kind == "ViT":
        config = {"crop_size": 16} | config
    reference, image = REFERENCES[kind](**config), picture(height, width)
    theirs = wanted(reference, image)
    ours = Preparation.of({"image_processor_type": f"{kind}ImageProcessor", **config})
    assert torch.equal(ours.one(image), theirs.float())
    again = Preparation.of(json.loads(reference.to_json_string()))  # as it is written to a folder
    assert torch.equal(again.one(stored(image)), theirs.float())


@pytest.mark.parametrize("kind", REFERENCES)
def test_defaults_are_those_of_the_class_that_is_named(kind: str) -> None:
    for name in (f"{kind}ImageProcessor", f"{kind}ImageProcessorFast"):
        made = Preparation.of({"image_processor_type": name}).one(picture(40, 60))
        assert torch.equal(made, wanted(REFERENCES[kind](), picture(40, 60)))
    old = {"feature_extractor_type": f"{kind}FeatureExtractor", "size": 33, "image_mean": [0.5] * 3, "do_resize": True}
    assert Preparation.of(old).size == (None if kind == "CLIP" else (33, 33))
    assert Preparation.of(old).shortest == (33 if kind == "CLIP" else None)


@pytest.mark.parametrize("mode", ["L", "RGBA", "LA"])
def test_other_modes_become_colours_on_white(mode: str) -> None:
    image = picture(30, 20, mode)
    theirs = wanted(CLIPImageProcessorPil(), image)
    how = Preparation.of({"image_processor_type": "CLIPImageProcessor"})
    assert (how.one(image) - theirs).abs().max() <= SAME
    assert (how.one(stored(image)) - theirs).abs().max() <= SAME


def test_a_palette_with_a_transparent_colour_lies_on_white() -> None:
    image = picture(8, 8).quantize(4)
    image.info["transparency"] = 2
    clear = np.asarray(image) == 2
    shown = np.asarray(upright(stored(image, "GIF", transparency=2)))
    assert clear.any()
    assert (shown[clear] == 255).all()


def test_grey_models_are_fed_grey() -> None:
    how = Preparation(size=(5, 6), mean=(0.5,), std=(0.25,))
    image = picture(10, 12)
    grey = np.asarray(image.convert("L").resize((6, 5), Image.Resampling.BILINEAR))
    assert torch.allclose(how.one(image)[0], torch.from_numpy((grey / 255 - 0.5) / 0.25).float(), rtol=0, atol=SAME)


def test_pixels_bytes_and_files_are_the_same(tmp_path: Path) -> None:
    image = picture(9, 7)
    (tmp_path / "a.png").write_bytes(stored(image))
    how = Preparation(size=(6, 6))
    pixels = np.array(image)
    forms: list[Any] = [
        image,
        stored(image),
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        pixels,
        torch.from_numpy(pixels),
    ]
    forms.append(torch.from_numpy(pixels).permute(2, 0, 1))
    batch = how.batch(forms)
    assert batch.shape == (7, 3, 6, 6)
    assert all(torch.equal(one, batch[0]) for one in batch)
    grey = np.array(image.convert("L"))
    assert torch.equal(how.one(grey), how.one(grey[None]))
    assert torch.equal(how.one(grey), how.one(grey[:, :, None]))


def test_a_photo_is_turned_as_its_camera_was_held() -> None:
    image, exif = picture(5, 9), Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    turned = np.asarray(upright(stored(image, exif=exif)))
    assert (turned == np.rot90(np.asarray(image), -1)).all()


def test_only_the_first_picture_of_several_is_taken() -> None:
    first, second = picture(6, 6), picture(6, 6, seed=1)
    file = stored(first, "TIFF", save_all=True, append_images=[second])
    assert (np.asarray(upright(file)) == np.asarray(first)).all()


def test_a_folder_tells_how(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no preprocessor_config.json"):
        Preparation.of_folder(tmp_path)
    inner = {"image_processor_type": "CLIPImageProcessor", "crop_size": 8}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": inner}))
    assert Preparation.of_folder(tmp_path).crop == (8, 8)
    DeiTImageProcessorPil(crop_size=9).save_pretrained(tmp_path)
    assert Preparation.of_folder(tmp_path).crop == (9, 9)
    assert Preparation.load(Preparation.of_folder(tmp_path).dump()) == Preparation.of_folder(tmp_path)


def png_claiming(width: int, height: int) -> bytes:
    """A small file whose header claims a large picture of one colour."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8193, 9_500, 20_000, 2**31 - 1])
def test_bombs_are_refused_before_they_are_decoded(side: int) -> None:
    with pytest.raises(InputError, match="pixels; heed opens at most|cannot be decoded"):
        upright(png_claiming(side, side))


def test_broken_files_are_told(tmp_path: Path) -> None:
    good = stored(picture(40, 40))
    for broken in (good[: len(good) // 2], good[:40], png_claiming(4, 4)):
        with pytest.raises(InputError, match="is the file whole|is no image"):
            upright(broken)
    with pytest.raises(InputError, match="these bytes is no image that heed opens; it opens BMP, GIF, JPEG"):
        upright(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(InputError, match="is not a file"):
        upright(tmp_path)
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(InputError, match="text.png is no image that heed opens"):
        upright(tmp_path / "text.png")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(kind=st.sampled_from(["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP", "PPM"]), data=st.data())
def test_damaged_files_are_images_or_errors(kind: str, data: st.DataObject) -> None:
    file = bytearray(stored(picture(12, 12), kind))
    for _ in range(data.draw(st.integers(1, 6))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    try:
        image = upright(bytes(file))
    except InputError:
        return
    assert image.mode == "RGB"


def test_what_is_no_image_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="pixels from 0 to 255 as uint8, not float32"):
        upright(torch.zeros(3, 4, 4))
    with pytest.raises(InputError, match="not list"):
        upright([[1, 2], [3, 4]])  # type: ignore[arg-type]
    for shape in ((5,), (6, 6, 5), (0, 4), (2, 3, 4, 4)):
        with pytest.raises(InputError, match="pixels must be"):
            upright(np.zeros(shape, np.uint8))
    flat = np.broadcast_to(np.uint8(0), (PIXELS, 2))
    with pytest.raises(InputError, match="heed opens at most"):
        upright(flat)
    monkeypatch.setattr("heed.media.images.BYTES", 10)
    with pytest.raises(InputError, match="bytes of image; heed opens at most 10"):
        upright(stored(picture(4, 4)))


def test_what_cannot_be_a_batch_is_told() -> None:
    with pytest.raises(InputError, match=r"images of 2 sizes \(\[\(4, 4\), \(5, 4\)\]\) are no batch"):
        Preparation().batch([picture(4, 4), picture(5, 4)])
    with pytest.raises(InputError, match="images of 0 sizes"):
        Preparation().batch([])
    long = Image.new("RGB", (60_000, 1))
    with pytest.raises(InputError, match="an image of 1x60000 would become 224x13440000"):
        Preparation(shortest=224).one(long)


REFUSED = {
    "another class": ({"image_processor_type": "BlipImageProcessor"}, "it knows ViTImageProcessor, DeiTImageProcessor"),
    "no class": ({}, "prepared by None"),
    "padding": ({"do_pad": True}, "do_pad"),
    "a square": ({"use_square_size": True}, "use_square_size"),
    "a filter": ({"resample": 6}, "resample is 6"),
    "half a size": ({"size": {"height": 4}}, "it names height"),
    "words": ({"size": "large"}, "size is 'large'"),
    "a longest side": ({"size": {"longest_edge": 4}}, "it names longest_edge"),
    "a size too large": ({"size": 10**9}, "at most 4096 pixels a side"),
    "a crop too large": ({"do_center_crop": True, "crop_size": 10**9}, "at most 4096 pixels a side"),
    "a crop of nothing": ({"do_center_crop": True}, "do_center_crop needs a crop_size"),
    "no spread": ({"image_std": [0.0, 1.0, 1.0]}, "image_std"),
    "two channels": ({"image_mean": [0.1, 0.1], "image_std": [1.0, 1.0]}, "one channel or three, not 2"),
    "unequal": ({"image_mean": [0.1]}, "mean and std belong together"),
}


@pytest.mark.parametrize(("config", "message"), REFUSED.values(), ids=REFUSED)
def test_configs_are_refused(config: dict[str, Any], message: str) -> None:
    named = (
        config if config == {} or "image_processor_type" in config else {"image_processor_type": "ViTImageProcessor"}
    )
    with pytest.raises(ConfigError, match=message):
        Preparation.of({**named, **config})


def test_preparations_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ConfigError, match="name size or shortest, not both"):
        Preparation(size=(4, 4), shortest=4)
    with pytest.raises(ConfigError, match="name shortest too"):
        Preparation(longest=4)
    assert set(PROCESSORS) == set(REFERENCES)


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return found(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r'Pillow is not installed; run: pip install "heed-attention\[images\]"'):
        upright(b"")


def test_pixels_claimed_without_bytes_for_them_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", never)
    with pytest.raises(InputError, match=r"64,000,000 pixels are claimed by 17 bytes, which cannot hold them"):
        upright(b"P6 8000 8000 255\n")


def test_a_blank_image_may_be_small() -> None:
    file = BytesIO()
    Image.new("L", (3000, 3000)).save(file, "GIF")
    assert upright(file.getvalue()).size == (3000, 3000)
