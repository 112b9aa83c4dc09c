"""SHA-256 of the files of a run, beside them in SHA256SUMS, which `sha256sum -c` reads as well.

A file and its digest cannot take their places in one move. So both digests, of the file that was there and of the one
that comes, stand in the list while one replaces the other: whenever the process is killed, one of them holds. A file
that was not there yet has the digest of an empty one until it comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import file_digest, sha256
from pathlib import Path

from ..core.atomic import replacing
from ..core.errors import RunError

SUMS = "SHA256SUMS"
LARGEST = 1 << 20  # bytes of such a list
ABSENT = sha256().hexdigest()  # of no bytes
LINE = re.compile(r"([0-9a-f]{64})  ([\w.-]+(?:/[\w.-]+)*)\n", re.ASCII)

Digests = Mapping[str, tuple[str, ...]]  # by name; several of a file that is just being replaced


def digest(path: Path) -> str:
    """Of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def listed(folder: Path) -> Digests | None:
    """What SHA256SUMS says; None if there is none. Only what heed itself writes is taken, to the last byte."""
    path = folder / SUMS
    if not path.is_file():
        return None
    if path.stat().st_size > LARGEST:
        raise RunError(f"{path} has {path.stat().st_size:,} bytes; a list of digests has at most {LARGEST:,}")
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}; copy it again") from None
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines(keepends=True):
        match = LINE.fullmatch(line)
        if match is None or ".." in match[2]:
            raise RunError(f"{path} is damaged: {line[:100]!r} is not a digest and a name; copy it again")
        found[match[2]] = (*found.get(match[2], ()), match[1])
    if not found:
        raise RunError(f"{path} is damaged: it is empty; copy it again")
    return found


def write(folder: Path, digests: Digests) -> None:
    """Make them the list of a folder."""
    lines = [f"{each}  {name}\n" for name in sorted(digests) for each in digests[name]]
    with replacing(folder / SUMS) as fresh:
        fresh.write_text("".join(lines), encoding="ascii", newline="\n")


def record(folder: Path, names: Iterable[str]) -> None:
    """Add these files, which are there."""
    write(folder, {**(listed(folder) or {}), **{name: (digest(folder / name),) for name in names}})


@contextmanager
def recorded(folder: Path, name: str) -> Iterator[Path]:
    """A path to write a file to; it takes its place as in `replacing`, and its digest that in the list."""
    with replacing(folder / name) as fresh:
        yield fresh
        before, found = listed(folder) or {}, digest(fresh)
        write(folder, {**before, name: (*_holding(folder / name, before.get(name, (ABSENT,))), found)})
    write(folder, {**before, name: (found,)})


def _holding(path: Path, told: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a file's digests that hold. There are several if its replacement was killed: then it is read."""
    if len(told) == 1:
        return told
    now = digest(path) if path.is_file() else ABSENT
    return tuple(each for each in told if each == now)


def forget(folder: Path, name: str) -> None:
    """Before a file is removed: it is not missing then."""
    before = listed(folder) or {}
    if name in before and len(before) > 1:
        write(folder, {other: found for other, found in before.items() if other != name})


def begins_as(path: Path, wanted: tuple[str, ...]) -> bool:
    """Whether some lines at the beginning of a file have this digest: lines were added to it since."""
    found = sha256()
    with path.open("rb") as file:
        for line in file:
            if found.hexdigest() in wanted:
                return True
            found.update(line)
    return found.hexdigest() in wanted


def problem(folder: Path, name: str, digests: Digests, *, grows: bool = False) -> str | None:
    """What is wrong with a file, in words; None if it is as it was written, or if the list does not speak of it.

    One that `grows` may have more lines than when its digest was taken.
    """
    path, wanted = folder / name, digests.get(name)
    if wanted is None:
        return None
    if not path.is_file():
        return None if ABSENT in wanted else f"{path} is missing, but {SUMS} lists it; copy it again"
    try:
        if begins_as(path, wanted) if grows else digest(path) in wanted:
            return None
    except OSError as error:  # of a dying disk
        return f"{path} cannot be read: {error.strerror or error}; copy it again"
    return (
        f"{path} is damaged: its SHA-256 is another than when it was written; copy it again or, if you changed it on "
        f"purpose, remove its line from {folder / SUMS}"
    )
