"""A run folder: what training leaves behind and what `heed.load` takes.

config.json         the whole typed tree: data, tokenizer, task, model, edits, training
tokenizer.json      the tokenizer, as the `tokenizers` library writes it
model.safetensors   the weights to use
metrics.jsonl       one line per report of the training
scores.json         metrics of `heed eval`, by the name of the data
floors.json         what is reached on the same data without attention
README.md           a model card
pretrain/           of a run that was pre-trained on its own text: the run it began from; recipe.json is its own recipe
base/               of a fine-tuned run: config and tokenizer of the checkpoint that it began as, names of its tensors
state/STEP/         what is needed to go on, of the newest checkpoint and of the one before
SHA256SUMS          digests of all of them (of metrics.jsonl as it was at the newest checkpoint); state/STEP has its own
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from torch import Tensor, nn

from ..core.config import Data, read_data
from ..core.contract import Mixer
from ..core.errors import ConfigError, InputError, RunError, WeightsError
from ..models import Shape
from ..pipelines import Pipeline
from ..text import Tokenizer, holds
from ..weights.formats import native as own
from ..weights.formats.checkpoint import Checkpoint
from ..weights.formats.safetensors import Stored
from ..weights.formats.sidecars import NAMES, bring
from ..weights.home.derived import Promised
from ..weights.home.fit import Trained
from ..weights.outline import MOST, bounded
from . import digests
from .lock import LOCK
from .recipe import Recipe
from .records import scores_of

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
METRICS, SCORES, FLOORS, CARD, STATE = "metrics.jsonl", "scores.json", "floors.json", "README.md", "state"
BASE, TENSORS = "base", "tensors.json"
USED = (CONFIG, TOKENIZER, WEIGHTS)
TOLD = (METRICS, SCORES, FLOORS, CARD)  # what a run tells of itself; nothing is computed from them
AFFORDABLE = 1 << 25  # bytes of weights that are compared with their digest whenever they are loaded: some 20 ms
LARGEST = 1 << 53  # sizes of a tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """A run folder; every file is read when it is first asked for."""

    path: Path

    @classmethod
    def must_be_new(cls, path: Path, beside: Collection[str] = ()) -> None:
        """What is already there is never overwritten; `beside`: what may be there."""
        known = {LOCK, *beside}
        if path.exists() and (not path.is_dir() or any(held.name not in known for held in path.iterdir())):
            raise RunError(
                f"{path} already exists and is not empty; name another folder with --out, "
                f"or go on with what is there: heed train --resume {path}"
            )

    @classmethod
    def create(cls, path: Path | str, recipe: Recipe, tokenizer: Tokenizer, beside: Collection[str] = ()) -> Run:
        """A new one."""
        run = cls(Path(path))
        cls.must_be_new(run.path, beside)
        with writing(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
            with digests.recorded(run.path, TOKENIZER) as fresh:
                tokenizer.save(fresh)
            run.configure(recipe)  # last: a folder with a config.json is whole
        return run

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """One that is there."""
        run = cls(Path(path))
        if not run.path.is_dir():
            raise RunError(f"{path} is not a folder; give a run folder, as `heed train` makes them")
        if not (run.path / CONFIG).is_file():
            raise RunError(
                f"{path} holds no {CONFIG}, so it is not a run folder (`heed train` makes them) nor a checkpoint"
            )
        return run

    def configure(self, recipe: Recipe) -> None:
        """Write config.json, all of it or nothing."""
        with writing(self.path / CONFIG), digests.recorded(self.path, CONFIG) as fresh:
            recipe.write(fresh)

    @cached_property
    def data(self) -> Data:
        """config.json as it stands."""
        return self._read(read_data, CONFIG)

    @cached_property
    def recipe(self) -> Recipe:
        """config.json, typed."""
        return self._read(lambda _: Recipe.load(self.data), CONFIG)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        if holds(self.path / BASE):  # with its special tokens and its chat template
            return self._read(lambda path: Tokenizer.of_folder(path.parent), f"{BASE}/{CONFIG}")
        return self._read(Tokenizer.read, TOKENIZER)

    @property
    def shape(self) -> Shape:
        """The whole configuration of the model."""
        return self.recipe.shape(self.tokenizer.size)

    def build(self) -> Mixer[Any]:
        """The model with fresh weights, edited."""
        return self.recipe.build(self.tokenizer.size)

    @property
    def parts(self) -> int:
        """Calls of torch that its model may be built by: what its weights can fill, if there are some."""
        return bounded(len(Stored.of(self.path))) if (self.path / WEIGHTS).is_file() else MOST

    def model(self) -> Mixer[Any]:
        """The model with the weights that training chose."""
        if not (self.path / WEIGHTS).is_file():
            raise RunError(
                f"{self.path / WEIGHTS} is missing: the training was stopped before its first evaluation, or the copy "
                f"is not whole; heed train --resume {self.path} goes on"
            )
        if (self.path / WEIGHTS).stat().st_size <= AFFORDABLE:
            self.must_be_whole(WEIGHTS)
        size = self.tokenizer.size  # before the model is built, so that what is wrong with it is said as such
        return own.read(lambda: self.recipe.build(size), self.path)

    def pipeline(self) -> Pipeline:
        """The model in use."""
        pipeline = self.recipe.task.pipeline(self.model(), self.tokenizer)
        pipeline.trained = Trained(self.shape, self.recipe.edits, self.base, self.recipe.task.classes)
        pipeline.beside = self.path / BASE
        return pipeline

    @property
    def base(self) -> Checkpoint | None:
        """The checkpoint that a fine-tuned run began as, without its weights."""
        place = self.path / BASE
        if not (place / TENSORS).is_file():
            return None
        shapes = self._read(read_data, f"{BASE}/{TENSORS}")
        for name, shape in shapes.items():
            if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < LARGEST for size in shape):
                raise RunError(f"{place / TENSORS}: {name} is {str(shape)[:80]}; needed is a shape, such as [2, 3]")
        tensors = Promised({name: tuple(shape) for name, shape in shapes.items()})
        return Checkpoint(place, self._read(read_data, f"{BASE}/{CONFIG}"), tensors)

    def begin_as(self, checkpoint: Checkpoint, beside: Path) -> None:
        """Remember the checkpoint that training begins with, so that the model can go home: all but its weights."""
        place = self.path / BASE
        with writing(place):
            place.mkdir(exist_ok=True)
            bring(beside, place)
            (place / "README.md").unlink(missing_ok=True)  # it is about another model
            shapes = {name: list(checkpoint.tensors.like(name).shape) for name in checkpoint.tensors}
            for name, data in {TENSORS: shapes, CONFIG: checkpoint.config}.items():
                (place / name).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            files = sorted(path for path in place.rglob("*") if path.is_file())
            digests.record(self.path, [path.relative_to(self.path).as_posix() for path in files])

    @property
    def evaluated(self) -> Data:
        """Metrics that `heed eval` found so far, by the name of the data."""
        return self._read(_scores, SCORES) if (self.path / SCORES).exists() else {}

    @property
    def card(self) -> str:
        """README.md, or nothing. It must be whole: what is kept of it would count as such from then on."""
        return self._read(_text, CARD) if (self.path / CARD).is_file() else ""  # not a pipe, which would be waited for

    def keep(self, model: nn.Module, gather: Callable[[Tensor], Tensor] | None = None) -> None:
        """Write the weights to use, all of them or none. `gather` brings each together, if they are spread."""
        with writing(self.path / WEIGHTS), digests.recorded(self.path, WEIGHTS) as fresh:
            if gather is None:
                own.write(model, fresh)
            else:
                own.write_gathered(own.tensors(model), gather, fresh)
        with writing(self.path / SCORES):  # they were of other weights
            digests.forget(self.path, SCORES)
            (self.path / SCORES).unlink(missing_ok=True)

    def damage(self) -> dict[str, str]:
        """What is not as it was written, by file, of those that have digests; all of each is read."""
        return {name: found for name in self._digests or {} if (found := self.damage_of(name)) is not None}

    def damage_of(self, name: str) -> str | None:
        """What is wrong with one of the files, in words."""
        return digests.problem(self.path, name, self._digests or {}, grows=name == METRICS)

    @property
    def has_digests(self) -> bool:
        """Runs of the last release have none."""
        return CONFIG in (self._digests or {})

    @property
    def _digests(self) -> digests.Digests | None:
        found = digests.listed(self.path)
        own = {*USED, *TOLD, f"{BASE}/{TENSORS}", *(f"{BASE}/{name}" for name in NAMES)}
        strange = sorted((found or {}).keys() - own)
        if strange:
            raise RunError(f"{self.path / digests.SUMS} is damaged: it lists {strange[0]}, which is no file of a run")
        return found

    def must_be_whole(self, name: str) -> None:
        """Raise if a file is not as it was written."""
        found = self.damage_of(name)
        if found is not None:
            raise RunError(found)

    def _read(self, read: Callable[[Path], T], name: str) -> T:
        path = self.path / name
        if not path.is_file():
            raise RunError(f"{path} is missing; the run folder is not whole, copy it again")
        self.must_be_whole(name)
        try:
            return read(path)
        except (ConfigError, InputError, WeightsError, OSError) as error:
            raise RunError(f"{path} cannot be used: {error}") from None


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _scores(path: Path) -> Data:
    return scores_of(read_data(path), path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever the disk refuses, as one kind of error and with the path."""
    try:
        yield
    except RunError:
        raise
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} could not be written: {error}. What was saved before is as it was") from None
