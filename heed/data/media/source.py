"""The user's images and sounds: folders of class folders, tables of paths, idx and npz. Files stay on the disk.

An example is the place of a file and what is told of it, its class or a text. What cannot be decoded is found out by
the task, which decodes.

folder   photos/cat/1.jpg is a cat; around the classes there may be train, valid and test
csv ...  tsv, csv, jsonl, parquet: a column of paths, relative to the table, and one of labels or texts
idx      ...images... and ...labels... beside it, as MNIST has them, also as .gz
npz      arrays of images and labels (x and y, x_train and y_train, ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import Any, Literal

from ...core.config import Flag, Share, Size, Text
from ...core.errors import InputError, counted
from ..base import Example, Examples, Name, Source
from ..bounds import Bounds, Budget
from ..files import Column, Files, Paths, Rows
from ..paths import names, there
from ..rows import Notes, Table
from . import arrays
from .folders import SUFFIXES, TABLES, classes, inside, outside, walked

FEW = 3  # files that are named


class MediaFiles(Source):
    """Examples that are files: what is told of each, and where it lies."""

    kind: Literal["media"] = "media"
    train: Paths | None = None  # a folder of class folders, a table of paths, an idx or npz file; or several
    valid: Paths | None = None  # for evaluation during training
    test: Paths | None = None  # for `heed eval` alone
    root: Text | None = None  # the folder that the paths of a table are in; None: that of the table
    columns: tuple[Column, ...] | None = None  # of a table: which are read, by name or number; None: the task's
    header: Flag | Literal["auto"] = "auto"  # of a table: whether the first line holds names; auto = by sight
    bad_rows: Literal["stop", "skip"] = "stop"  # what is done about rows that name no file
    held_out: Share = 0.1  # of train, for valid if there is none: from everywhere, so of every class
    max_files: Size = 1 << 22  # files or rows of a split

    def splits(self) -> tuple[Name, ...]:
        held = {"train": self.train is not None, "valid": self.valid is not None or self._holds_out}
        there: dict[str, bool] = {**held, "test": self.test is not None}
        every: tuple[Name, ...] = ("train", "valid", "test")
        return tuple(name for name in every if there[name])

    def split(self, name: Name, columns: tuple[str, ...]) -> Examples:
        if columns[0] not in SUFFIXES:
            raise InputError(
                f"data.kind=media holds images and sounds, and this task needs {', '.join(columns)}; set "
                "data.kind=files"
            )
        files = {"train": self.train, "valid": self.valid, "test": self.test}[name]
        if files is not None:
            found = self._read(files, columns, name)
            return found.kept(self.held_out) if name == "train" and self._holds_out else found.all()
        if name == "valid" and self._holds_out and self.train is not None:
            return self._read(self.train, columns, "train").held(self.held_out)
        if name == "train":
            raise InputError(_needed(columns))
        more = ", or data.train with data.held_out above 0" if name == "valid" else ""
        raise InputError(f"there is no {name} split; set data.{name} to a folder or a file{more}")

    @property
    def _holds_out(self) -> bool:
        return self.train is not None and self.valid is None and self.held_out > 0

    @cached_property
    def read_before(self) -> dict[tuple[Any, ...], Rows]:
        """What was read, so that train and what is held out of it are read once."""
        return {}

    def _read(self, files: str | tuple[str, ...], columns: tuple[str, ...], split: Name) -> Rows:
        key = (files, columns, split, self.root, self.columns, self.header, self.bad_rows, self.max_files)
        if key not in self.read_before:
            self.read_before[key] = self._read_anew([files] if isinstance(files, str) else files, columns, split)
        return self.read_before[key]

    def _read_anew(self, files: Sequence[str], columns: tuple[str, ...], split: Name) -> Rows:
        paths = [path for text in files for path in _expanded(text)]
        bounds = Bounds(line=1 << 20, rows=self.max_files, text=1 << 32, ratio=1000)
        table, notes = Table(len(columns)), Notes(Budget(bounds))
        for path in paths:
            for row in self._rows(path, columns, split, notes):
                table.add(row)
        if notes.bad and self.bad_rows == "stop":
            more = f"\n  ... and {notes.bad - len(notes.first):,} more" * (notes.bad > len(notes.first))
            listed = "\n  ".join([f"{counted(notes.bad, 'bad row')} in {names(paths)}:", *notes.first])
            raise InputError(f"{listed}{more}\nset data.bad_rows=skip to leave them out")
        if not len(table):
            told = "; ".join(notes.said)
            raise InputError(
                f"{names(paths)}: there is no {columns[0]}{f' ({told})' if told else ''}. {_taken(columns)}"
            )
        return Rows(names(paths), table, notes)

    def _rows(self, path: Path, columns: tuple[str, ...], split: Name, notes: Notes) -> Iterator[Example]:
        """What one path stands for."""
        suffix = path.with_suffix("").suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
        if path.is_dir():
            found = walked(path, SUFFIXES[columns[0]], self.max_files)
            notes.said |= dict.fromkeys(found.told())
            told = ((file, name) for file, name in classes(path, found.files))
            return ((file, name if columns[1] in ("label", "heard") else _words(name)) for file, name in told)
        if suffix in TABLES:
            return self._table(path, columns, notes)
        if arrays.is_array(path) and columns[0] == "image":
            return iter(arrays.rows(path, split))
        raise InputError(f"{path} is no folder of class folders and no table of paths. {_taken(columns)}")

    def _table(self, path: Path, columns: tuple[str, ...], notes: Notes) -> Iterator[Example]:
        """Rows of a table, whose paths must lead to files below its folder."""
        files = Files(train=str(path), columns=self.columns, header=self.header, bad_rows=self.bad_rows, held_out=0.0)
        root = Path(self.root).expanduser() if self.root is not None else path.absolute().parent
        real = root.resolve()
        for number, (name, *told) in enumerate(files.split("train", columns), 1):
            place = root / name
            if inside(place, real):
                yield (str(place), *told)
            elif outside(place, real):
                notes.problem(
                    path, number, f"{name[:80]} leads out of {root}; set data.root to the folder of all files"
                )
            else:
                notes.problem(path, number, f"there is no file {str(place)[:200]}")


def _expanded(text: str) -> list[Path]:
    """A folder, a file, or all that a pattern matches."""
    path = Path(text).expanduser()
    if path.exists() or not any(mark in text for mark in "*?["):
        there(path)
        return [path]
    matched = sorted(map(Path, glob(str(path), recursive=True)))
    if not matched:
        raise InputError(f"nothing matches {path}; a * stands for any part of a name, ** for any folders")
    return matched


def _words(name: str) -> str:
    """The name of a folder as words."""
    return name.replace("_", " ").replace("-", " ").strip() or name


def _taken(columns: tuple[str, ...]) -> str:
    thing, told = columns[0], columns[1]
    more = ", or an idx or npz file" if thing == "image" else ""
    return (
        f"Taken are a folder with a folder for each class ({thing}s in it: {', '.join(sorted(SUFFIXES[thing]))}), a "
        f"table (csv, tsv, jsonl, parquet) of {thing} and {told}, the paths relative to it{more}"
    )


def _needed(columns: tuple[str, ...]) -> str:
    return (
        "there is no data to learn from; give your files: --data PATH, in Python data=PATH (data.train in a recipe). "
        f"{_taken(columns)}"
    )
