"""Checkpoints: all that is needed to go on bit for bit, written whole or not at all.

state/00001200/  model, optimizer, average and rng as safetensors, progress.json with the rest and every file's size
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..core.atomic import appearing
from ..core.errors import RunError
from ..runs.folder import STATE, Run, writing
from ..weights.formats.native import current

PROGRESS = "progress.json"
PARTS = ("model", "optimizer", "average", "rng")
KEPT = 2  # the newest, and the one before it in case a disk damages the newest


@dataclass(frozen=True)
class Progress:
    """How far a training is, in numbers."""

    step: int = 0
    round: int = 0  # of the data
    batch: int = 0  # within the round
    tokens: float = 0.0  # since the last report
    nats: float = 0.0  # that they cost
    averaged: int = 0  # steps that the averaged weights are a mean of
    best: float | None = None  # validation loss of the weights that are kept
    best_step: int = 0
    waited: int = 0  # evaluations since then
    processes: int = 1
    seconds: float = 0.0  # of training so far


@dataclass(frozen=True)
class Checkpoint:
    """How far a training is, and the tensors that belong to it."""

    progress: Progress
    tensors: Mapping[str, Mapping[str, Tensor]]  # one group for each of PARTS

    def save(self, run: Run) -> None:
        """Into the run's folder, then remove what is older than the one before."""
        place = run.path / STATE / f"{self.progress.step:08d}"
        with writing(place), appearing(place) as fresh:
            for part in PARTS:
                save_file(
                    {name: tensor.contiguous() for name, tensor in self.tensors[part].items()}, _file(fresh, part)
                )
            sizes = {file.name: file.stat().st_size for file in fresh.iterdir()}
            text = json.dumps({**asdict(self.progress), "sizes": sizes}, indent=1)
            (fresh / PROGRESS).write_text(text, encoding="utf-8")
        for old in (*found(run)[:-KEPT], *place.parent.glob(".*.new")):  # also what a killed process left
            shutil.rmtree(old, ignore_errors=True)

    @classmethod
    def load(cls, run: Run) -> Checkpoint | None:
        """The newest one, which must be whole; None if the run was stopped before its first."""
        places = found(run)
        if not places:
            return None
        try:
            return _load(places[-1])
        except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
            earlier = f"remove it to go on from {places[-2]}" if places[1:] else "there is no earlier one"
            raise RunError(f"the checkpoint {places[-1]} is damaged ({error}); {earlier}") from None


def found(run: Run) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    folder = run.path / STATE
    names = (path for path in folder.iterdir() if path.name.isdecimal()) if folder.is_dir() else ()
    return sorted(names, key=lambda path: int(path.name))


def _load(place: Path) -> Checkpoint:
    data: dict[str, Any] = json.loads((place / PROGRESS).read_text(encoding="utf-8"))
    for name, size in data.pop("sizes").items():
        held = (place / name).stat().st_size
        if held != size:
            raise ValueError(f"{name} has {held} bytes, it was written with {size}")
    known = {field.name for field in fields(Progress)}
    if data.keys() != known:
        raise ValueError(f"{PROGRESS} has {sorted(data)}, needed are {sorted(known)}")
    tensors = {part: load_file(_file(place, part)) for part in PARTS}
    now = {part: {current(name): tensor for name, tensor in held.items()} for part, held in tensors.items()}
    return Checkpoint(Progress(**data), now)  # a run of the last release may have other names


def _file(place: Path, part: str) -> Path:
    return place / f"{part}.safetensors"
