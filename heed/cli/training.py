"""Commands that make models and measure them: train, eval."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import complete
from .options import (
    Data,
    GenerationOptions,
    Group,
    Json,
    LoadOptions,
    Model,
    Quiet,
    Sets,
    Telling,
    named_files,
    print_json,
    spread,
    tell_engine,
)
from .settings import answered, list_recipes

if TYPE_CHECKING:
    from ..pipelines import GenerationConfig, Pipeline
    from ..runs import Run

STOPPED = 130  # the exit code of a program that Ctrl-C stopped


@dataclass(frozen=True)
class TrainingOptions(Group):
    """Settings of a training that have options of their own."""

    panel = "Training"

    steps: Annotated[int | None, typer.Option(help="How many steps; the same as --set training.steps=N.")] = None
    seed: Annotated[int | None, typer.Option(help="Of weights, data and dropout.")] = None
    base: Annotated[
        str | None, typer.Option(metavar="MODEL", help="A run or a checkpoint to begin from (fine-tuning).")
    ] = None
    pretrain: Annotated[
        str | None,
        typer.Option(metavar="self", help="Pre-train on the task's own text first, then begin from that."),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(help="Where to train: cpu, cuda, mps; default: the fastest.", autocompletion=complete.devices),
    ] = None


@dataclass(frozen=True)
class FolderOptions(Group):
    """Where a run is written, or which one goes on."""

    panel = "Training"

    out: Annotated[Path | None, typer.Option(help="The run folder to make; default: runs/NAME.")] = None
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with a run that was stopped.")] = None


@dataclass(frozen=True)
class MeasureOptions(Group):
    """On what a model is evaluated, and how a text is read."""

    panel = "Evaluation"

    split: Annotated[list[str] | None, typer.Option(help="valid or test; default: those there are.")] = None
    first: Annotated[int | None, typer.Option(min=1, help="Evaluate on so many examples only.")] = None
    context: Annotated[int | None, typer.Option(min=1, help="Of a text: tokens of a window.")] = None
    stride: Annotated[int | None, typer.Option(min=1, help="Of a text: tokens by which windows move on.")] = None
    html: Annotated[
        Path | None, typer.Option(help="Of classes: a page with which was taken for which, and the worst mistakes.")
    ] = None


@spread
def train(
    options: TrainingOptions,
    folders: FolderOptions,
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe: a .toml file, or the name of one of heed's.", autocompletion=complete.recipes),
    ] = None,
    changes: Sets = None,
    data: Data = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the recipes: what each needs and reached.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model from a recipe, or go on with a run that was stopped."""
    if listed:
        list_recipes(as_json=as_json)
        return
    from ..train.call import call

    if (recipe or folders.resume) and answered(recipe or str(folders.resume), changes or []):
        return
    files = named_files(data or (), alone="train")
    outcome = call(recipe, files, settings=changes, quiet=quiet, **asdict(folders), **asdict(options))
    if outcome.leads and as_json:
        print_json({"run": str(outcome.run.path), "finished": outcome.finished, **asdict(outcome.progress)})
    elif outcome.leads and outcome.finished:
        name = shlex.quote(str(outcome.run.path))
        print(f'{name} is ready: heed eval {name}; heed run {name} "..."')
    if not outcome.finished:
        raise typer.Exit(STOPPED)


@spread
def evaluate(
    path: Model,
    measure: MeasureOptions,
    loading: LoadOptions,
    options: GenerationOptions,
    telling: Telling,
    data: Data = None,
    changes: Sets = None,
    as_json: Json = False,
) -> None:
    """Evaluate a run or any checkpoint. A run: its task, on its data; metrics of those are also written on its card.

    Other checkpoints on --data: language models by loss, perplexity and bits per byte, masked ones by
    pseudo-perplexity, encoder-decoders by BLEU and chrF on pairs, classifiers by accuracy.
    """
    from ..runs import Run
    from ..runs.evaluate import evaluate as evaluated
    from ..runs.evaluate import opened

    model = opened(path, **loading.given())
    if telling.verbose:
        tell_engine(model.model() if isinstance(model, Run) else model.model)
    how = {name: value for name, value in asdict(measure).items() if name != "html"}
    more = {**how, **(loading.given() if isinstance(model, Run) else {})}
    files, config = named_files(data or (), alone="test"), _config(model, options)
    found = evaluated(model, files, config=config, settings=changes, quiet=telling.quiet, **more)
    if measure.html is not None:
        from ..runs.page import write_page

        write_page(measure.html, found, model)
    if as_json:
        print_json(found.data())
    else:
        print(found)


def _config(model: Run | Pipeline, options: GenerationOptions) -> GenerationConfig | None:
    """How texts are generated; None where nothing is said, as where nothing is generated."""
    from ..core.config import kind_of
    from ..pipelines import GenerationPipeline
    from ..pipelines.media.speech import SpeechPipeline
    from ..runs import Run

    strategy = None
    if isinstance(model, Run):
        strategy = model.recipe.task.strategy
    elif isinstance(model, GenerationPipeline | SpeechPipeline):
        strategy = model.strategy
    if strategy is not None:
        return options.config(strategy)
    if any(getattr(options, field.name) not in (None, "", []) for field in fields(options)):
        what = f"a {kind_of(type(model.recipe.task))} run" if isinstance(model, Run) else model.what
        raise typer.BadParameter(f"this is {what}, which generates no text: leave --beam, --temperature ... out")
    return None
