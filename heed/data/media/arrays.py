"""Many images in one file: idx, as MNIST has it, and npz, as numpy writes it. Pickles are refused.

A cell names one of them: the file, the array within it, and the number of the image. An array is read when the first
of its images is asked for, and kept while there is room.
"""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...core.errors import InputError
from ..base import Name
from ..paths import SPLIT_WORDS

Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]

MEMBER = "\x1f"  # between the parts of a cell (ASCII's unit separator); no path that people type holds it
LARGEST = 1 << 32  # bytes that an array may unpack to
HELD = 8  # arrays that a process keeps
IMAGES = ("images", "image", "x", "data", "arr_0")  # what an array of images is called in npz
LABELS = ("labels", "label", "y", "targets", "arr_1")
SPLITS: dict[str, Name] = {**SPLIT_WORDS, "t10k": "test"}
IDX = {8: np.uint8}  # types of idx that are pixels; the others are measurements
_NAMED = re.compile(r"images|labels")


class Member(NamedTuple):
    """One image of many in a file."""

    path: str
    key: str  # of the array, where a file holds several
    number: int

    @property
    def cell(self) -> str:
        return MEMBER.join([self.path, self.key, str(self.number)])

    def __str__(self) -> str:
        """For people."""
        return f"{self.path}[{self.key + ', ' if self.key else ''}{self.number}]"


def member(cell: str) -> Member | None:
    """What a cell names of a file that holds many; None if it is the path of a file of its own."""
    path, *rest = cell.split(MEMBER)
    return Member(path, rest[0], int(rest[1])) if len(rest) == 2 else None


def pixels(which: Member) -> Numbers:
    """One image, uint8: [H, W], or with channels."""
    images = _array(which.path, which.key, Path(which.path).stat().st_mtime_ns)
    found: Numbers = images[which.number]
    return found


def is_array(path: Path) -> bool:
    """Whether a file holds many images."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith((".idx", "ubyte", ".npz"))


def rows(path: Path, split: Name) -> list[tuple[str, str]]:
    """A cell and a label for every image of a file."""
    return _npz_rows(path, split) if path.suffix.lower() == ".npz" else _idx_rows(path)


def splits(files: Sequence[Path]) -> dict[Name, tuple[str, ...]]:
    """Files of many images by split, if their names, or for npz the arrays inside, tell them all."""
    found: dict[Name, tuple[str, ...]] = {}
    for path in files:
        if path.suffix.lower() == ".npz":
            names = {_split_of(key) for key in _keys(path)}
        else:
            names = {_split_of(path.name)} if "label" not in path.name.lower() else set()
        for name in names - {None}:
            if name is not None:
                found[name] = (*found.get(name, ()), str(path))
    return found if "train" in found else {}


# --- idx ---


def _idx_rows(path: Path) -> list[tuple[str, str]]:
    beside = path.with_name(_NAMED.sub("labels", path.name).replace("idx3", "idx1"))
    if beside == path or not beside.is_file():
        raise InputError(
            f"{path}: its labels are looked for in {beside.name} beside it, which is not there; name the two files "
            "...images... and ...labels..., as MNIST's are"
        )
    images, labels = (_array(str(one), "", one.stat().st_mtime_ns) for one in (path, beside))
    if images.ndim < 3 or labels.ndim != 1:
        raise InputError(f"{path}: needed are images [N, H, W] and labels [N], not {images.shape} and {labels.shape}")
    return _paired(path, "", images, labels)


def _read_idx(path: Path) -> Numbers:
    """Two zeros, the type, the number of sizes; the sizes; the numbers (LeCun 1998)."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in IDX or not 1 <= head[3] <= 4:
                raise InputError(f"{path} is no idx file of pixels or labels (uint8)")
            shape = tuple(int.from_bytes(file.read(4), "big") for _ in range(head[3]))
            size = int(np.prod(shape, dtype=np.float64))
            if size > LARGEST:
                raise InputError(f"{path} claims {shape}, {size:,} bytes; at most {LARGEST:,} are read of an array")
            data = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:  # gzip.BadGzipFile is an OSError
        raise InputError(f"{path} cannot be read as idx: {error}; copy it again") from None
    if len(data) != size:
        more = "fewer" if len(data) < size else "more"
        raise InputError(f"{path} holds {more} bytes than the {size:,} of {shape} that it claims; is it whole?")
    return np.frombuffer(data, np.uint8).reshape(shape)


# --- npz ---


def _npz_rows(path: Path, split: Name) -> list[tuple[str, str]]:
    keys = _keys(path)
    images, labels = (_key(keys, names, split) for names in (IMAGES, LABELS))
    if images is None or labels is None:
        raise InputError(
            f"{path} holds {', '.join(keys) or 'nothing'}; needed are an array of images ({', '.join(IMAGES)}) and one "
            f"of labels ({', '.join(LABELS)}), or x_{split} and y_{split}"
        )
    stamp = path.stat().st_mtime_ns
    found = _array(str(path), images, stamp)
    if found.dtype != np.uint8 or found.ndim not in (3, 4):
        raise InputError(f"{path}: {images} is {found.dtype} {found.shape}; needed is uint8 [N, H, W] or [N, H, W, C]")
    return _paired(path, images, found, _array(str(path), labels, stamp))


def _key(keys: Sequence[str], names: Sequence[str], split: Name) -> str | None:
    """The array of this split, else the one without a split in its name."""
    told = {key: [word for word in re.split(r"[^a-z0-9]+", key.lower()) if word] for key in keys}
    for wanted in (split, None):
        for name in names:
            for key, words in told.items():
                if _split_of(key) == wanted and ({name} <= set(words) or key == name):
                    return key
    return None


def _split_of(name: str) -> Name | None:
    words = re.split(r"[^a-z0-9]+|(?<=train)(?=\d)", name.lower())
    known = [
        SPLITS[word]
        for word in (re.sub(r"\d+k?$", "", one) if one != "t10k" else one for one in words)
        if word in SPLITS
    ]
    return known[0] if known else None


def _keys(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as file:
            too_large = sum(one.file_size for one in file.infolist()) > LARGEST
            names = [one.filename.removesuffix(".npy") for one in file.infolist()]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as npz: {error}; numpy.savez writes it") from None
    if too_large:
        raise InputError(f"{path} unpacks to more than {LARGEST:,} bytes, the most that is read; give a part of it")
    return names


def _read_npz(path: Path, key: str) -> Numbers:
    _keys(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            found: Numbers = file[key]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: {key} cannot be read: {error}. Pickled objects are never read") from None
    return found


# --- both ---


@lru_cache(HELD)
def _array(path: str, key: str, stamp: int) -> Numbers:
    """What stands under a key; `stamp`: when the file was written."""
    return _read_npz(Path(path), key) if key else _read_idx(Path(path))


def _paired(path: Path, key: str, images: Numbers, labels: Numbers) -> list[tuple[str, str]]:
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or len(images) != len(labels):
        raise InputError(f"{path}: {len(images):,} images and labels of shape {labels.shape}; needed is one for each")
    names: Mapping[Any, str] = {label: str(label) for label in np.unique(labels).tolist()}
    told = [names[label] for label in labels.tolist()]
    return [(Member(str(path), key, index).cell, label) for index, label in enumerate(told)]
