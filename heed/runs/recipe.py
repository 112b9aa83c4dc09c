"""A recipe: data, tokenizer, task, model and training as one typed tree. A run's config.json is the same tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.config import Config, Text, nearest
from ..core.contract import Mixer
from ..core.errors import ConfigError
from ..data import AnySource
from ..models import AnyPlan, Shape
from ..tasks import AnyTask
from ..text import AnyTokenizer
from ..weights.edits import SomeEdits, edit
from .training import Training

SHIPPED = Path(__file__).parents[1] / "recipes"


class Recipe(Config):
    """Everything that a run follows from."""

    data: AnySource
    tokenizer: AnyTokenizer
    task: AnyTask
    model: AnyPlan
    edits: SomeEdits = ()  # of the model, once it is built
    base: Text | None = None  # a run or a checkpoint to begin from: its model and tokenizer are used, not those above
    training: Training = Training()

    def sized(self, vocabulary: int) -> Recipe:
        """With the whole configuration of the model, for so many tokens."""
        return self.model_copy(update={"model": self.shape(vocabulary)})

    def shape(self, vocabulary: int) -> Shape:
        """The whole configuration of the model. That of a base has a vocabulary of its own, perhaps a larger one."""
        if self.base is not None and isinstance(self.model, Shape):
            return self.model
        return self.model.sized(vocabulary)

    def build(self, vocabulary: int) -> Mixer[Any]:
        """The model with fresh weights, edited."""
        return edit(self.shape(vocabulary).build(), *self.edits)


def shipped() -> dict[str, Path]:
    """The recipes that come with heed, by name."""
    return {path.stem: path for path in SHIPPED.glob("*.toml")}


def find(name: str) -> Path:
    """The path of a recipe: a file of the user's, or the name of one that comes with heed."""
    known = shipped()
    if name not in known and Path(name).is_file():
        return Path(name)
    if name not in known:
        raise ConfigError(f"{name} is neither a file nor a recipe that comes with heed{nearest(name, known)}")
    return known[name]
