"""From what a user names (a folder, a file, a package, `place:Name`) to the targets in it."""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import open as decoded

from ..foreign.target import CannotCheck
from .read import Sighting, Sort, candidates

SOURCES = (".py", ".ipynb")
HUGE = 1 << 21  # bytes; nobody writes so much, a program does
# Folders that hold no code of the project itself. Hidden ones and environments are left out, too.
SKIPPED = frozenset(
    {"tests", "test", "testing", "build", "dist", "node_modules", "__pycache__", "site-packages", "venv", "env"}
)
TESTS = re.compile(r"(^test_.*|.*_test|^conftest|^setup)\.py$")
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Target:
    """One class, function or folder, as `heed.check` takes it, and where it was found by reading."""

    name: str
    place: tuple[str, int] | None = None


@dataclass(frozen=True)
class Targets:
    """All targets of what was named, and which files could not be read."""

    targets: Sequence[Target]
    files: int = 0
    notes: Sequence[str] = ()


def is_tree(word: str) -> bool:
    """Whether a word names a place with targets in it, and not a target: a folder or file of code, a package."""
    place = Path(word)
    if place.is_dir():
        return not is_checkpoint(place)
    if place.suffix in SOURCES:
        return True
    return ":" not in word and not place.exists() and DOTTED.fullmatch(word) is not None and bool(_origin(word))


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder holds a model rather than code. Some hold both: the code of a model that is not in a library."""
    if (folder / "config.json").is_file() and (any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))):
        return True
    return next(_below(folder), None) is None


def expanded(words: Sequence[str]) -> Targets:
    """Every target that the words name, each once."""
    targets: dict[str, Target] = {}
    notes, files = list[str](), 0
    for word in words:
        if not is_tree(word):
            targets.setdefault(word, Target(word))
            continue
        for path, name in _files(word):
            files += 1
            found, problem = _read(path)
            notes += [problem] if problem else []
            for one in found:
                if one.sort is Sort.UNCOVERED:
                    notes.append(f"{path}:{one.line}: {one.name} is not written with PyTorch")
                else:
                    targets[f"{name}:{one.name}"] = Target(f"{name}:{one.name}", (str(path), one.line))
    return Targets(list(targets.values()), files, notes)


def _read(path: Path) -> tuple[list[Sighting], str]:
    """What a file holds; or why it was not read."""
    try:
        if path.stat().st_size > HUGE:
            return [], f"{path}: larger than {HUGE >> 20} MiB"
        notebook = path.suffix == ".ipynb"
        with path.open(encoding="utf-8") if notebook else decoded(path) as file:  # a source may declare its encoding
            return candidates(file.read(), notebook=notebook), ""
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        return [], f"{path}{line}: {type(error).__name__}: {getattr(error, 'msg', None) or error}"


def _files(word: str) -> Iterator[tuple[Path, str]]:
    """Each source of a tree, and what it is called in a target: a path, or a module's dotted name."""
    place = Path(word)
    if place.is_dir():
        yield from ((path, path.as_posix()) for path in _below(place))
        return
    if place.suffix in SOURCES:
        if not place.is_file():
            raise CannotCheck(f"there is no file {place}")
        yield place, place.as_posix()
        return
    for origin in _origin(word):
        if origin.is_file():
            yield origin, word
            continue
        for path in _below(origin):
            if path.suffix == ".py":
                inner = path.relative_to(origin).with_suffix("").parts
                yield path, ".".join((word, *(inner[:-1] if inner[-1] == "__init__" else inner)))


def _below(folder: Path) -> Iterator[Path]:
    """The sources of a folder, in order, without tests, environments and what programs made."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(name for name in folders if not _skipped(here / name))
        for name in sorted(files):
            if name.endswith(SOURCES) and not TESTS.match(name):
                yield here / name


def _skipped(folder: Path) -> bool:
    name = folder.name
    return name in SKIPPED or name.startswith(".") or name.endswith(".egg-info") or (folder / "pyvenv.cfg").exists()


def _origin(dotted: str) -> list[Path]:
    """The folders or the file of a module; nothing of it is imported, nor of the packages that it lies in."""
    places: list[str] | None = ["", *sys.path]
    spec: importlib.machinery.ModuleSpec | None = None
    for part in dotted.split("."):
        if places is None:
            return []
        spec = importlib.machinery.PathFinder.find_spec(part, places)
        if spec is None:
            return []
        places = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    if places is not None:
        return [Path(place) for place in places]
    return [Path(spec.origin)] if spec is not None and spec.origin and spec.origin.endswith(".py") else []
