"""Folders of files: a folder for each class, and around those perhaps a folder for each split. Links lead nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...core.errors import InputError, counted
from ..base import Name
from ..paths import SPLIT_WORDS
from . import arrays

SUFFIXES = {  # of files that hold one thing each, by the task's name for it
    "image": frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".pbm", ".tif", ".tiff", ".webp"}),
    "sound": frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au"}),
}
TABLES = frozenset({".csv", ".tsv", ".jsonl", ".parquet"})


@dataclass
class Walked:
    """The files of a folder, and what was not taken of it."""

    files: list[Path] = field(default_factory=list)
    outside: int = 0  # links that lead out of the folder, or nowhere
    others: int = 0  # files of another kind

    def told(self) -> list[str]:
        """For people."""
        counts = ((self.outside, "link", "out of the folder"), (self.others, "file", "of another kind"))
        return [f"{counted(number, what)} {how} left out" for number, what, how in counts if number]


def walked(folder: Path, suffixes: frozenset[str], most: int) -> Walked:
    """All files of these suffixes below a folder, in the order of their names; at most so many."""
    found, root = Walked(), folder.resolve()
    for place, folders, names in os.walk(folder, followlinks=False):
        hidden = [name for name in folders if name.startswith(".")]
        links = [name for name in folders if name not in hidden and (Path(place) / name).is_symlink()]
        found.outside += len(links)
        folders[:] = sorted(set(folders) - {*hidden, *links})
        for name in sorted(names):
            path = Path(place) / name
            if name.startswith("."):
                continue
            if path.suffix.lower() not in suffixes:
                found.others += 1
            elif not inside(path, root):
                found.outside += 1
            else:
                found.files.append(path)
        if len(found.files) > most:
            raise InputError(
                f"{folder} holds more than {counted(most, 'file')}, the most that is read; "
                "give a part of it, or raise data.max_files"
            )
    found.files.sort(key=lambda path: path.relative_to(folder).parts)
    return found


def inside(path: Path, root: Path) -> bool:
    """Whether it is a file below the (resolved) root, links followed."""
    real = _real(path)
    return real is not None and real.is_relative_to(root) and real.is_file()


def outside(path: Path, root: Path) -> bool:
    """Whether it is there, and not below the (resolved) root, links followed."""
    real = _real(path)
    return real is not None and not real.is_relative_to(root)


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # a link to nowhere or in a circle; no name that a disk takes
        return None


def classes(folder: Path, files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Every file with its class, which is the folder that it lies in, or that folder's parents' first."""
    bare = [path for path in files if path.parent == folder]
    if bare:
        raise InputError(
            f"{folder} holds {counted(len(bare), 'file')}, such as {bare[0].name}, that lie in no folder of a class; "
            f"if {folder.name} is itself a class, name the folder around it; else put each into a folder that is named "
            "after its class, or name a table of paths and labels (csv, tsv, jsonl)"
        )
    for path in files:
        yield str(path), path.relative_to(folder).parts[0]


def splits(folder: Path) -> dict[Name, tuple[str, ...]]:
    """The splits that a folder holds: by folders that are named after them, or files of many images that are."""
    visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    named = [path for path in visible if path.is_dir() and path.name.lower() in SPLIT_WORDS]
    every = [path for path in visible if path.is_dir()]
    if named and len(named) == len(every) and any(SPLIT_WORDS[path.name.lower()] == "train" for path in named):
        if any(one.is_dir() for path in named for one in path.iterdir()):
            return {SPLIT_WORDS[path.name.lower()]: (str(path),) for path in named}
        return {}
    return arrays.splits([path for path in visible if path.is_file() and arrays.is_array(path)])
