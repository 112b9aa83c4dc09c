"""One training, or two in a row: what is pre-trained on the task's own text first is then begun from.

A run that pre-trains is a folder `pretrain` inside of the run that follows, and beside it recipe.json: the recipe of
that run, from which it begins once the first is done. So a stop in either of them is gone on from.
"""

from __future__ import annotations

from pathlib import Path

from ..core.config import kind_of, override, read_data
from ..core.errors import ConfigError, RunError
from ..runs.base import Base
from ..runs.folder import CONFIG, Run, writing
from ..runs.recipe import Recipe, Settings
from ..show.progress import Reporter
from ..tasks import Causal, Denoise, MaskedTokens, TextTask
from ..tasks.base import must_learn, places
from ..weights.outline import unfilled
from . import start
from .parallel import group
from .start import Outcome, free

PRETRAINED, RECIPE = "pretrain", "recipe.json"
OBJECTIVES: tuple[type[MaskedTokens | Denoise | Causal], ...] = (MaskedTokens, Denoise, Causal)  # the first that fits
CONTEXT = 128  # tokens of a text, at most, unless the objective is named
SIZE = 1000  # tokens of a vocabulary, while nobody knows it yet


def train(recipe: Recipe, out: Path | str, reporter: Reporter | None = None, *, numbered: bool = False) -> Outcome:
    """A new run in the folder `out`; with `numbered`, in the first of out, out-2, out-3 ... that is not there yet."""
    if recipe.pretrain is None:
        return start.train(recipe, out, reporter, numbered=numbered)
    first = before(recipe)
    with group(recipe.training.device) as processes:
        path = Path(processes.agree(str(free(Path(out)) if numbered else out)))
        if processes.leads:
            Run.must_be_new(path)
            _keep(recipe, path)
        processes.wait()
        return _after(recipe, path, start.train(first, path / PRETRAINED, reporter), reporter)


def resume(path: Path | str, changes: Settings = (), reporter: Reporter | None = None) -> Outcome:
    """A run that was stopped, from its newest checkpoint, bit for bit as if it had not been; in either phase.

    `changes` are overrides such as training.steps=9000; tokenizer, task and model stay as they are.
    """
    place = Path(path)
    if place.name == PRETRAINED and (place.parent / RECIPE).is_file():
        place = place.parent
    if (place / CONFIG).is_file() or not (place / RECIPE).is_file():
        return start.resume(place, changes, reporter)
    recipe = Recipe.load(override(read_data(place / RECIPE), changes))
    if recipe.pretrain is None:
        raise RunError(f"{place / RECIPE} names no pretrain, which {place / PRETRAINED} is; start a new run")
    first = before(recipe)
    with group(recipe.training.device):
        if (place / PRETRAINED / CONFIG).is_file():
            outcome = start.resume(place / PRETRAINED, {"training": first.training.dump()}, reporter)
        else:
            outcome = start.train(first, place / PRETRAINED, reporter)
        if changes and outcome.leads:
            _keep(recipe, place)
        return _after(recipe, place, outcome, reporter)


def before(recipe: Recipe) -> Recipe:
    """The recipe of the pre-training: the same data, tokenizer and model, and an objective over the task's texts."""
    settings = recipe.pretrain
    if settings is None:
        raise ConfigError("the recipe names no pretrain")
    optimizer = recipe.training.optimizer
    if settings.lr is not None:
        optimizer = optimizer.model_copy(update={"lr": settings.lr})
    update = {"steps": settings.steps, "patience": None, "optimizer": optimizer}
    plain = {"edits": (), "pretrain": None, "training": recipe.training.model_copy(update=update)}
    return recipe.model_copy(update={**plain, "task": objective(recipe)})


def objective(recipe: Recipe) -> TextTask:
    """What is learnt from the task's texts: what the recipe says, else the first objective that fits the model."""
    told = None if recipe.pretrain is None else recipe.pretrain.task
    if told is not None:
        if not isinstance(told, TextTask):
            raise ConfigError(
                f"pretrain.task is {kind_of(type(told))}, which needs more than texts; use masked, electra, denoise, "
                "causal or permute"
            )
        return told.model_copy(update={"of": recipe.task})
    known = recipe if recipe.base is None else Base.open(recipe.base).below(recipe)
    for kind in OBJECTIVES:
        try:
            trial = known.model_copy(update={"task": kind(of=recipe.task), "edits": ()})
            model = unfilled(lambda: trial.build(SIZE))  # noqa: B023  # called at once
            fitting = kind(of=recipe.task, context=min(CONTEXT, places(model) or CONTEXT))
            must_learn(fitting, model)
        except ConfigError:
            continue
        return fitting
    raise ConfigError(
        f"none of {', '.join(kind_of(kind) for kind in OBJECTIVES)} fits model.kind={kind_of(type(recipe.model))}; "
        "name what is to be learnt first: pretrain.task.kind=..."
    )


def _after(recipe: Recipe, path: Path, first: Outcome, reporter: Reporter | None) -> Outcome:
    """The training itself, once what it begins from is there."""
    if not first.finished:
        return first
    begun = recipe.model_copy(update={"base": str((path / PRETRAINED).absolute())})
    return start.train(begun, path, reporter, beside=(PRETRAINED, RECIPE))


def _keep(recipe: Recipe, path: Path) -> None:
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        recipe.write(path / RECIPE)
