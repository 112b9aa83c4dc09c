"""The source code of the running Python's standard library: text for a language model that every machine has."""

from __future__ import annotations

import os
import platform
import sysconfig
import tokenize
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ..core.config import Size
from ..core.errors import InputError, counted
from .base import Example, Examples, Name, Source

COLUMN = "text"
SPLITS: tuple[tuple[Name, int], ...] = (("train", 90), ("valid", 5), ("test", 5))  # shares of a hundred
LEFT_OUT = (
    ("test", "tests", "idle_test"),  # tests
    ("site-packages", "dist-packages", "_bundled"),  # not of the library
    ("idlelib", "lib2to3", "turtledemo"),  # programs that come with it
    ("encodings", "pydoc_data"),  # tables of characters and help texts rather than code
    ("__pycache__",),
)
BUILT = ("_sysconfigdata", "config-")  # what begins so records how the interpreter was built: it differs by machine


class Stdlib(Source):
    """Each example is a module. With `bytes`, every module gives an excerpt, and all splits together are that small."""

    kind: Literal["stdlib"] = "stdlib"
    bytes: Size | None = None  # at most this much text; None = all there is

    def splits(self) -> tuple[Name, ...]:
        return tuple(name for name, _ in SPLITS)

    def split(self, name: Name, columns: tuple[str, ...]) -> Examples:
        if columns != (COLUMN,):
            raise InputError(f"the standard library has the column {COLUMN!r}, not {', '.join(map(repr, columns))}")
        home = library()
        files = modules(home)
        if not files:
            raise InputError(
                f"this Python keeps no sources in {home}; use a Python with the .py files of its standard library"
            )
        each = None if self.bytes is None else level([file.stat().st_size for file in files], self.bytes)
        return _Modules(name, home, [file for file in files if split_of(file.relative_to(home)) == name], each)


class _Modules(Examples):
    def __init__(self, name: Name, home: Path, files: list[Path], each: int | None) -> None:
        self._name = name
        self._texts: list[str] = []
        self.unreadable: list[str] = []
        for file in files:
            path = file.relative_to(home)
            try:
                with tokenize.open(file) as opened:  # in the encoding that the file itself declares
                    text = opened.read()
            except (SyntaxError, UnicodeDecodeError):
                self.unreadable.append(path.as_posix())
                continue
            text = text if each is None else excerpt(text, each, number_of(path))
            if text.strip():
                self._texts.append(text)
        if not self._texts:
            raise InputError(f"nothing is left of the standard library for {name}; allow more bytes")

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> Example:
        if not 0 <= index < len(self):
            raise IndexError(f"module {index} of {len(self)}")
        return (self._texts[index],)

    def report(self) -> str:
        characters, python = sum(map(len, self._texts)), platform.python_version()
        failed = f"; not readable: {', '.join(self.unreadable)}" if self.unreadable else ""
        size = f"{counted(len(self), 'file')}, {counted(characters, 'character')}"
        return f"stdlib, {self._name}: {size} of Python {python}; without tests, programs and tables{failed}"


def library() -> Path:
    """Where the running Python keeps its standard library."""
    return Path(sysconfig.get_path("stdlib"))


def modules(home: Path) -> list[Path]:
    """The files of the library, sorted by their paths."""
    unwanted = {name for names in LEFT_OUT for name in names}
    found: list[Path] = []
    for folder, below, files in os.walk(home):
        below[:] = [name for name in below if name not in unwanted and not name.startswith(BUILT)]
        found += [Path(folder, name) for name in files if name.endswith(".py") and not name.startswith(BUILT)]
    return sorted(found)


def split_of(path: Path) -> Name:
    """The split of a module: by its name, so that it stays where it is when other modules come and go."""
    place = number_of(path) % 100
    for name, share in SPLITS:
        if place < share:
            return name
        place -= share
    raise AssertionError("the shares do not make a hundred")


def number_of(path: Path) -> int:
    """A number that looks random and is always the same for the same path."""
    return zlib.crc32(path.as_posix().encode())


def level(sizes: list[int], total: int) -> int:
    """The largest size to which all may be cut such that they sum to no more than `total`, as water fills a basin."""
    left = total
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return max(sizes)


def excerpt(text: str, size: int, number: int) -> str:
    """Whole lines of no more than `size` bytes. `number` chooses the first: not every excerpt shall be a preamble."""
    lines = text.splitlines(keepends=True)
    sizes = [len(line.encode()) for line in lines]
    latest = last_start(sizes, size)
    first = number % (latest + 1)
    return "".join(_fitting(lines[first:], sizes[first:], size))


def last_start(sizes: list[int], room: int) -> int:
    """The last line from which on all lines to the end would still fill the room."""
    filled = 0
    for place in range(len(sizes) - 1, -1, -1):
        filled += sizes[place]
        if filled >= room:
            return place
    return 0


def _fitting(lines: list[str], sizes: list[int], room: int) -> Iterator[str]:
    for line, size in zip(lines, sizes, strict=True):
        room -= size
        if room < 0:
            return
        yield line
