"""Time that a target really had: seconds in which the processor was somebody else's do not count.

What hangs or sleeps is ended by this clock as by any other. What computes is not: on a busy machine it has as long as
on a quiet one, so that a limit of time gives the same verdict on both.
"""

from __future__ import annotations

from time import monotonic


class Clock:
    """Seconds since it was made, of a process: this one, or another by its number."""

    def __init__(self, process: int | None = None) -> None:
        self._file = f"/proc/{'self' if process is None else process}/schedstat"
        self._begun = self._now()

    @property
    def seconds(self) -> float:
        return self._now() - self._begun

    def _now(self) -> float:
        return monotonic() - _waited(self._file)


def _waited(file: str) -> float:
    """Seconds in which the main thread was ready to run and had no processor; 0 where that is not told."""
    try:
        with open(file, encoding="ascii") as text:
            return int(text.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # another system, or a process that is gone
        return 0.0
