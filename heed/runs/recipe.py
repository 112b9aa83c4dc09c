"""A recipe: data, tokenizer, task, model and training as one typed tree. A run's config.json is the same tree."""

from __future__ import annotations

from pathlib import Path

from ..core.config import Config, nearest
from ..core.errors import ConfigError
from ..data import AnySource
from ..models import AnyPlan
from ..tasks import AnyTask
from ..text import AnyTokenizer
from .training import Training

SHIPPED = Path(__file__).parents[1] / "recipes"


class Recipe(Config):
    """Everything that a run follows from."""

    data: AnySource
    tokenizer: AnyTokenizer
    task: AnyTask
    model: AnyPlan
    training: Training = Training()

    def sized(self, vocabulary: int) -> Recipe:
        """With the whole configuration of the model, for so many tokens."""
        return self.model_copy(update={"model": self.model.sized(vocabulary)})


def find(name: str) -> Path:
    """The path of a recipe: a file of the user's, or the name of one that comes with heed."""
    shipped = {path.stem: path for path in SHIPPED.glob("*.toml")}
    if name not in shipped and Path(name).is_file():
        return Path(name)
    if name not in shipped:
        raise ConfigError(f"{name} is neither a file nor a recipe that comes with heed{nearest(name, shipped)}")
    return shipped[name]
