"""One training at a time in a run folder: a lock that says whose it is and since when."""

from __future__ import annotations

import getpass
import json
import os
import platform
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from ..core.atomic import NO_LINKS
from ..core.errors import RunError

LOCK = ".training.lock"
LONGEST = 1000  # bytes that a lock says


@contextmanager
def locked(folder: Path) -> Iterator[str | None]:
    """Hold the folder; gives what a training that was killed left in its lock, in words, or None.

    The system itself holds the lock and lets go of it when the process ends, however that happens. The file says who.
    """
    path = folder / LOCK
    descriptor = _opened(path)
    try:
        before = _words(os.pread(descriptor, LONGEST, 0)) if sys.platform != "win32" else None
        text = json.dumps(_me()).encode()
        os.ftruncate(descriptor, 0)
        os.write(descriptor, text)
        yield before
    finally:
        if sys.platform == "win32":  # where a file that is open cannot be removed
            os.close(descriptor)
        with suppress(OSError):
            path.unlink()
        if sys.platform != "win32":
            os.close(descriptor)


def _opened(path: Path) -> int:
    """The lock's file, held by this process."""
    while True:
        try:
            descriptor = _taken(path)
        except OSError as error:
            raise RunError(f"{path} could not be taken: {error}; a training needs it for itself") from None
        if descriptor is not None:
            return descriptor


def _taken(path: Path) -> int | None:
    """None if its last holder removed it in the meantime."""
    if sys.platform == "win32":
        try:
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        except FileExistsError:
            raise _busy(path, path.read_bytes()[:LONGEST]) from None
    from fcntl import LOCK_EX, LOCK_NB, flock

    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NONBLOCK | NO_LINKS, 0o666)
    try:
        held = os.fstat(descriptor)
        if not stat.S_ISREG(held.st_mode) or held.st_nlink > 1:
            raise RunError(f"{path} is not a lock of heed's (another name of a file elsewhere?); remove it")
        flock(descriptor, LOCK_EX | LOCK_NB)
        now = path.lstat()
        if (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino):
            return descriptor
    except BlockingIOError:
        words = os.pread(descriptor, LONGEST, 0)
        os.close(descriptor)
        raise _busy(path, words) from None
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _busy(path: Path, text: bytes) -> RunError:
    who = _words(text) or "a process that did not say its name"
    remedy = "" if sys.platform != "win32" else f"; if it was killed, remove {path}"
    return RunError(
        f"{path.parent} is being trained by {who}; two trainings cannot write to one folder: "
        f"wait for it, stop it, or train into another folder{remedy}"
    )


def _me() -> dict[str, str | int]:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        user = str(os.getuid()) if sys.platform != "win32" else "?"
    since = datetime.now(UTC).isoformat(" ", "seconds")
    return {"process": os.getpid(), "host": platform.node(), "user": user, "since": since}


def _words(text: bytes) -> str | None:
    """Whose a lock is. Strangers may have written it: what is not as heed writes it is not repeated."""
    try:
        found = json.loads(text)
        return f"process {found['process']:d} of {found['user']!a} on {found['host']!a} since {found['since']!a}"
    except (ValueError, TypeError, LookupError, RecursionError):
        return None if not text else "a process that did not say its name"
