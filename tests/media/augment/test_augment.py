"""Augmentations: what each does to a picture, that nothing but the draw decides it, and that sizes stay."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from PIL import Image

from heed.core.errors import ConfigError
from heed.media.augment import AUGMENTS, OfPair, OfPicture, drawing
from heed.media.augment.base import Mixup
from heed.media.augment.pictures import Crop, Flip, Zoom
from heed.media.augment.rand import CHANGES, RandAugment
from heed.tasks import Images

Pixels: TypeAlias = "np.ndarray[Any, Any]"
PICTURES: list[Any] = [kind() for kind in AUGMENTS if issubclass(kind, OfPicture)]


def picture(mode: str = "RGB", size: tuple[int, int] = (20, 12)) -> Image.Image:
    numbers = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(numbers).convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("change", PICTURES, ids=lambda one: one.dump()["kind"])
def test_the_draw_alone_decides(change: OfPicture, mode: str) -> None:
    one, same = (change.picture(picture(mode), drawing(1, 2, 3)) for _ in range(2))
    assert np.array_equal(np.asarray(one), np.asarray(same))
    others = [change.picture(picture(mode), drawing(1, 2, number)) for number in range(8)]
    assert any(one.size != other.size or not np.array_equal(np.asarray(one), np.asarray(other)) for other in others)
    assert one.mode == mode
    if not change.whole:
        assert all(other.size == (20, 12) for other in others)


def test_every_change_of_rand_keeps_the_picture_a_picture() -> None:
    for change in CHANGES:
        for mode in ("RGB", "L"):
            for much in (-1.0, -0.3, 0.3, 1.0):
                changed = change(picture(mode), much)
                assert (changed.size, changed.mode) == ((20, 12), mode)
    for seed in range(40):
        assert RandAugment(strength=1.0, count=3).picture(picture(), drawing(seed, 0, 0)).size == (20, 12)


def test_as_many_changes_as_are_asked_for_go_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[float]()

    def noted(picture: Image.Image, much: float) -> Image.Image:
        made.append(much)
        return picture

    monkeypatch.setattr("heed.media.augment.rand.CHANGES", (noted,))
    for seed in range(10):
        RandAugment(strength=0.5, count=3).picture(picture(), drawing(seed, 0, 0))
    assert (len(made), set(made)) == (30, {-0.5, 0.5})


def test_crops_go_every_way() -> None:
    found = [np.asarray(Crop(pad=0.3).picture(picture("L"), drawing(0, 0, number))) for number in range(30)]
    edges = [(plane[0], plane[-1], plane[:, 0], plane[:, -1]) for plane in found]
    black = [sum(not edge.any() for edge in side) for side in zip(*edges, strict=True)]
    assert all(5 < count < 25 for count in black), black


def test_a_crop_moves_the_picture() -> None:
    moved = np.asarray(Crop(pad=0.5).picture(picture("L"), drawing(0, 0, 1)))
    whole = np.asarray(picture("L"))
    found = [
        (down, right)
        for down in range(-6, 7)
        for right in range(-10, 11)
        if np.array_equal(_shifted(whole, down, right), moved)
    ]
    assert len(found) == 1


def _shifted(plane: Pixels, down: int, right: int) -> Pixels:
    padded = np.pad(plane, ((6, 6), (10, 10)))
    return padded[6 + down : 18 + down, 10 + right : 30 + right]


def test_a_flip_is_a_mirror_and_a_zoom_is_a_part() -> None:
    mirrored = Flip(chance=1.0).picture(picture(), drawing(0, 0, 0))
    assert np.array_equal(np.asarray(mirrored), np.asarray(picture())[:, ::-1])
    parts = [Zoom(least=0.25).picture(picture(), drawing(0, 0, number)) for number in range(50)]
    areas = [part.width * part.height for part in parts]
    assert 0.15 * 240 <= min(areas) < 0.4 * 240
    assert 0.8 * 240 < max(areas) <= 240
    assert max(part.width for part in parts) <= 20
    assert max(part.height for part in parts) <= 12


def test_mixup_is_a_share_of_both() -> None:
    mixup = Mixup(alpha=1.0)
    shares = [mixup.share(drawing(0, 0, number)) for number in range(200)]
    assert 0.5 <= min(shares) < 0.6
    assert 0.9 < max(shares) <= 1.0
    assert isinstance(mixup, OfPair)
    one, other = torch.ones(2, 2), torch.zeros(2, 2)
    assert torch.equal(mixup.mixed(one, other, 0.75), torch.full((2, 2), 0.75))
    seldom = [Mixup(alpha=1.0, chance=0.1).share(drawing(0, 0, number)) for number in range(200)]
    assert 150 < sum(share == 1.0 for share in seldom) < 198


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="ratio"):
        Zoom(ratio=0.5)
    with pytest.raises(ConfigError, match="strenght"):
        Images.load({"kind": "images", "augment": [{"kind": "rand", "strenght": 0.5}]})
    assert Images.load(Images(augment=(Flip(),)).dump()).augment == (Flip(),)
