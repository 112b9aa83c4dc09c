"""What an engine tells of itself: whether it lives, and what it has done. Counts only; no prompts, no owners."""

from __future__ import annotations

from dataclasses import dataclass

BLEND = 0.1  # of the newest measurement in a running mean


@dataclass
class Statistics:
    """Of one model, since it was served."""

    waiting: int = 0
    running: int = 0
    finished: int = 0
    cancelled: int = 0
    expired: int = 0  # past their deadline
    failed: int = 0
    refused: int = 0  # at the door, because too many waited
    preempted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of those, found in the prefix tree
    written_tokens: int = 0
    retraced_tokens: int = 0  # computed again after a preemption
    calls: int = 0  # of the step program, each for some rows
    guessed_tokens: int = 0  # guessed ahead and stepped along
    accepted_tokens: int = 0  # of those, found to be right: written without a call of their own
    bytes_used: int = 0
    bytes_budget: int = 0
    prefix_bytes: int = 0
    prefix_nodes: int = 0
    ticks: int = 0
    tick_seconds: float = 0.0  # of all ticks together


@dataclass(frozen=True)
class Health:
    """Whether the engine's thread lives."""

    alive: bool
    draining: bool
    error: str | None = None  # what ended it


class Pace:
    """How long reading and stepping take here, as running means; it chooses how much is read in a tick, never bits."""

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._read = self._step = self._whole = 0.0  # seconds of a token, of all steps of a tick, of a request

    def read(self, tokens: int, seconds: float) -> None:
        """So many tokens of prompts took so long."""
        self._read = _blended(self._read, seconds / tokens)

    def stepped(self, seconds: float) -> None:
        """All steps of a tick took so long."""
        self._step = _blended(self._step, seconds)

    def answered(self, seconds: float) -> None:
        """A request took so long from its arrival on."""
        self._whole = _blended(self._whole, seconds)

    def budget(self, chunk: int, *, writing: bool) -> int:
        """Tokens to be read in the next tick, so that it stays below the gap."""
        left = self._gap - (self._step if writing else 0.0)
        return max(chunk, int(left / self._read)) if self._read else chunk

    def retry_after(self, waiting: int, rows: int) -> float:
        """Seconds until a queue of so many has moved on."""
        return max(1.0, self._whole * waiting / max(1, rows))


def _blended(mean: float, new: float) -> float:
    return new if not mean else (1 - BLEND) * mean + BLEND * new
