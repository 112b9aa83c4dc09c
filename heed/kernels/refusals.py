"""Why a kernel refused what it was told: its number (`Refusal` in `source/checks.h`), in words."""

from __future__ import annotations

from enum import IntEnum

from torch import Tensor

from ..core.errors import InputError


class Refusal(IntEnum):
    """What an entry point of the kernels gives."""

    DONE = 0
    VALUES = 1
    SIZES = 2
    MISSING = 3
    THREADS = 4
    PROGRAM = 5
    CACHES = 6
    POSITIONS = 7


WORDS: dict[int, str] = {
    Refusal.VALUES: "a number that is outside of what is allowed: a token that is not in the vocabulary",
    Refusal.SIZES: "counts that do not fit together, or more numbers than memory can hold",
    Refusal.MISSING: "no address where there must be numbers",
    Refusal.THREADS: "fewer threads than one, or more than 16,384; torch.set_num_threads sets them",
    Refusal.PROGRAM: "an instruction that does not fit its registers, its cells, its KV cache or its matrix",
    Refusal.CACHES: "a KV cache without room for what comes, or with entries that lie outside of it",
    Refusal.POSITIONS: "a position for which there is no code",
}


def must_be_done(refused: int, tokens: Tensor | None = None, position: Tensor | None = None) -> None:
    """Raise heed's error if a kernel refused; nothing was read or written then."""
    if refused == Refusal.DONE:
        return
    if refused == Refusal.VALUES and tokens is not None:
        raise InputError(f"a token from {_range(tokens)} is not in the vocabulary")
    if refused == Refusal.POSITIONS and position is not None:
        raise InputError(f"a position from {_range(position)}, or of the tokens after it, has no code in this model")
    why = WORDS.get(refused, f"something that it refuses as {refused}, which this version does not know")
    raise InputError(f"the kernel was given {why}; nothing was done")


def _range(numbers: Tensor) -> str:
    return f"{int(numbers.min())} to {int(numbers.max())}"
