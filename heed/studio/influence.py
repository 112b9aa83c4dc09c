"""Influence beside weights: |∂y_i/∂x_j| of one mixer on one input, and how alike it is to what the mixer shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..core.contract import Mixer, Where
from ..core.errors import InputError
from ..views import influence_of
from .maps import Floats

PROBES = 4
MOST = 512  # tokens: each of them is a row of a call


@dataclass(frozen=True)
class Influence:
    """|∂y_i/∂x_j| of one mixer on one input. [T, T]"""

    norms: Floats
    probes: int  # 0: exact

    def correlation(self, weights: Floats) -> float | None:
        """With weights of the same pairs, where either is not zero; None if one of them is constant."""
        met = (self.norms > 0) | (weights != 0)
        ours, theirs = self.norms[met].astype(np.float64), np.abs(weights[met]).astype(np.float64)
        if ours.size < 2 or not ours.std() or not theirs.std():
            return None
        return float(np.corrcoef(ours, theirs)[0, 1])


def influence(mixer: Mixer[Any], x: Tensor, where: Where, *, exact: bool = False) -> Influence:
    """Of a mixer on the sequence x [1, T, width]."""
    tokens = x.shape[1]
    if tokens > MOST:
        raise InputError(
            f"the text has {tokens:,} tokens; influence is computed for at most {MOST}, because every one of them is "
            "asked about all others. Give a shorter text"
        )
    norms = influence_of(mixer, x, where, probes=PROBES, exact=exact)
    return Influence(norms.numpy(), 0 if exact else PROBES)
