"""Files and folders that are there whole or not at all, whatever happens while they are written.

Nothing is written through a link, and nobody can guess a name in advance: until it is whole, what is written has a
random name that was free, `.NAME.0123456789abcdef.new`, beside the one that it gets.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = re.compile(r"\.(.+?)(?:\.[0-9a-f]{16})?\.new", re.DOTALL)  # the last release wrote `.NAME.new`
STALE = 3600.0  # seconds without a byte, after which nobody writes to an unfinished file any more
NO_LINKS = os.O_NOFOLLOW if sys.platform != "win32" else 0  # there, only administrators make links


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A path to write a file to; it takes the target's place when all of it is on the disk, else it is removed.

    If the target is a link, the link is replaced; what it leads to stays as it is.
    """
    for left in unfinished(target.parent, target.name):
        with suppress(OSError):  # its writer was quicker
            if is_file(left) and time.time() - left.lstat().st_mtime > STALE:  # a killed process left it
                left.unlink()
    fresh = _beside(target)
    descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINKS, 0o666)
    mode = os.fstat(descriptor).st_mode  # as the user wants files to be; some libraries make theirs secret
    os.close(descriptor)
    try:
        yield fresh
        fresh.chmod(stat.S_IMODE(mode))
        _sync(fresh)
        fresh.replace(target)
        _sync(target.parent)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """An empty folder to write files to; it gets its name when all of them are on the disk, else it is removed.

    An empty folder of that name gives way; one that holds anything does not, nor does a link.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = _beside(target)
    fresh.mkdir()
    try:
        yield fresh
        for file in fresh.rglob("*"):
            if is_file(file):
                file.chmod(stat.S_IMODE(fresh.stat().st_mode) & 0o666)  # some libraries make their files secret
                _sync(file)
        _sync(fresh)
        if is_folder(target):
            target.rmdir()
        fresh.rename(target)
        _sync(target.parent)
    finally:
        remove(fresh)


def unfinished(folder: Path, name: str | None = None) -> list[Path]:
    """What is being written in a folder, or was when a process was killed; all of it, or what should become `name`."""
    try:
        every = sorted(folder.iterdir())
    except OSError:
        return []
    found = ((path, UNFINISHED.fullmatch(path.name)) for path in every)
    return [path for path, match in found if match and name in (None, match[1])]


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it; of a link the link alone. What cannot be removed stays."""
    with suppress(OSError):
        if is_folder(path):
            shutil.rmtree(path, ignore_errors=True)  # it does not follow links either
        else:
            path.unlink()


def aside(path: Path) -> Path:
    """Rename to what counts as unfinished, so that another can take its place."""
    hidden = _beside(path)
    path.rename(hidden)
    return hidden


def is_file(path: Path) -> bool:
    """A plain file, not a link to one, nor a pipe."""
    return _kind(path, stat.S_ISREG)


def is_folder(path: Path) -> bool:
    """A folder, not a link to one."""
    return _kind(path, stat.S_ISDIR)


def _kind(path: Path, is_kind: Callable[[int], bool]) -> bool:
    try:
        return is_kind(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.new")


def _sync(path: Path) -> None:
    """Ask the disk to hold it. Some file systems refuse that for folders, which costs safety on power loss only."""
    folder = path.is_dir()  # one that the user named may be a link
    try:
        descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR | NO_LINKS)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        if not folder:
            raise
