"""Whose fault an exception is: heed's own, the target's, or nobody's, where the target refuses what it need not take.

Only what the target raises inside its own code, on an input that it should take, says something about it.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from traceback import FrameSummary

import torch

from .outcome import Clue, Outcome, Sure

HERE, TORCH = str(Path(__file__).parent), str(Path(torch.__file__).parent)
FOREIGN, CALLED = str(Path(HERE) / "foreign"), str(Path(TORCH) / "nn" / "modules" / "module.py")


class Fault(StrEnum):
    """Whose it is."""

    HEED = "heed's own"
    TARGET = "the target's"
    REFUSED = "the target refuses this input"


@dataclass(frozen=True)
class Trouble:
    """An exception, understood."""

    fault: Fault
    words: str  # what was raised, and where

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        theirs = _theirs(list(traceback.extract_tb(error.__traceback__)))
        words = f"{type(error).__name__}: {str(error).strip()[:300]}{cls.place(error)}"
        if not theirs:
            return cls(Fault.HEED, words)
        line = (theirs[-1].line or "").lstrip()
        refused = isinstance(error, AssertionError | NotImplementedError) or line.startswith(("raise ", "assert "))
        return cls(Fault.REFUSED if refused else Fault.TARGET, words)

    @staticmethod
    def place(error: BaseException) -> str:
        """Where it was raised: in the target's own code, if it got there."""
        frames = list(traceback.extract_tb(error.__traceback__))
        shown = _theirs(frames) or frames
        return f" at {shown[-1].filename}:{shown[-1].lineno}" if shown else ""

    def outcome(self, probe: str) -> Outcome:
        """What it says about the target: something only if it is the target's own."""
        if self.fault is Fault.TARGET:
            words = f"raised {self.words}"
            return Outcome.broken(probe, words, Clue("raises", Sure.LIKELY, f"{probe}: {words}"))
        told = "heed's own trouble" if self.fault is Fault.HEED else "it refuses the input"
        return Outcome.troubled(probe, f"{told}: {self.words}")


def _theirs(frames: list[FrameSummary]) -> list[FrameSummary]:
    """The frames of the target's own code: those behind the last one of heed's, without torch's way of calling it."""
    ours = [place for place, frame in enumerate(frames) if _machinery(frame)]
    rest = frames[ours[-1] + 1 :] if ours else frames
    called = bool(ours) and frames[ours[-1]].filename.startswith(FOREIGN)
    found = [frame for frame in rest if not frame.filename.startswith((HERE, TORCH))]
    if found or not called:
        return found
    return [frame for frame in rest if frame.filename.startswith(TORCH) and frame.filename != CALLED]


def _machinery(frame: FrameSummary) -> bool:
    """Whether a frame is heed's; those through which an operation that is traced, or kept off a GPU, passes are not."""
    return frame.filename.startswith(HERE) and frame.name not in ("__torch_dispatch__", "__torch_function__")
