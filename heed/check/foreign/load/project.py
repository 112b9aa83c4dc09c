"""Where a stranger's file belongs: the folders in which what it imports is looked for, and its name as a module."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from .text import Source

ROOTS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yml")
SOURCES = ("src", "lib", "python")  # folders of a repository that hold its packages
DEEPEST = 12  # folders that are climbed at most


@dataclass(frozen=True)
class Root:
    """Folders to look in: before what is installed, and after it."""

    first: tuple[Path, ...]
    last: tuple[Path, ...]

    @classmethod
    def of_file(cls, path: Path) -> Root:
        """Of a file: with packages, what holds the outermost; without, its own folder; up to the repository's root."""
        package, here = package_folder(path), path.parent
        above = list(_up(package.parent if package is not None else here, repository(path)))
        within = [here, *here.parents][: len(here.parts) - len(package.parent.parts)] if package is not None else []
        roots = [above[-1] / name for name in SOURCES]
        near = [folder for folder in _working() if path.is_relative_to(folder)]
        far = [folder for folder in _working() if folder not in near]
        first = _there([*above, *roots, *near])
        return cls(first, tuple(folder for folder in _there([*within, *far]) if folder not in first))

    @classmethod
    def of_working_directory(cls) -> Root:
        """Of a dotted name."""
        return cls(_there(_working()), ())

    @property
    def folders(self) -> tuple[Path, ...]:
        return (*self.first, *self.last)

    def holds(self, spec: ModuleSpec) -> bool:
        """Whether what was found lies in one of the folders."""
        places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or [])
        return any(Path(place).resolve().is_relative_to(folder) for place in places for folder in self.folders)


def package_folder(path: Path) -> Path | None:
    """The folder of the outermost package that a file is in."""
    found = None
    for folder in path.parents:
        if not (folder / "__init__.py").is_file():
            break
        found = folder
    return found


def repository(path: Path) -> Path | None:
    """The root of the repository that a file is in, if there are signs of one."""
    for folder in path.parents[:DEEPEST]:
        if any((folder / name).exists() for name in ROOTS):
            return folder
    return None


def names(path: Path, source: Source) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """What a file may be called as a module, and the folder above its outermost package: the likeliest first.

    Folders without `__init__.py` are packages where a relative import climbs to them, or the file imports from them.
    """
    here = path.parent
    stem = () if path.name == "__init__.py" else (path.stem,)
    package = package_folder(path)
    depth = 0 if package is None else len(here.parts) - len(package.parent.parts)
    climbs, insides = _imports(source)
    folders = [here, *here.parents][:DEEPEST]
    named = next((n for n, folder in enumerate(folders, 1) if _has(folder, insides.get(folder.name, []))), 0)
    start = max(depth, climbs, named)
    for size in range(start, min(max(start, DEEPEST), len(here.parts) - 1) + 1):
        above = here.parents[size - 1] if size else here
        yield above, (*here.parts[len(here.parts) - size :], *stem)


def _imports(source: Source) -> tuple[int, dict[str, list[str]]]:
    """How far the relative imports of a text climb, and what the others want of which package."""
    climbs, insides = 0, dict[str, list[str]]()
    try:
        nodes = list(ast.walk(source.tree))
    except SyntaxError:  # told when it is run
        nodes = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            climbs = max(climbs, node.level)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            wanted = [alias.name for alias in node.names]
            for name in wanted if isinstance(node, ast.Import) else [node.module or ""]:
                top, *inside = name.split(".")[:2]
                insides.setdefault(top, []).extend(inside or (wanted if isinstance(node, ast.ImportFrom) else []))
    return climbs, insides


def _has(folder: Path, insides: Sequence[str]) -> bool:
    """Whether one of the names is a module or a folder in a folder."""
    return any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for name in insides)


def found(top: str, folders: Sequence[Path], but: str | None = None) -> ModuleSpec | None:
    """A module or package in one of the folders; not the file that asks for it, nor a folder without `__init__.py`."""
    for folder in folders:
        spec = PathFinder.find_spec(top, [str(folder)])
        if spec is not None and spec.has_location and spec.origin != but:
            return spec
    return None


def found_folder(top: str, inside: Sequence[str], folders: Sequence[Path]) -> ModuleSpec | None:
    """A folder without `__init__.py` that has one of the names inside it, as a package."""
    fits = [folder / top for folder in folders if _has(folder / top, inside)]
    return folder_spec(top, fits) if fits else None


def folder_spec(name: str, folders: Sequence[Path | str]) -> ModuleSpec:
    """A package of folders without `__init__.py`."""
    spec = ModuleSpec(identifier(name), None, is_package=True)
    spec.submodule_search_locations = [str(folder) for folder in folders]
    return spec


def identifier(name: str) -> str:
    """A folder's name as that of a package: dots would divide it."""
    return re.sub(r"\W", "_", name)


def _up(folder: Path, root: Path | None) -> Iterator[Path]:
    """A folder and those above it, to the root of its repository or to the working directory, if it is below one."""
    ends = [end for end in (root, *_working()[:1]) if end is not None and folder.is_relative_to(end)]
    last = min(ends, key=lambda end: len(end.parts), default=folder)
    yield folder
    for above in folder.parents:
        if not above.is_relative_to(last):
            return
        yield above


def _working() -> list[Path]:
    """The working directory, and the folder of sources in it."""
    try:
        here = Path.cwd()
    except OSError:  # it was deleted
        return []
    return [] if here == Path(here.anchor) else [here, here / "src"]


def _there(folders: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def installed(name: str, home: Root) -> bool:
    """Whether Python itself finds a module of this name, elsewhere than in the folders of the project."""
    loaded = sys.modules.get(name)
    spec = getattr(loaded, "__spec__", None)
    for finder in () if spec is not None else sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            spec = find(name, None) if find is not None else None
        except Exception:  # a finder of others
            spec = None
        if spec is not None:
            break
    if spec is None:
        return loaded is not None
    located = spec.has_location or bool(spec.submodule_search_locations)
    return not located or not home.holds(spec)


def same_file(one: str | None, other: str | None) -> bool:
    """Whether two names are of one file."""
    if one is None or other is None:
        return False
    return one == other or (os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other))
