"""Which files are meant by what `heed run` is given: a path, a folder, a pattern, or lines with one of them each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ...data.media.folders import SUFFIXES, walked

if TYPE_CHECKING:
    from ...pipelines import Pipeline

MOST = 1 << 20  # files of a folder


def meant(pipeline: Pipeline, lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Every text or file, and whether it is one of several that were meant by one word.

    What names nothing on the disk stays what it is: it may be a text.
    """
    for line in lines:
        files = _files(line, pipeline.reads) if pipeline.reads else []
        yield from ((file, True) for file in files) if files else ((line, False),)


def _files(text: str, reads: str) -> list[str]:
    """The files of a folder or a pattern; none, if it is something else."""
    try:
        path = Path(text).expanduser()
        if path.is_dir():
            found = [str(file) for file in walked(path, SUFFIXES[reads], MOST).files]
            if not found:
                raise InputError(f"{text} holds no {reads} ({', '.join(sorted(SUFFIXES[reads]))})")
            return found
        if path.exists() or not any(mark in text for mark in "*?["):
            return []
        return sorted(one for one in glob(str(path), recursive=True) if Path(one).is_file())
    except (OSError, RuntimeError, ValueError):  # too long for a name: it is a text
        return []
