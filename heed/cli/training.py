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
from .settings import answered

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
    device: Annotated[
        str | None,
        typer.Option(help="Where to train: cpu, cuda, mps; default: the fastest.", autocompletion=complete.devices),
    ] = None


@dataclass(frozen=True)
class MeasureOptions(Group):
    """On what a model is evaluated, and how a text is read."""

    panel = "Evaluation"

    split: Annotated[list[str] | None, typer.Option(help="valid or test; default: those there are.")] = None
    first: Annotated[int | None, typer.Option(min=1, help="Evaluate on so many examples only.")] = None
    context: Annotated[int | None, typer.Option(min=1, help="Of a text: tokens of a window.")] = None
    stride: Annotated[int | None, typer.Option(min=1, help="Of a text: tokens by which windows move on.")] = None


@spread
def train(
    options: TrainingOptions,
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe: a .toml file, or the name of one of heed's.", autocompletion=complete.recipes),
    ] = None,
    changes: Sets = None,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; default: runs/NAME.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with a run that was stopped.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model from a recipe, or go on with a run that was stopped."""
    from ..train.call import call

    if (recipe or resume) and answered(recipe or str(resume), changes or []):
        return
    files = named_files(data or (), alone="train")
    outcome = call(recipe, files, settings=changes, out=out, resume=resume, quiet=quiet, **asdict(options))
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
    more = {**asdict(measure), **(loading.given() if isinstance(model, Run) else {})}
    files, config = named_files(data or (), alone="test"), _config(model, options)
    found = evaluated(model, files, config=config, settings=changes, quiet=telling.quiet, **more)
    if as_json:
        print_json(dict(found))
    else:
        print(found)


def _config(model: Run | Pipeline, options: GenerationOptions) -> GenerationConfig | None:
    """How texts are generated; None where nothing is said, as where nothing is generated."""
    from ..pipelines import GenerationPipeline
    from ..runs import Run

    if isinstance(model, Run):
        return options.config(model.recipe.task.decode)
    if isinstance(model, GenerationPipeline):
        return options.config(model.strategy)
    if any(getattr(options, field.name) not in (None, "", []) for field in fields(options)):
        raise typer.BadParameter(f"this is {model.what}, which generates no text: leave --beam, --temperature ... out")
    return None
