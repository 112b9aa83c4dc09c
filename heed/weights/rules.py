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


@dataclass(frozen=True)
class Grouped(Rule):
    """Rows come in `groups`, and in each so many heads of each of ours, one kind after the other.

    Queries, keys and values head by head are shares of 1, 1, 1 in as many groups as there are heads (GPT-NeoX, BLOOM);
    many queries before one key and one value are one group (multi-query) or a group for each key (Falcon 40B).
    """

    ours: tuple[str, ...]
    groups: int
    shares: tuple[int, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        return self.ours

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return [part.flatten(0, 2) for part in self._heads(theirs, sum(self.shares)).split_with_sizes(self.shares, 1)]

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        heads = [self._heads(part, share) for part, share in zip(ours, self.shares, strict=True)]
        return torch.cat(heads, 1).flatten(0, 2)

    def _heads(self, rows: Tensor, each: int) -> Tensor:
        """[groups · each · size, ...] -> [groups, each, size, ...]"""
        return rows.reshape(self.groups, each, -1, *rows.shape[1:])


@dataclass(frozen=True)
class Stacked(Rule):
    """Ours are the layers of theirs along a first axis, each of them `each` of ours below one another (experts)."""

    ours: tuple[str, ...]
    each: int = 1

    @property
    def targets(self) -> tuple[str, ...]:
        return self.ours

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return [part for layer in theirs for part in layer.chunk(self.each)]

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        layers = [torch.cat(tuple(ours[first : first + self.each])) for first in range(0, len(ours), self.each)]
        return torch.stack(layers)


@dataclass(frozen=True)
class Row(Rule):
    """Theirs is a matrix of one row, ours is that row (the last bias of BART)."""

    ours: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs.flatten(),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0][None]


@dataclass(frozen=True)
class Framed(Rule):
    """Theirs has so many axes of one before ours (the class token and the positions of ViT)."""

    ours: str
    axes: int = 1

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs.flatten(0, self.axes),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0][(None,) * self.axes]


@dataclass(frozen=True)
class Depthwise(Rule):
    """Theirs has one kernel per channel with an axis of one between, [D, 1, K]; ours is [D, K]."""

    ours: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs.flatten(1),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0].unsqueeze(1)


def transposed(theirs: str, ours: str) -> tuple[Rule, ...]:
    """Weight and bias of one layer that is stored as [in, out]."""
    return Transposed(f"{theirs}.weight", (f"{ours}.weight",)), Same(f"{theirs}.bias", f"{ours}.bias")


def columns(theirs: str, ours: tuple[str, ...]) -> tuple[Rule, ...]:
    """Weight and bias of several layers that are stored side by side as one [in, out]."""
    weights, biases = (tuple(f"{name}.{kind}" for name in ours) for kind in ("weight", "bias"))
    return Transposed(f"{theirs}.weight", weights), Fused(f"{theirs}.bias", biases)


def grouped(theirs: str, ours: tuple[str, ...], groups: int, shares: tuple[int, ...]) -> tuple[Rule, ...]:
    """Weight and bias of several layers whose heads are stored in groups."""
    return tuple(
        Grouped(f"{theirs}.{kind}", tuple(f"{name}.{kind}" for name in ours), groups, shares)
        for kind in ("weight", "bias")
    )
