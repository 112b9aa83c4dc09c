"""What `heed.train(...)` does: a recipe by name, the user's files and a few settings by the names that hands know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

from ..core.config import Data, override, read_data
from ..core.errors import ConfigError
from ..core.foreign_names import refuse_unknown
from ..data import Source
from ..data.paths import Given
from ..runs.folder import CONFIG
from ..runs.recipe import Recipe, Settings, data_kind, data_settings, given_settings, listed, tree_of
from ..show.progress import Reporter, Silent
from .phases import resume, train
from .start import Outcome

AnyRecipe: TypeAlias = "str | Path | Mapping[str, Any] | Recipe"

RUNS = Path("runs")  # where runs are made that are given no folder


class TrainOptions(TypedDict, total=False):
    """The keywords of `heed.train`; what is None is left as the recipe has it."""

    steps: int | None
    lr: float | None  # of the optimizer, at its peak
    batch: int | None  # tokens per step
    seed: int | None
    device: str | None
    base: str | Path | None  # a run or a checkpoint to begin from (fine-tuning)
    pretrain: str | None  # "self": pre-train on the task's own text first, then begin from that
    out: str | Path | None  # the run folder to make; None: runs/NAME, or the first of NAME-2 ... that is not there
    resume: str | Path | None  # a run folder to go on with, instead of a recipe
    settings: Settings | None  # anything else: {"model.width": 128} or ["model.width=128"]
    set: Settings | None  # the same, by the name that the command line has
    quiet: bool


SETTINGS = {  # keywords that are settings of a recipe
    "steps": "training.steps",
    "lr": "training.optimizer.lr",
    "batch": "training.batch",
    "seed": "training.seed",
    "device": "training.device",
    "pretrain": "pretrain.on",
}


def call(
    recipe: AnyRecipe | None = None, data: Given | Source | None = None, **options: Unpack[TrainOptions]
) -> Outcome:
    """Train a model: `heed.train("characters", data="book.txt", steps=500)`.

    `recipe`: the name of one of heed's, the path of a .toml file, a mapping or a `Recipe`. `data`: a path, a folder,
    a pattern or a list of them, or a mapping of splits {"train": ..., "valid": ..., "test": ...}. Keywords: steps, lr,
    batch (tokens per step), seed, device, base (a run or a checkpoint to begin from), pretrain ("self": on the task's
    own text first), out (the run folder), settings (anything else of the recipe), resume (a run to go on with, instead
    of a recipe), quiet.

    The result prints what came of it; `.load()` gives the model in use, `.metrics` and `.history` the numbers.
    """
    refuse_unknown("train", options, TrainOptions.__annotations__)
    reporter = Silent() if options.get("quiet") else Reporter()
    out, going_on = options.get("out"), options.get("resume")
    if (recipe is None) == (going_on is None):
        raise ConfigError(
            "name either a recipe to begin with or, with --resume (in Python resume=), a run folder to go on with\n"
            + listed()
        )
    if going_on is not None:
        tree = read_data(Path(going_on) / CONFIG) if (Path(going_on) / CONFIG).is_file() else {}
        settings = {**data_settings(data, "train", data_kind(tree)), **_settings(options)}
        if out is not None:
            raise ConfigError("--out (out=) is for new runs; --resume goes on in the folder it names")
        return resume(going_on, settings, reporter)
    name, tree = tree_of(recipe if recipe is not None else "")
    settings = {**data_settings(data, "train", data_kind(tree)), **_settings(options)}
    return train(Recipe.load(override(tree, settings)), out or RUNS / name, reporter, numbered=out is None)


def _settings(options: TrainOptions) -> Data:
    """What the keywords set in the recipe; those with names of their own win."""
    named: Data = {place: options.get(word) for word, place in SETTINGS.items() if options.get(word) is not None}
    base = options.get("base")
    if base is not None:  # absolute, so that a run can be resumed from anywhere; an id of the hub stays what it is
        named["base"] = str(Path(base).absolute()) if Path(base).exists() else str(base)
    return {**given_settings(options.get("settings")), **given_settings(options.get("set")), **named}
