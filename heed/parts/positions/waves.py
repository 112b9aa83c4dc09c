"""Waves over the positions: the frequencies that sinusoids and rotations share, and their exact angles.

    angle(p, c) = p · ω_c

Angles are computed in float64 whatever the model computes in: at position 10^6 a float32 angle is off by 0.03 radians,
a bfloat16 one by thousands. Only the cosine and the sine, which are at most 1, are rounded to the model's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Gt
from pydantic import Strict
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ...core.errors import ConfigError
from ...core.stamps import one_row
from .base import distinct

Base = Annotated[float, Strict(), Gt(1)]  # the slowest wave turns about this many times slower than the fastest
Spread = Literal["paper", "inclusive"]
MOST = 1 << 17  # waves, which are counted one by one: a width that no model has is refused before it costs time


def frequencies(count: int, base: float, spread: Spread = "paper") -> tuple[float, ...]:
    """ω_c for c = 0 .. count-1: geometric from 1 down, in one of the two published ways.

    "paper" is ω_c = base^(-c/count), which stops one step before 1/base (Vaswani et al. 2017, sec. 3.5; with
    width = 2·count this is base^(-2c/width)). "inclusive" is ω_c = base^(-c/(count-1)), which reaches 1/base
    (tensor2tensor, fairseq; the rotation of RetNet).
    """
    if count > MOST:
        raise ConfigError(f"a position code of {2 * count:,} channels; it may have {2 * MOST:,}: name a smaller size")
    steps = count if spread == "paper" else max(count - 1, 1)
    return tuple(base ** (-c / steps) for c in range(count))


def angles(position: Tensor, frequency: tuple[float, ...]) -> Tensor:
    """Position times frequency in float64. [...] -> [..., count]"""
    return position.double()[..., None] * torch.tensor(frequency, dtype=torch.float64, device=position.device)


class _Known(NamedTuple):
    """What was computed from a position tensor, and how to tell that the tensor still holds the same numbers."""

    version: int | None  # torch counts the writes to a tensor ...
    copy: Tensor | None  # ... but not to one that was made in inference mode: then its numbers are compared
    waves: tuple[Tensor, ...]

    def holds(self, position: Tensor) -> bool:
        if self.copy is not None:
            return torch.equal(position, self.copy)
        return position._version == self.version


# Every layer of a model asks for the waves of the same position tensor, twice. They live as long as that tensor does.
_KNOWN: MutableMapping[Tensor, dict[Hashable, _Known]] = WeakTensorKeyDictionary()


def shared_waves(position: Tensor, key: Hashable, make: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """`make(position)`, computed once per position tensor and `key`, which names all else that `make` depends on.

    `make` gets positions of any shape and adds axes behind them. Rows that are the same memory are computed once.
    """
    if torch.compiler.is_compiling():  # a compiler finds the repetition itself, and cannot trace a table of references
        return _once_per_place(position, make)
    found = _KNOWN.setdefault(position, {})
    known = found.get(key)
    if known is None or not known.holds(position):
        with torch.inference_mode(False), torch.no_grad():  # a later call may want gradients
            waves = _once_per_place(position, make)
            uncounted = position.is_inference()
            known = _Known(None if uncounted else position._version, position.clone() if uncounted else None, waves)
        found[key] = known
    return known.waves


def _once_per_place(position: Tensor, make: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    (position,) = one_row(position)
    if position.shape[0] <= 1 or torch.compiler.is_compiling():
        return make(position)
    # Ragged rows are at the same places mostly; a cosine in float64 costs more than looking one up.
    places, index = distinct(position, room=position.numel())
    return tuple(wave[index] for wave in make(places))
