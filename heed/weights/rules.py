"""More ways in which checkpoints store weights, each with its way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .rename import Fused, Rule, Same


@dataclass(frozen=True)
class Transposed(Rule):
    """Theirs is [in, out], ours is [out, in]; several of ours stand side by side in equal parts (Conv1D of GPT-2)."""

    ours: tuple[str, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        return self.ours

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return theirs.T.chunk(len(self.ours))

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return torch.cat(tuple(ours)).T.contiguous()


def transposed(theirs: str, ours: str) -> tuple[Rule, ...]:
    """Weight and bias of one layer that is stored as [in, out]."""
    return Transposed(f"{theirs}.weight", (f"{ours}.weight",)), Same(f"{theirs}.bias", f"{ours}.bias")


def columns(theirs: str, ours: tuple[str, ...]) -> tuple[Rule, ...]:
    """Weight and bias of several layers that are stored side by side as one [in, out]."""
    weights, biases = (tuple(f"{name}.{kind}" for name in ours) for kind in ("weight", "bias"))
    return Transposed(f"{theirs}.weight", weights), Fused(f"{theirs}.bias", biases)
