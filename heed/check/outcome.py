"""What a probe found: whether a statement holds, and what its failing points to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Status(StrEnum):
    """How a probe ended."""

    PASS = "pass"
    FAIL = "fail"
    NONE = "not applicable"


class Sure(IntEnum):
    """How sure a clue is."""

    CONVENTION = 0  # may be meant so: it is told, and fails only against what was declared
    HINT = 1  # something else may be behind it: it counts when another probe points the same way
    LIKELY = 2
    CERTAIN = 3  # the output equals that of the bug, or nothing else explains it


@dataclass(frozen=True)
class Clue:
    """What a failure points to."""

    slug: str
    sure: Sure
    evidence: str  # the smallest input that shows it, and the numbers
    explains: tuple[str, ...] = ()  # what follows from it in this case, besides what always does


@dataclass(frozen=True)
class Outcome:
    """How one probe ended, with its numbers."""

    probe: str
    status: Status
    words: str  # what holds, what does not, or why the question makes no sense here
    error: float = 0.0
    bound: float = 0.0
    clues: tuple[Clue, ...] = ()
    unasked: bool = False  # whether trouble kept it from being asked: nothing is cleared by it

    @classmethod
    def held(cls, probe: str, words: str, error: float = 0.0, bound: float = 0.0, *clues: Clue) -> Outcome:
        return cls(probe, Status.PASS, words, error, bound, clues)

    @classmethod
    def broken(cls, probe: str, words: str, *clues: Clue, error: float = 0.0, bound: float = 0.0) -> Outcome:
        return cls(probe, Status.FAIL, words, error, bound, clues)

    @classmethod
    def moot(cls, probe: str, why: str, *clues: Clue) -> Outcome:
        return cls(probe, Status.NONE, why, clues=clues)

    @classmethod
    def troubled(cls, probe: str, why: str) -> Outcome:
        return cls(probe, Status.NONE, f"could not be asked: {why}", unasked=True)
