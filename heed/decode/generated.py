"""What decoding gives back: single tokens while it goes on, whole answers at its end. Ids only; no text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Why: TypeAlias = Literal["end", "stop", "limit"]  # an end token, a stop string, or as many tokens as were allowed


class Token(NamedTuple):
    """One written token, as soon as it is certain whether it belongs to the answer."""

    row: int  # which prompt it answers
    token: int
    logprob: float  # log p of the model itself: before penalties, temperature, truncation and constraints
    why: Why | None = None  # set on the last token of a row: why it ended
    kept: bool = True  # False for the end token, and for tokens from a stop string on


@dataclass(frozen=True)
class Generated:
    """One answer to one prompt."""

    tokens: tuple[int, ...]  # without the prompt, without the end token, cut before a stop string
    score: float  # sum of the log p of all that was written: `tokens`, `cut` and the end token
    why: Why
    cut: tuple[int, ...] = ()  # written, but cut off: the tokens of a stop string; the first may begin before it
    logprobs: tuple[float, ...] = ()  # log p of each of `tokens`, of `cut` and of the end token; they add up to `score`
