"""GGUF's quantised matrices (q8_0, q4_0) kept as they are: the same codes and scales, nothing is quantised anew.

Where llama.cpp put rows into another order, codes go back row by row; where a family takes a tensor apart, so are its
codes. No matrix that is kept is ever made float32. Tensors of other kinds are.
"""

from __future__ import annotations

from collections.abc import KeysView, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.contract import Mixer
from ...core.errors import WeightsError
from ...kernels import GROUP
from ..edits import Edit, Quantised, edit
from ..edits.quantised import Bits, is_quantised
from ..families import kind_of
from ..families.base import Opened, Understood, understood
from ..outline import outlined
from ..rename import Link, Plan, Same, restore
from . import gguf
from .checkpoint import Checkpoint
from .gguf_metadata import Keys
from .safetensors import Tensors

KINDS: dict[str, Bits] = {"Q8_0": "q8_0", "Q4_0": "int4"}  # and how heed calls them
SCALE = 2  # bytes of a scale, which stands before the codes of its group


@dataclass(frozen=True)
class Rows:
    """Rows of a tensor of the file that make one matrix of ours."""

    source: gguf.Source
    bits: Bits
    rows: Tensor

    @property
    def groups(self) -> int:
        return self.source.placed.shape[-1] // GROUP


@dataclass(frozen=True)
class Kept:
    """A tensor of the file that holds nothing but rows of matrices of ours."""

    theirs: str
    bits: Bits
    parts: dict[str, Rows]  # by our layer
    tied: tuple[str, ...]  # all layers that hold one of these matrices


def read(path: Path | str) -> Opened:
    """The model in a GGUF file, with those matrices kept."""
    checkpoint = gguf.read(path)
    told, tensors = understood(kind_of(checkpoint), checkpoint), checkpoint.tensors
    assert isinstance(tensors, gguf.Dequantised)
    kept = _chosen(told, checkpoint, _candidates(told, checkpoint, tensors))
    if not kept:
        kinds = sorted({source.placed.kind.name for source in tensors.sources.values()})
        raise WeightsError(
            f"{path} has no matrix of {' or '.join(KINDS)} that can be kept, it has {', '.join(kinds)}; "
            'load it without quantise, or with quantise="int8"'
        )
    held, edits = _Mixed(tensors, kept), _edits(told, kept)
    table = (*told.table, *(Same(name, name) for name in held.codes))
    model = restore(lambda: edit(told.shape.build(), *edits), Checkpoint(checkpoint.place, {}, held), table)
    return Opened(told.family, model, told.table, checkpoint.config, {}, told.shape, edits)


class _Mixed(Tensors):
    """Codes and scales under our names, and whatever is not kept as the reader gives it."""

    def __init__(self, tensors: gguf.Dequantised, kept: Sequence[Kept]) -> None:
        self._tensors, without = tensors, {one.theirs for one in kept}
        parts = [part for one in kept for part in one.parts.items()]
        self.codes = {f"{name}.{what}": rows for name, rows in parts for what in ("codes", "scale")}
        self._names = dict.fromkeys((*(name for name in tensors if name not in without), *self.codes))

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.codes:
            return self._tensors[name]
        codes = name.endswith(".codes")
        made = _blocks(self._tensors.head.place, self.codes[name], slice(SCALE, None) if codes else slice(0, SCALE))
        return made.view(self.like(name).dtype)

    @property
    def names(self) -> KeysView[str]:
        return self._names.keys()

    def like(self, name: str) -> Tensor:
        if name not in self.codes:
            return self._tensors.like(name)
        rows = self.codes[name]
        eight = rows.bits == "q8_0"
        if name.endswith(".scale"):
            return torch.empty(len(rows.rows), rows.groups, dtype=torch.float16, device="meta")
        width = rows.groups * (GROUP if eight else GROUP // 2)
        return torch.empty(len(rows.rows), width, dtype=torch.int8 if eight else torch.uint8, device="meta")


def _blocks(place: Path, kept: Rows, part: slice) -> Tensor:
    """One part of every block, row by row. [rows, groups · part]"""
    placed, rows = kept.source.placed, kept.rows
    first, last = int(rows.min()), int(rows.max())  # what a layer needs often lies together
    width = placed.shape[-1]
    before = (kept.source.part or 0) * placed.shape[-2] + first
    raw = gguf.stored_bytes(place, placed, before * width, (last - first + 1) * width)
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, kept.groups, placed.block_bytes)[..., part]
    alike = torch.equal(rows, torch.arange(first, last + 1))
    chosen = np.ascontiguousarray(blocks if alike else blocks[(rows - first).numpy()])
    return torch.from_numpy(chosen).flatten(1)


def _candidates(told: Understood, checkpoint: Checkpoint, tensors: gguf.Dequantised) -> list[Kept]:
    """What could be kept, by what happens to its rows on their way into the model."""
    model = outlined(lambda: edit(told.shape.build(), *told.edits), checkpoint)
    plan = Plan(model, told.table)
    found = []
    for link in plan.links:
        source = tensors.sources.get(link.theirs)
        if source is None or source.placed.kind.name not in KINDS or len(source.shape) != 2:
            continue
        bits, rows = KINDS[source.placed.kind.name], _rows(link, source, tensors.head)
        places = [tied.rpartition(".") for name in link.ours for tied in plan.tied[name]]
        if rows is not None and all(_plain(model, owner, leaf) for owner, _, leaf in places):
            layers = (name.removesuffix(".weight") for name in link.ours)
            parts = {layer: Rows(source, bits, some) for layer, some in zip(layers, rows, strict=True)}
            found.append(Kept(link.theirs, bits, parts, tuple(owner for owner, _, _ in places)))
    return found


def _plain(model: nn.Module, owner: str, leaf: str) -> bool:
    return leaf == "weight" and type(model.get_submodule(owner)) in (nn.Linear, nn.Embedding)


def _rows(link: Link, source: gguf.Source, head: Keys) -> list[Tensor] | None:
    """Which rows of the file's tensor each of ours consists of; None if one is anything but rows of it."""
    count = source.placed.shape[-2]
    marked = torch.arange(2 * count).view(count, 2)  # what moves rows shows in it, and so does what does more
    found = []
    for part in link.rule.split(marked if source.change is None else source.change(marked, head)):
        rows = part.flatten()[::2] // 2
        if not torch.equal(part, torch.stack((2 * rows, 2 * rows + 1), 1)):
            return None
        found.append(rows)
    return found


def _chosen(told: Understood, checkpoint: Checkpoint, found: list[Kept]) -> list[Kept]:
    """Those whose layers are all swapped for quantised ones, if none but they are asked for."""
    while True:
        edits = _edits(told, found)
        model: Mixer[Any] = outlined(lambda edits=edits: edit(told.shape.build(), *edits), checkpoint)  # type: ignore[misc]
        rest = [one for one in found if all(is_quantised(model.get_submodule(name)) for name in one.tied)]
        if len(rest) == len(found):
            return found
        found = rest


def _edits(told: Understood, kept: Sequence[Kept]) -> tuple[Edit, ...]:
    """What makes the model of the file's family one that takes these."""
    named = {bits: tuple(name for one in kept if one.bits == bits for name in one.tied) for bits in KINDS.values()}
    return *told.edits, *(Quantised(bits=bits, on=names) for bits, names in named.items() if names)
