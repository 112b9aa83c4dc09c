"""Which files are meant: a path, a folder, a pattern (glob) or several of them; and which split each belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TypeAlias, get_args

from ..core.config import nearest
from ..core.errors import InputError, counted
from .base import Name, near
from .columns import Format

SUFFIXES: dict[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
    ".conll": "conll",
    ".iob": "conll",
    ".bio": "conll",
    ".conllu": "conllu",
}
ONE_BY_ONE: dict[str, Format] = {".json": "squad"}  # named themselves, since in a folder they may be anything
SPLIT_WORDS: dict[str, Name] = {  # how people call the files of a split
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}
NAMES: tuple[Name, ...] = get_args(Name)
SHOWN = 3  # files that are named one by one

Place: TypeAlias = "str | Path"
Given: TypeAlias = "Place | Sequence[Place] | Mapping[str, Place | Sequence[Place]]"


@dataclass(frozen=True)
class Found:
    """The files that a path stands for, and how many others lie beside them."""

    paths: Sequence[Path]
    passed: int = 0


def format_of(path: Path) -> Format:
    """By the suffix."""
    found = _known(path, SUFFIXES | ONE_BY_ONE)
    if found is None:
        raise InputError(
            f"{path}: its suffix does not tell its format; known: {', '.join(SUFFIXES | ONE_BY_ONE)}, "
            "and .gz after all but .parquet. Rename it, or set data.format"
        )
    return found


def expanded(text: str, format: str = "auto") -> Found:
    """A file, all files of a folder, or all that a pattern such as `texts/*.txt` matches, in the order of their names.

    Of a folder, files of a known suffix are meant, in folders within it too; if the format is given, all files.
    """
    path = _path(text)
    if path.is_dir():
        return _folder(path, format)
    if path.exists() or not any(mark in text for mark in "*?["):
        there(path)
        return Found([path])
    matched = sorted(one for one in map(Path, glob(str(path), recursive=True)) if one.is_file())
    if not matched:
        raise InputError(f"no file matches {path}; a * stands for any part of a name, ** for any folders")
    return Found(matched)


def by_split(given: Given, alone: Name) -> dict[Name, tuple[str, ...]]:
    """Files by split: of a mapping as it says, else of the split `alone`. Paths become absolute.

    A folder whose files are all named after splits (train.tsv, valid.tsv ...) gives those splits, and so does one of
    images or sounds whose folders are.
    """
    if isinstance(given, Mapping):
        return {_split(str(name)): _absolute(places) for name, places in given.items()}
    paths = _absolute(given)
    if len(paths) == 1 and (folder := _path(paths[0])).is_dir():
        found = _splits_in(folder) or _folders_of_splits(folder)
        if found and alone == "train" and "train" not in found:
            raise InputError(
                f"the files of {folder} are named after splits ({', '.join(found)}), and none after train; "
                "say which is which: train=PATH, valid=PATH, test=PATH"
            )
        return found or {alone: paths}
    return {alone: paths}


def names(paths: Sequence[Path]) -> str:
    """For people: few by their names, many by their number."""
    if len(paths) <= SHOWN:
        return ", ".join(path.name for path in paths)
    return f"{len(paths):,} files, {paths[0].name} to {paths[-1].name}"


def _known(path: Path, suffixes: Mapping[str, Format] = SUFFIXES) -> Format | None:
    *_, before, last = ["", "", *(suffix.lower() for suffix in path.suffixes)]
    return suffixes.get(before if last == ".gz" else last)


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"there is no file {text}: there is no user of that name") from None


def there(path: Path) -> None:
    """Raise unless there is such a file or folder."""
    if path.exists():
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"there is no file {path}: there is no folder {folder}")
    like = near(path.name, (other.name for other in folder.iterdir()))
    raise InputError(f"there is no file {path}{like or f' in {folder}'}")


def _files_in(folder: Path) -> list[Path]:
    """All but hidden ones."""
    below = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in below if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _folder(folder: Path, format: str) -> Found:
    every = _files_in(folder)
    chosen = every if format != "auto" else [path for path in every if _known(path)]
    if not chosen:
        held = ", ".join(sorted({path.suffix or path.name for path in every})[:5]) or "nothing"
        raise InputError(
            f"{folder} holds no file of a format that heed reads ({', '.join(SUFFIXES)}, also .gz); it holds {held}. "
            "To read others, set data.format"
        )
    kinds = sorted({kind for path in chosen if (kind := _known(path))}) if format == "auto" else []
    if len(kinds) > 1:
        raise InputError(
            f"{folder} holds files of several formats ({', '.join(kinds)}); say which are meant, "
            f"as {folder / ('*' + chosen[0].suffix)}"
        )
    return Found(chosen, len(every) - len(chosen))


def _splits_in(folder: Path) -> dict[Name, tuple[str, ...]]:
    """By the names of its files, if all of them name a split; empty if none does."""
    files = [path for path in _files_in(folder) if _known(path)]
    found: dict[Name, list[str]] = {}
    for path in files:
        words = [SPLIT_WORDS[word] for word in re.split(r"[^a-z]+", path.name.lower()) if word in SPLIT_WORDS]
        if words:
            found.setdefault(words[0], []).append(str(path))
    named = sum(map(len, found.values()))
    if found.keys() <= {"train"}:  # a folder of texts, of which one happens to be called so, or training data alone
        return {}
    if named < len(files):
        raise InputError(
            f"{folder} holds {counted(named, 'file')} named after splits ({', '.join(found)}) and "
            f"{len(files) - named:,} others; say which is which: train=PATH, valid=PATH, test=PATH"
        )
    return {name: tuple(found[name]) for name in NAMES if name in found}


def _folders_of_splits(folder: Path) -> dict[Name, tuple[str, ...]]:
    """Of images and sounds; texts are told apart by the names of their files."""
    if any(_known(path) for path in folder.rglob("*") if path.is_file()):
        return {}
    from .media.folders import splits  # it reads paths as this file does

    return splits(folder)


def _split(name: str) -> Name:
    for known in NAMES:
        if name == known:
            return known
    now = SPLIT_WORDS.get(name)
    raise InputError(f"{name!r} is not a split{f'; it is called {now} here' if now else nearest(name, NAMES)}")


def _absolute(given: Place | Iterable[Place]) -> tuple[str, ...]:
    """Absolute, so that a run can be resumed from anywhere; `~` stays what it is."""
    several = [given] if isinstance(given, str | Path) else list(given)
    if not several or not all(isinstance(one, str | Path) for one in several):
        raise InputError(f"data is {given!r}; give the path of a file or a folder, or a list of paths")
    return tuple(str(one) if str(one).startswith("~") else str(Path(one).absolute()) for one in several)
