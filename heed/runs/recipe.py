"""A recipe: data, tokenizer, task, model and training as one typed tree. A run's config.json is the same tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import model_validator

from ..core.config import Config, Data, Positive, Size, Text, kind_of, read_data, settings_of
from ..core.contract import Mixer
from ..core.errors import ConfigError
from ..data import AnySource, Name, Source
from ..data.base import near
from ..data.paths import Given, by_split
from ..models import AnyPlan, Shape
from ..tasks import AnyTask
from ..text import AnyTokenizer, NoTokenizer
from ..weights.edits import SomeEdits, edit
from .training import Training

MEDIA = "media"  # data that is files which hold one thing each
SHIPPED = Path(__file__).parents[1] / "recipes"

Settings: TypeAlias = "Mapping[str, Any] | Sequence[str]"  # {"training.batch": 512} or ["training.batch=512"]


class Pretrain(Config):
    """A training before this one, on the texts of the same data: what comes of it is begun from (Amos et al. 2024)."""

    on: Literal["self"] = "self"  # which texts: those of the task itself
    task: AnyTask | None = None  # what is learnt from them; None: masked, denoise or causal, whichever fits the model
    steps: Size = 1000  # how often the weights are updated; all else is as training has it, but for patience
    lr: Positive | None = None  # learning rate at its peak; None: that of training


class Recipe(Config):
    """Everything that a run follows from."""

    data: AnySource
    tokenizer: AnyTokenizer = NoTokenizer()  # none: of a task that reads no text
    task: AnyTask
    model: AnyPlan
    edits: SomeEdits = ()  # of the model, once it is built
    base: Text | None = None  # a run or a checkpoint to begin from: its model and tokenizer are used, not those above
    pretrain: Pretrain | None = None  # a training before this one, on the texts of the same data; None: none
    training: Training = Training()

    @model_validator(mode="after")
    def _reads(self) -> Self:
        if isinstance(self.tokenizer, NoTokenizer) and not self.task.wordless and self.base is None:
            kind = kind_of(type(self.task))
            raise ValueError(
                f"task.kind={kind} reads text and needs a tokenizer; set tokenizer.kind=byte, char, bpe ..."
            )
        return self

    def sized(self, vocabulary: int) -> Recipe:
        """With the whole configuration of the model, for so many tokens."""
        return self.model_copy(update={"model": self.shape(vocabulary)})

    def shape(self, vocabulary: int) -> Shape:
        """The whole configuration of the model. That of a base has a vocabulary of its own, perhaps a larger one."""
        kept = self.base is not None and isinstance(self.model, Shape)
        shape = self.model if kept and isinstance(self.model, Shape) else self.model.sized(vocabulary)
        head = self.task.head()
        return shape if head is None else shape.headed(head)

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


class About(NamedTuple):
    """What the comments at the top of a recipe say of it."""

    what: str  # what is learnt, the first line
    needs: str  # data
    reached: str  # which metrics on which data, in which time


def abouts() -> dict[str, About]:
    """What comes with heed, by name."""
    return {name: _about(path.read_text(encoding="utf-8")) for name, path in sorted(shipped().items())}


def _about(text: str) -> About:
    """By the comments before the first table, of which some begin with a word and a colon."""
    lines = [line.removeprefix("#").strip() for line in text.partition("\n[")[0].splitlines()]
    told = {word: rest.strip() for line in lines for word, colon, rest in [line.partition(":")] if colon}
    return About(lines[0], told.get("Needs", ""), told.get("Reached", ""))


def descriptions() -> dict[str, str]:
    """What comes with heed, by name, in a line each."""
    return {name: about.what for name, about in abouts().items()}


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


def data_settings(given: Given | Source | None, alone: Name, kind: str = "files") -> Data:
    """Settings that put the user's files, or another source, in the place of a recipe's data.

    Other settings of files (data.held_out, data.columns ...) stay. `kind`: how they are read.
    """
    if given is None:
        return {}
    if isinstance(given, Source):
        return {"data": given.dump()}
    files = by_split(given, alone)
    return {
        "data.kind": kind,
        **{f"data.{name}": paths[0] if len(paths) == 1 else list(paths) for name, paths in files.items()},
    }


def data_kind(tree: Mapping[str, Any]) -> str:
    """How the files of a recipe are read: as images and sounds if its own are, else as texts."""
    data = tree.get("data")
    return MEDIA if isinstance(data, Mapping) and data.get("kind") == MEDIA else "files"


def given_settings(settings: Settings | str | None) -> Data:
    """Settings as they are given: a mapping, a list, or one alone."""
    if settings is None:
        return {}
    return settings_of([settings] if isinstance(settings, str) else settings)
