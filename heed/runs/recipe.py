"""A recipe: data, tokenizer, task, model and training as one typed tree. A run's config.json is the same tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ..core.config import Config, Data, Text, read_data, settings_of
from ..core.contract import Mixer
from ..core.errors import ConfigError
from ..data import AnySource, Name, Source
from ..data.base import near
from ..data.paths import Given, by_split
from ..models import AnyPlan, Shape
from ..tasks import AnyTask
from ..text import AnyTokenizer
from ..weights.edits import SomeEdits, edit
from .training import Training

SHIPPED = Path(__file__).parents[1] / "recipes"

Settings: TypeAlias = "Mapping[str, Any] | Sequence[str]"  # {"training.batch": 512} or ["training.batch=512"]


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
    if name in known:
        return known[name]
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"{name} is neither a file nor a recipe that comes with heed{near(name, known)}\n{listed()}")
    if path.suffix not in {".toml", ".json"}:
        raise ConfigError(
            f"{name} is not a recipe, which is a .toml or .json file or one of {', '.join(sorted(known))}; to learn "
            f"from {path.name}: heed train characters --data {name}, in Python data={name!r}"
        )
    return path


def descriptions() -> dict[str, str]:
    """What comes with heed, by name, in a line each: the first of its file."""
    first = {name: path.read_text(encoding="utf-8").partition("\n")[0] for name, path in sorted(shipped().items())}
    return {name: line.removeprefix("#").strip() for name, line in first.items()}


def listed() -> str:
    """The same for people."""
    return "\n".join(
        ["recipes that come with heed:", *(f"  {name:12} {line}" for name, line in descriptions().items())]
    )


def tree_of(recipe: str | Path | Mapping[str, Any] | Recipe) -> tuple[str, Data]:
    """A recipe as plain data, and what its run may be called: by the name, by the file, else by the task."""
    match recipe:
        case str() | Path():
            path = find(str(recipe))
            return path.stem, read_data(path)
        case Recipe():
            return str(recipe.task.dump()["kind"]), recipe.dump()
        case Mapping():
            task = recipe.get("task")
            return str(task.get("kind", "run")) if isinstance(task, Mapping) else "run", dict(recipe)
    raise ConfigError(f"a recipe is a name, a path, a mapping or a Recipe, not {type(recipe).__name__}")


def data_settings(given: Given | Source | None, alone: Name) -> Data:
    """Settings that put the user's files, or another source, in the place of a recipe's data.

    Other settings of files (data.held_out, data.columns ...) stay.
    """
    if given is None:
        return {}
    if isinstance(given, Source):
        return {"data": given.dump()}
    files = by_split(given, alone)
    return {
        "data.kind": "files",
        **{f"data.{name}": paths[0] if len(paths) == 1 else list(paths) for name, paths in files.items()},
    }


def given_settings(settings: Settings | str | None) -> Data:
    """Settings as they are given: a mapping, a list, or one alone."""
    if settings is None:
        return {}
    return settings_of([settings] if isinstance(settings, str) else settings)
