"""How much may be tried: by the computing it takes, and never less than decides nearly every case."""

from __future__ import annotations

from time import process_time


class Budget:
    """Seconds of computing for tries, of which `least` are made however long they take.

    The time of this process alone is counted, so a busy machine leaves as many tries as a quiet one. A slow machine, or
    a try that imports something first, still leaves `least`: a verdict does not hang on either.
    """

    def __init__(self, seconds: float, least: int = 1) -> None:
        self._until, self._left = process_time() + seconds, least

    def spent(self) -> bool:
        """Whether no other try is to be made; counts one if it is."""
        self._left -= 1
        return self._left < 0 and process_time() > self._until
