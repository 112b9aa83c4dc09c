"""Folders of small pictures that tests learn from: stripes that go across or down, noisy, of three sizes and modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from heed.core.config import override
from heed.runs.recipe import Recipe

CLASSES = ("across", "down")
MODES = ("RGB", "L", "RGBA", "P", "1", "I;16")
TREE: dict[str, Any] = {
    "data": {"kind": "media", "held_out": 0.2},
    "task": {"kind": "images"},
    "model": {
        "kind": "vit",
        "image": [16, 16],
        "channels": 1,
        "patch": [4, 4],
        "width": 16,
        "depth": 1,
        "heads": 2,
        "dropout": 0.1,
    },
    "training": {
        "steps": 6,
        "batch": 8,
        "evaluate": 3,
        "save": 3,
        "log": 1,
        "threads": 1,
        "optimizer": {"lr": 0.003},
        "schedule": {"kind": "constant", "warmup": 1},
    },
}
AUGMENTED = ["task.augment=[{kind='crop'},{kind='zoom'},{kind='flip'},{kind='rand'},{kind='mixup',alpha=1.0}]"]


def stripes(kind: str, number: int, side: int = 16) -> Image.Image:
    """Stripes of four pixels, their phase and their noise by the number."""
    draw = np.random.default_rng(number)
    wave = 255.0 * ((np.arange(side) + number) // 4 % 2)
    plane = np.broadcast_to(wave[:, None] if kind == "across" else wave, (side, side))
    return Image.fromarray(np.clip(plane + draw.normal(0, 40, plane.shape), 0, 255).astype(np.uint8))


def photos(root: Path, count: int = 12, *, sides: tuple[int, ...] = (16,), modes: tuple[str, ...] = ("L",)) -> Path:
    """A folder of class folders."""
    for kind in CLASSES:
        (root / kind).mkdir(parents=True)
        for number in range(count):
            picture = stripes(kind, number, sides[number % len(sides)])
            picture.convert(modes[number % len(modes)]).save(root / kind / f"{number:03}.png")
    return root


def recipe(data: Path, *changes: str) -> Recipe:
    return Recipe.load(override(override(TREE, {"data.train": str(data)}), changes))
