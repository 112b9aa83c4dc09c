"""Where a linear layer of a checkpoint lies in heed's: which rows of it are which of ours, told by the rename table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from ...core.errors import WeightsError
from ..edits.base import Layer, linears
from ..rename import Plan, Rule, Table

SUFFIX = ".weight"


@dataclass(frozen=True)
class Part:
    """One of our layers, and the rows that it has of theirs."""

    name: str
    rows: Tensor  # [out of ours]


@dataclass(frozen=True)
class Module:
    """A linear layer of theirs as layers of ours. Each of ours reads all channels, and makes some of the rows."""

    theirs: str
    parts: tuple[Part, ...]
    transposed: bool  # stored as [in, out] (Conv1D of GPT-2)

    @property
    def rows(self) -> int:
        """Channels that it makes."""
        return sum(len(part.rows) for part in self.parts)


class Modules:
    """The linear layers of a model by the names that they have in its family's layout."""

    def __init__(self, model: nn.Module, table: Table) -> None:
        self.layers: dict[str, Layer] = linears(model)
        self._links = {
            link.theirs.removesuffix(SUFFIX): link
            for link in Plan(model, table).links
            if link.theirs.endswith(SUFFIX) and self._are_layers(link.ours)
        }

    @property
    def names(self) -> list[str]:
        return list(self._links)

    def targets(self, name: str) -> tuple[str, ...]:
        """Our names of it."""
        return tuple(ours.removesuffix(SUFFIX) for ours in self._links[name].ours)

    def module(self, name: str) -> Module:
        """How it lies."""
        link, ours = self._links[name], self.targets(name)
        shapes = tuple((self.layers[one].out_features, self.layers[one].in_features) for one in ours)
        rows, transposed = _rows(link.rule, shapes)
        return Module(name, tuple(Part(*one) for one in zip(ours, rows, strict=True)), transposed)

    def _are_layers(self, ours: tuple[str, ...]) -> bool:
        names = [one.removesuffix(SUFFIX) for one in ours]
        return all(one.endswith(SUFFIX) for one in ours) and all(name in self.layers for name in names)


@lru_cache(maxsize=64)
def _rows(rule: Rule, shapes: tuple[tuple[int, int], ...]) -> tuple[list[Tensor], bool]:
    """Which row of theirs each row of ours is, and whether theirs is transposed.

    A rule says how whole matrices are taken apart; asked about a matrix of its own places, it tells which rows go
    where. Anything but a choice of rows (a change of columns, a sum) has no adapter of one A.
    """
    joined = rule.join([torch.empty(shape, device="meta") for shape in shapes]).shape
    if len(joined) != 2:
        raise WeightsError(f"{rule.theirs} has {len(joined)} axes; an adapter is of a matrix")
    places = torch.arange(joined.numel(), dtype=torch.int32).view(joined)
    parts = rule.split(places)
    for transposed in (False, True):
        # A place is row · width + column, in theirs; of ours every row must hold one row (or column) whole.
        found = [part // joined[1] if not transposed else part % joined[1] for part in parts]
        other = [part % joined[1] if not transposed else part // joined[1] for part in parts]
        whole = all(
            bool((rows == rows[:, :1]).all()) and bool((columns == torch.arange(columns.shape[1])).all())
            for rows, columns in zip(found, other, strict=True)
        )
        if whole:
            return [rows[:, 0].long() for rows in found], transposed
    raise WeightsError(f"{rule.theirs} is not stored row by row as heed has it, so it has no adapter here")
