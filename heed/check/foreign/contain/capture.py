"""What foreign code prints: kept apart from what heed itself says, also where C++ prints it."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TextIO

KEPT = 1 << 20  # bytes: more is not kept
SHOWN = 3  # lines in a note


@dataclass
class Output:
    """What was printed, on either stream, in order; there when the capture is over."""

    text: str = ""

    @property
    def note(self) -> str | None:
        """The first lines."""
        lines = [line.split("\r")[-1].strip() for line in self.text.splitlines()]  # a progress bar writes over itself
        lines = [line for line in lines if line]
        if not lines:
            return None
        more = f" (and {len(lines) - SHOWN} more lines)" if len(lines) > SHOWN else ""
        return f"it printed: {' | '.join(line[:120] for line in lines[:SHOWN])}{more}"


@contextmanager
def captured() -> Iterator[Output]:
    """Keep all that is written to standard output and error, by Python or below it; both are as before afterwards."""
    output, streams = Output(), (sys.stdout, sys.stderr)
    with tempfile.TemporaryFile() as kept:
        _flush(*streams)
        before = {number: _moved(number, kept) for number in (1, 2)}
        sys.stdout, sys.stderr = _stream(1), _stream(2)
        try:
            yield output
        finally:
            _flush(sys.stdout, sys.stderr)  # the target may have put its own there
            sys.stdout, sys.stderr = streams
            for number, copy in before.items():
                _put_back(number, copy)
            kept.seek(0)
            output.text = kept.read(KEPT).decode("utf-8", "replace")


def mute_at_exit() -> None:
    """Let nothing that foreign code does when the process ends reach standard output: it may hold JSON."""
    atexit.unregister(_mute)
    atexit.register(_mute)  # the last to be registered is the first to run


def _mute() -> None:
    _flush(sys.stdout)
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _moved(number: int, kept: IO[bytes]) -> int | None:
    """Let a descriptor write to the file; a copy of what it was, if it was open."""
    try:
        copy = os.dup(number)
    except OSError:
        copy = None
    os.dup2(kept.fileno(), number)
    return copy


def _put_back(number: int, copy: int | None) -> None:
    if copy is None:
        os.close(number)
        return
    os.dup2(copy, number)
    os.close(copy)


def _stream(number: int) -> TextIO:
    """A stream on a descriptor that outlives it: a logger that keeps it goes on to write where all others do."""
    return open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flush(*streams: TextIO | None) -> None:
    for stream in streams:
        with suppress(Exception):  # closed, detached, or no stream at all
            stream.flush()  # type: ignore[union-attr]
