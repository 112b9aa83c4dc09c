"""Finding what is to be checked: `path/to/file.py:Name` or `package.module:Name`."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ...core.errors import HeedError


class CannotCheck(HeedError, RuntimeError):
    """A target that cannot be found, built or called; the message says what to do."""


def locate(target: str) -> Any:
    """The class or function that a target names. Its module is run: foreign code in this process."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise CannotCheck(
            f"{target!r} names no class or function; write path/to/file.py:Name or package.module:Name, "
            "or give the folder of a checkpoint"
        )
    module = _file(Path(place)) if place.endswith(".py") else _module(place)
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)  # also of a package that imports its names when they are asked for
        except AttributeError:
            raise CannotCheck(f"{place} has no {part!r}{_near(part, _public(module))}") from None
    return found


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CannotCheck(f"there is no file {path}")
    name = f"heed_checked_{path.stem}_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CannotCheck(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # its neighbours can be imported, as they can when it is run
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CannotCheck(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    return module


def _module(name: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise CannotCheck(f"there is no module {error.name}; is it installed, or do you mean a file (.py)?") from error
    except Exception as error:
        raise CannotCheck(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")


def _public(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1, 0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; it has {', '.join(sorted(names)[:12])}" if names else ""
