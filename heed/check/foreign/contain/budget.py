"""How much may be tried: a number of tries, which decides; and computing, far beyond what so many of them take."""

from __future__ import annotations

from time import process_time


class Budget:
    """`most` tries; of tries that take long no others after `seconds` of computing, though `least` in any case.

    A number is the same on every machine, and so is the verdict that hangs on it. The seconds only keep a target of
    which each try takes long from taking all day: they are many times what the tries of usual targets need.
    """

    def __init__(self, most: int, seconds: float, least: int = 1) -> None:
        self._made, self._most, self._least, self._until = 0, most, least, process_time() + seconds

    def spent(self) -> bool:
        """Whether no other try is to be made; counts one if it is."""
        self._made += 1
        return self._made > self._most or (self._made > self._least and process_time() > self._until)
