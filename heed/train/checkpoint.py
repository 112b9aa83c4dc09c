"""Checkpoints: all that is needed to go on bit for bit, written whole or not at all.

state/00001200/  model, optimizer, average and rng as safetensors, progress.json with the rest and every file's size,
                 SHA256SUMS with every file's digest
                 of a sharded training a shard for each process and layout.json instead of the first three: `shards.py`

A checkpoint that is not to the last bit what was written is passed over for the one before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Lt
from pydantic import Strict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn

from ..core.atomic import appearing, aside, is_file, is_folder, remove, unfinished
from ..core.config import Config, read_data
from ..core.errors import RunError
from ..runs import digests
from ..runs.folder import STATE, Run, writing
from ..runs.records import FURTHEST
from ..weights.formats.native import current, must_fill
from ..weights.formats.safetensors import Below, Held, Tensors
from .optim import MOMENTS
from .parallel import Group
from .shards import LAYOUT, SHARD, Shards, shard

PROGRESS = "progress.json"
SPREAD = ("model", "optimizer", "average")  # what may lie in shards
PARTS = (*SPREAD, "rng")
FILES = (*(f"{part}.safetensors" for part in PARTS), PROGRESS, digests.SUMS)
STEP = re.compile("[0-9]{8,15}")
DAMAGE = (OSError, ValueError, LookupError, TypeError, SafetensorError)
Counted = Annotated[int, Strict(), Ge(0), Lt(FURTHEST)]
Measured = Annotated[float, Strict(), Ge(0), Lt(float("inf"))]


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
    threads: int = 0  # of each process, which the last bits depend on; 0: not recorded


class Written(Config):
    """progress.json, typed: whoever wrote it, its numbers are numbers."""

    step: Counted
    round: Counted
    batch: Counted
    tokens: Measured
    nats: Annotated[float, Strict()]
    averaged: Counted
    best: Annotated[float, Strict()] | None
    best_step: Counted
    waited: Counted
    processes: Annotated[int, Strict(), Ge(1), Lt(FURTHEST)]
    seconds: Measured
    threads: Counted = 0
    sizes: dict[str, Counted]

    def progress(self) -> Progress:
        return Progress(**self.model_dump(exclude={"sizes"}))


@dataclass(frozen=True)
class Checkpoint:
    """How far a training is, and the tensors that belong to it."""

    progress: Progress
    tensors: Mapping[str, Mapping[str, Tensor]]  # one group for each of PARTS

    def save(self, run: Run) -> None:
        """Into the run's folder, then remove what is older than the one before."""
        with self._written(run) as fresh:
            for part in PARTS:
                self._write(fresh, part)

    def save_shards(self, run: Run, group: Group) -> None:
        """The same by all processes of a group, each what it holds. Their disk is one."""
        from . import storage

        spread = {f"{part}.{name}": tensor for part in SPREAD for name, tensor in self.tensors[part].items()}
        if not group.leads:
            with writing(_state(run)):
                storage.write(Path(group.agree("")), spread)
            return
        with self._written(run) as fresh:
            storage.write(Path(group.agree(str(fresh))), spread)
            self._write(fresh, "rng")

    def _write(self, folder: Path, part: str) -> None:
        save_file({name: tensor.contiguous() for name, tensor in self.tensors[part].items()}, _file(folder, part))

    @contextmanager
    def _written(self, run: Run) -> Iterator[Path]:
        """A folder for the tensors; it gets what else belongs to it, and its name."""
        place = _state(run) / f"{self.progress.step:08d}"
        with writing(place), appearing(place) as fresh:
            yield fresh
            sizes = {file.name: file.stat().st_size for file in fresh.iterdir()}
            text = json.dumps({**asdict(self.progress), "sizes": sizes}, indent=1)
            (fresh / PROGRESS).write_text(text, encoding="utf-8")
            digests.record(fresh, [*sizes, PROGRESS])
            if is_folder(place):  # of this very step, damaged: it was gone on from the one before
                aside(place)
        self._tidy(run)

    def _tidy(self, run: Run) -> None:
        """Keep this one, the one before in case a disk damages this one, and all that heed did not write."""
        earlier = [place for place in found(run) if int(place.name) < self.progress.step]
        for old in earlier[:-1]:
            if all(_is_ours(path.name) and is_file(path) for path in old.iterdir()):
                remove(old)
        for left in unfinished(_state(run)):  # by a process that was killed: the run is locked, nobody else writes
            if is_folder(left):
                remove(left)

    @property
    def shards(self) -> Shards | None:
        """Where the tensors lie in parts, if they do."""
        return self.tensors.shards if isinstance(self.tensors, InShards) else None

    def must_fit(self, model: nn.Module, *, averaged: bool) -> None:
        """Raise unless a training of this model, which may be without memory, can go on from here."""
        must_fill(model, self.tensors["model"])
        learning = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        moments = {f"{moment}.{name}": (moment, weight) for name, weight in learning.items() for moment in MOMENTS}
        held, means = (_lazy(self.tensors[part]) for part in ("optimizer", "average"))
        for name in learning:
            count = sum(f"{moment}.{name}" in held for moment in MOMENTS)
            _must_be(count in (0, len(MOMENTS)), f"the optimizer's state of {name}", "whole")
        for name in held:
            moment, weight = moments.get(name, ("", None))
            if moment == "step":
                counts = held.like(name).shape == () and 0 <= float(held[name]) <= self.progress.step
                _must_be(counts, name, "a number of steps")
            else:
                _must_be_like(held.like(name), weight, name)
        _must_be(averaged or not self.progress.averaged, f"averaged in {PROGRESS}", "0, where no weights are averaged")
        weights = dict(model.named_parameters()) if averaged else {}
        for name in weights.keys() | means.keys():
            _must_be_like(means.like(name) if name in means else None, weights.get(name), f"average {name}")
        for rank in range(self.progress.processes):
            state = self.tensors["rng"].get(f"cpu.{rank}")
            _must_be(state is not None and _draws(state), f"cpu.{rank}", "the state of a random generator")

    @classmethod
    def load(
        cls,
        run: Run,
        tell: Callable[[str], None] = lambda text: None,
        fits: Callable[[Checkpoint], None] = lambda checkpoint: None,
    ) -> Checkpoint | None:
        """The newest one that is whole, and `fits`; None if the run was stopped before its first. Others are told."""
        places, last = found(run), ""
        for place in reversed(places):
            try:
                checkpoint = _load(place)
                fits(checkpoint)
            except DAMAGE as error:
                tell(f"the checkpoint {place} is damaged ({error}); the one before it is tried")
                last = str(error)
                continue
            if not (place / digests.SUMS).exists():
                tell(f"the checkpoint {place} has no {digests.SUMS}: damage of its files may go unseen")
            return checkpoint
        if places:
            raise RunError(f"the checkpoint {places[0]} is damaged ({last}); there is no earlier one") from None
        return None

    @classmethod
    def at(cls, run: Run, step: int) -> Checkpoint:
        """One that another process has found whole."""
        return _opened(_state(run) / f"{step:08d}")


