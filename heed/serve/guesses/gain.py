"""Whether guesses pay: what calls of so many rows take here, and how often guesses were right.

This chooses how fast answers are, never which.
"""

from __future__ import annotations

from collections.abc import Sequence

BLEND = 0.2  # of the newest measurement in a running mean
FORGET = 1024  # calls after which all is measured again: other work on the machine may have ended
HOPE, WEIGHT = (
    0.5,
    2.0,
)  # the share of guesses that is taken to be right before any was looked at, and for how many it counts
FADE = 0.95  # of what was seen of a request before, at each of its calls


class Gain:
    """Seconds of calls by their rows, and of a guess. A number of rows that was never tried is taken to cost nothing
    more than fewer, so that it is tried.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._known = set[int]()  # whose first call is over, which makes room
        self._calls, self._guess = 0, 0.0

    def called(self, rows: int, seconds: float) -> None:
        """A call of so many rows took so long."""
        self._calls += 1
        if not self._calls % FORGET:
            self._seconds.clear()
        if rows in self._known:
            before = self._seconds.get(rows, seconds)
            self._seconds[rows] = before + BLEND * (seconds - before)
        self._known.add(rows)

    def guessed(self, tokens: int, seconds: float) -> None:
        """So many guesses took so long."""
        self._guess += BLEND * (seconds / tokens - self._guess)

    def count(self, rows: int, chances: Sequence[float]) -> int:
        """How many guesses go along with so many certain rows, the likeliest first: as many as give most tokens a
        second. By the chance of each.
        """
        best, count, expected = 0.0, 0, float(rows)
        for guesses in range(len(chances) + 1):
            expected += chances[guesses - 1] if guesses else 0.0
            seconds = self._of(rows + guesses) + guesses * self._guess
            if not seconds:  # nothing was measured yet
                return len(chances)
            if expected / seconds > best:
                best, count = expected / seconds, guesses
        return count

    def _of(self, rows: int) -> float:
        return max((seconds for known, seconds in self._seconds.items() if known <= rows), default=0.0)


class Rate:
    """How often the guesses of one kind were right for one request, those lately above all."""

    def __init__(self) -> None:
        self._looked, self._right = 0.0, 0.0

    def note(self, looked: int, right: int) -> None:
        """So many guesses were looked at, of which so many were right."""
        self._looked, self._right = FADE * self._looked + looked, FADE * self._right + right

    @property
    def share(self) -> float:
        return (self._right + HOPE * WEIGHT) / (self._looked + WEIGHT)
