"""A run folder: what training leaves behind and what `heed.load` takes.

config.json         the whole typed tree: data, tokenizer, task, model, edits, training
tokenizer.json      the tokenizer, as the `tokenizers` library writes it
model.safetensors   the weights to use
metrics.jsonl       one line per report of the training
scores.json         metrics of `heed eval`, by the name of the data
README.md           a model card
state/STEP/         what is needed to go on, of the newest checkpoint
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from torch import nn

from ..core.atomic import replacing
from ..core.config import Data, read_data
from ..core.contract import Mixer
from ..core.errors import ConfigError, InputError, RunError, WeightsError
from ..models import Shape
from ..text import Tokenizer
from ..weights.formats import native as own
from .recipe import Recipe

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
METRICS, SCORES, CARD, STATE = "metrics.jsonl", "scores.json", "README.md", "state"

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """A run folder; every file is read when it is first asked for."""

    path: Path

    @classmethod
    def must_be_new(cls, path: Path) -> None:
        """What is already there is never overwritten."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(
                f"{path} already exists and is not empty; name another folder with --out, "
                f"or go on with what is there: heed train --resume {path}"
            )

    @classmethod
    def create(cls, path: Path | str, recipe: Recipe, tokenizer: Tokenizer) -> Run:
        """A new one."""
        run = cls(Path(path))
        cls.must_be_new(run.path)
        with writing(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
            tokenizer.save(run.path / TOKENIZER)
            recipe.write(run.path / CONFIG)  # last: a folder with a config.json is whole
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
        return self._read(Tokenizer.read, TOKENIZER)

    @property
    def shape(self) -> Shape:
        """The whole configuration of the model."""
        return self.recipe.shape(self.tokenizer.size)

    def build(self) -> Mixer[Any]:
        """The model with fresh weights, edited."""
        return self.recipe.build(self.tokenizer.size)

    def model(self) -> Mixer[Any]:
        """The model with the weights that training chose."""
        if not (self.path / WEIGHTS).is_file():
            raise RunError(
                f"{self.path / WEIGHTS} is missing: the training was stopped before its first evaluation, or the copy "
                f"is not whole; heed train --resume {self.path} goes on"
            )
        return own.read(self.build, self.path)

    @property
    def evaluated(self) -> Data:
        """Metrics that `heed eval` found so far, by the name of the data."""
        return self._read(read_data, SCORES) if (self.path / SCORES).exists() else {}

    def keep(self, model: nn.Module) -> None:
        """Write the weights to use, all of them or none."""
        with writing(self.path / WEIGHTS), replacing(self.path / WEIGHTS) as fresh:
            own.write(model, fresh)
        (self.path / SCORES).unlink(missing_ok=True)  # they were of other weights

    def _read(self, read: Callable[[Path], T], name: str) -> T:
        path = self.path / name
        if not path.is_file():
            raise RunError(f"{path} is missing; the run folder is not whole, copy it again")
        try:
            return read(path)
        except (ConfigError, InputError, WeightsError, OSError) as error:
            raise RunError(f"{path} cannot be used: {error}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever the disk refuses, as one kind of error and with the path."""
    try:
        yield
    except RunError:
        raise
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} could not be written: {error}. What was saved before is as it was") from None