class InShards(dict[str, Tensors]):
    """The groups of tensors of a sharded training: read from its shards when they are asked for."""

    def __init__(self, shards: Shards, rng: Mapping[str, Tensor]) -> None:
        super().__init__({part: Below(shards, f"{part}.") for part in SPREAD}, rng=Held(rng))
        self.shards = shards


def found(run: Run) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    folder = _state(run)
    names = (path for path in folder.iterdir() if STEP.fullmatch(path.name)) if folder.is_dir() else ()
    return sorted(filter(is_folder, names), key=lambda path: int(path.name))


def damage(place: Path) -> list[str]:
    """What is not as it was written in a checkpoint's folder."""
    listed = digests.listed(place)
    if listed is None:
        return []
    needed = _needed(LAYOUT in listed, sum(SHARD.fullmatch(name) is not None for name in listed))
    if needed != listed.keys():
        return [f"{place / digests.SUMS} is damaged: it must list {', '.join(sorted(needed))}"]
    return [found for name in listed if (found := digests.problem(place, name, listed)) is not None]


def _needed(sharded: bool, processes: int) -> set[str]:
    """The files that a checkpoint consists of, beside its digests."""
    if not sharded:
        return {*FILES[:-1]}
    return {LAYOUT, PROGRESS, _file(Path(), "rng").name, *map(shard, range(processes))}


def _is_ours(name: str) -> bool:
    return name in FILES or name == LAYOUT or SHARD.fullmatch(name) is not None


def _load(place: Path) -> Checkpoint:
    for problem in damage(place):
        raise ValueError(problem)
    return _opened(place)


def _opened(place: Path) -> Checkpoint:
    written = Written.load(read_data(place / PROGRESS))
    if written.step != int(place.name):
        raise ValueError(f"{PROGRESS} is of step {written.step}")
    sharded = is_file(place / LAYOUT)
    processes = min(written.processes, len(written.sizes))  # whoever wrote it, no more than it names files
    needed = _needed(sharded, processes) - {PROGRESS}
    if written.sizes.keys() != needed:
        raise ValueError(f"{PROGRESS} must have the sizes of {', '.join(sorted(needed))}")
    for name, size in written.sizes.items():
        held = (place / name).stat().st_size
        if held != size:
            raise ValueError(f"{name} has {held} bytes, it was written with {size}")
    tensors = InShards(Shards(place), load_file(_file(place, "rng"))) if sharded else _whole(place)
    if written.step and not tensors["optimizer"]:
        raise ValueError(f"the optimizer's state is empty after {written.step} steps")
    return Checkpoint(written.progress(), tensors)


def _whole(place: Path) -> dict[str, dict[str, Tensor]]:
    """A run of the last release may have other names."""
    tensors = {part: load_file(_file(place, part)) for part in PARTS}
    return {part: {current(name): tensor for name, tensor in held.items()} for part, held in tensors.items()}


def _lazy(tensors: Mapping[str, Tensor]) -> Tensors:
    return tensors if isinstance(tensors, Tensors) else Held(tensors)


def _state(run: Run) -> Path:
    """Where the checkpoints are; a link would lead heed to write and delete elsewhere."""
    folder = run.path / STATE
    if folder.is_symlink():
        raise RunError(f"{folder} is a link; checkpoints are written and deleted in the run folder only. Remove it")
    return folder


def _file(place: Path, part: str) -> Path:
    return place / f"{part}.safetensors"


def _must_be(is_so: bool, name: str, what: str) -> None:
    if not is_so:
        raise ValueError(f"{name} is not {what}")


def _must_be_like(tensor: Tensor | None, weight: Tensor | None, name: str) -> None:
    """Of the shape and dtype of its weight."""
    given, needed = (None if one is None else (one.dtype, tuple(one.shape)) for one in (tensor, weight))
    if given != needed:
        told = ("nothing" if one is None else f"{one[0]} of shape {list(one[1])}" for one in (given, needed))
        raise ValueError("{} is {}, needed is {}".format(name, *told))


def _draws(state: Tensor) -> bool:
    """Whether it is the state of a generator of torch's."""
    try:
        Generator().set_state(state)
    except (RuntimeError, TypeError):
        return False
    return True
