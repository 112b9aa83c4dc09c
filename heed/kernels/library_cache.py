"""The cache of compiled kernels. What is opened runs in this process: only what is whole, and what nobody else wrote.

A library is named by a digest of all that it was compiled from and by the SHA-256 of its bytes:
`heed-KEY-DIGEST.so`. One file appears at once or not at all (`core/atomic.py`), and one that was cut or damaged is not
what its name says: it is removed and compiled again. Two processes that compile at once do no harm.

Files and folders must belong to this user or to root, and nobody else may write to them. Where the user's cache cannot
be used (no home, another's, read-only, full) a folder of this user among the temporary ones serves.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..core.atomic import replacing
from .compiler import Unavailable

SUFFIX = ".so"


def folders() -> Iterator[Path]:
    """Where libraries may lie, links followed: HEED_CACHE or the user's cache; then a temporary folder of this user."""
    named = os.environ.get("HEED_CACHE")
    with suppress(RuntimeError):  # no HOME, and no user of this number
        base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heed"
        yield (base / "kernels").resolve()
    with suppress(OSError):  # there is none
        yield Path(tempfile.gettempdir()).resolve() / f"heed-{_me()}"


def find(key: str) -> Path | None:
    """The library of this key, if there is one that may be opened."""
    for folder in folders():
        with suppress(OSError):
            if not unsafe(folder):
                for path in sorted(folder.glob(f"heed-{key}-*{SUFFIX}")):
                    if _whole(path):
                        return path
    return None


def must_have_a_place() -> None:
    """Raise `Unavailable` unless a library could be kept: before it is compiled, which takes its time."""
    problems: list[str] = []
    if next(_usable(problems), None) is None:
        raise _nowhere(problems)


def put(key: str, data: bytes) -> Path:
    """Keep a library in the first folder that it may be opened from again."""
    problems: list[str] = []
    for folder in _usable(problems):
        try:
            place = _put(folder, key, data)
        except OSError as why:
            problems.append(f"{folder}: {why.strerror or why}")
            continue
        if problems:
            print(f"heed: kernels are kept in {folder} ({'; '.join(problems)})", file=sys.stderr)
        return place
    raise _nowhere(problems)


def _usable(problems: list[str]) -> Iterator[Path]:
    """Folders that are there by now, and nobody else's; why not, of the others."""
    for folder in folders():
        try:
            problem = _exposed(folder) or unsafe(_made(folder))
        except OSError as why:
            problem = f"{folder}: {why.strerror or why}"
        if problem:
            problems.append(problem)
        else:
            yield folder


def _nowhere(problems: list[str]) -> Unavailable:
    return Unavailable(f"there is no place to keep them: {'; '.join(problems)}. Name a folder of yours in HEED_CACHE")


def _made(folder: Path) -> Path:
    """With those above it, for this user alone, whatever the umask."""
    for above in reversed([folder, *folder.parents]):
        if not above.exists():
            above.mkdir(mode=0o700, exist_ok=True)
    return folder


def _put(folder: Path, key: str, data: bytes) -> Path:
    place = folder / f"heed-{key}-{hashlib.sha256(data).hexdigest()}{SUFFIX}"
    with replacing(place) as fresh:
        fresh.write_bytes(data)
    place.chmod(0o600)
    return place


def _whole(path: Path) -> bool:
    """Whether it may be opened. What is not what its name says is removed."""
    if _foreign(path, stat.S_IFREG):
        return False
    wanted = path.name.removesuffix(SUFFIX).rpartition("-")[2]
    if hashlib.sha256(path.read_bytes()).hexdigest() == wanted:
        return True
    with suppress(OSError):
        path.unlink()
    return False


def unsafe(folder: Path) -> str:
    """Why somebody else may have written what lies there; nothing, if nobody can."""
    return _foreign(folder, stat.S_IFDIR) or _exposed(folder)


def _foreign(path: Path, kind: int) -> str:
    told = path.lstat()
    if stat.S_IFMT(told.st_mode) != kind:
        return f"{path} is no {'folder' if kind == stat.S_IFDIR else 'file'}"
    if sys.platform == "win32":  # where modes tell nothing
        return ""
    if told.st_uid not in trusted():
        return f"{path} belongs to another user"
    others = told.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return f"others may write to {path}" if others else ""


def _exposed(path: Path) -> str:
    """Whether a folder above lets somebody else put another in the place of this one: its owner could, and so could all
    who may write to it, unless it is sticky as /tmp is. A group may: what it puts there belongs to another user.
    """
    for folder in path.parents:
        if folder.exists():
            told = folder.lstat()
            if told.st_uid not in trusted() | {_nobody()}:
                return f"{folder} belongs to another user"
            if told.st_mode & stat.S_IWOTH and not told.st_mode & stat.S_ISVTX:
                return f"anybody may write to {folder}"
    return ""


def trusted() -> set[int]:
    """This user and root, whose files may be opened."""
    return {_me(), 0}


def _me() -> int:
    return 0 if sys.platform == "win32" else os.geteuid()


def _nobody() -> int:
    """Whom folders of the system seem to belong to in a container that does not know their owner."""
    try:
        return int(Path("/proc/sys/fs/overflowuid").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
