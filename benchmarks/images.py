"""Images, from scratch: what a shipped recipe reaches beside its floors, on digits, clothes and CIFAR-10.

mnist     12,000 digits, tested on 5,000
fashion   20,000 pieces of clothing, tested on 5,000; smaller crops, and mirror images
cifar     5,000 images of CIFAR-10, 32 × 32 in colours, tested on 1,000; crops and mirror images

All by the recipe convnet.

They need HEED_DATA, a folder with img/mnist.train12k.images.idx.gz (and .labels., .test.), img/fashion.train20k... and
img/cifar10.train5k.jpg.zip, img/cifar10.test1k.jpg.zip.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import heed
from benchmarks.measure import Figure
from benchmarks.quality import data_file, run_folder
from benchmarks.report import Row, Target

RECIPE = "convnet"
MINUTES = 60  # of one thread; 30 of two


class Subject(NamedTuple):
    """One set of images, what is set in the recipe, and what is to be reached."""

    name: str
    files: Mapping[str, str]
    goal: float
    settings: Mapping[str, object]


SUBJECTS = (
    Subject(
        "MNIST, 12,000",
        {"train": "img/mnist.train12k.images.idx.gz", "test": "img/mnist.test.images.idx.gz"},
        98.5,
        {},
    ),
    Subject(
        "Fashion-MNIST, 20,000",
        {"train": "img/fashion.train20k.images.idx.gz", "test": "img/fashion.test.images.idx.gz"},
        90.5,
        {
            "task.augment": [{"kind": "crop", "pad": 0.08}, {"kind": "flip"}],
            "model.widths": [32, 64, 128],
            "training.precision": "bfloat16",
            "training.steps": 1700,
        },
    ),
    Subject(
        "CIFAR-10, 5,000",
        {"train": "img/cifar10.train5k.jpg.zip", "test": "img/cifar10.test1k.jpg.zip"},
        55.0,
        {
            "task.augment": [{"kind": "crop"}, {"kind": "flip"}],
            "model.image": [32, 32],
            "model.channels": 3,
            "training.precision": "bfloat16",
            "training.steps": 1200,
        },
    ),
)


def rows(rounds: int | None) -> Iterator[Row]:
    """Each trained once; the peer is the best of its floors."""
    with run_folder() as folder:
        for number, subject in enumerate(SUBJECTS):
            files = {split: _unpacked(data_file(file), folder) for split, file in subject.files.items()}
            out = folder / str(number)
            outcome = heed.train(RECIPE, data=files, settings=dict(subject.settings), out=out, quiet=True)
            found = heed.eval(out, split="test", quiet=True)
            floor = max(float(one["accuracy"]) for one in found.floors["test"].values())
            accuracy = Figure.exact(float(found["test"]["accuracy"]), "")
            target = Target(subject.goal, of="heed", floor=True)
            yield Row(f"{subject.name}: accuracy; peer: its floor", accuracy, Figure.exact(floor, ""), target=target)
            minutes = Figure.exact(outcome.progress.seconds / 60, "")
            yield Row(f"{subject.name}: minutes of training", minutes, target=Target(MINUTES, of="heed"))


def _unpacked(path: Path, folder: Path) -> Path:
    """A zip of class folders as a folder."""
    if path.suffix != ".zip":
        return path
    place = folder / path.stem
    with zipfile.ZipFile(path) as file:
        file.extractall(place)
    return place
