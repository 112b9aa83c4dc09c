"""Files and folders that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A path to write a file to; it takes the target's place when all of it is on the disk, else it is removed."""
    fresh = target.with_name(f".{target.name}.new")
    fresh.touch()
    mode = fresh.stat().st_mode  # as the user wants files to be; some libraries make theirs secret
    try:
        yield fresh
        fresh.chmod(mode)
        _sync(fresh)
        fresh.replace(target)
        _sync(target.parent)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """An empty folder to write files to; it gets its name when all of them are on the disk, else it is removed."""
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)  # what a killed process left
    fresh.mkdir(parents=True)
    try:
        yield fresh
        for file in filter(Path.is_file, fresh.rglob("*")):
            file.chmod(fresh.stat().st_mode & 0o666)  # some libraries make their files secret
            _sync(file)
        _sync(fresh)
        if target.exists():  # a folder cannot take the place of another in one move
            shutil.rmtree(target)
        fresh.replace(target)
        _sync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _sync(path: Path) -> None:
    """Ask the disk to hold it. Some file systems refuse that for folders, which costs safety on power loss only."""
    try:
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        if not path.is_dir():
            raise
