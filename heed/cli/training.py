"""Commands that make models and measure them: train, eval."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import complete
from .options import (
    Data,
    GenerationOptions,
    Json,
    Sets,
    Verbose,
    file_settings,
    named_files,
    print_json,
    spread,
    tell_engine,
)
from .settings import answered

if TYPE_CHECKING:
    from ..tasks import Metrics

STOPPED = 130  # the exit code of a program that Ctrl-C stopped

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as `heed train` makes them.")]


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe: a .toml file, or the name of one of heed's.", autocompletion=complete.recipes),
    ] = None,
    changes: Sets = None,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; default: runs/NAME.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with a run that was stopped.")] = None,
    as_json: Json = False,
) -> None:
    """Train a model from a recipe, or go on with a run that was stopped."""
    from ..runs import Recipe, find
    from ..train import resume as go_on
    from ..train import train as begin

    settings = [*file_settings(named_files(data or (), alone="train")), *(changes or ())]
    if (recipe is None) == (resume is None):
        raise typer.BadParameter("name either a recipe to begin with or, with --resume, a run folder to go on with")
    if answered(recipe or str(resume), changes or []):
        return
    if resume is not None:
        if out is not None:
            raise typer.BadParameter("--out is for new runs; --resume goes on in the folder it names")
        outcome = go_on(resume, settings)
    else:
        path = find(recipe or "")
        outcome = begin(Recipe.read(path, settings), out or Path("runs", path.stem), numbered=out is None)
    if outcome.leads and as_json:
        print_json({"run": str(outcome.run.path), "finished": outcome.finished, **asdict(outcome.progress)})
    elif outcome.leads and outcome.finished:
        name = shlex.quote(str(outcome.run.path))
        print(f'{name} is ready: heed eval {name}; heed run {name} "..."')
    if not outcome.finished:
        raise typer.Exit(STOPPED)


@spread
def evaluate(
    folder: Folder,
    options: GenerationOptions,
    split: Annotated[list[str] | None, typer.Option(help="valid or test; default: those there are.")] = None,
    data: Data = None,
    first: Annotated[int | None, typer.Option(min=1, help="Evaluate on so many examples only.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Evaluate a run. Metrics on its own data, with its own strategy, are also written on its card."""
    from ..runs import Run
    from ..runs.evaluate import evaluate as evaluated

    run = Run.open(folder)
    files = named_files(data or (), alone="test")
    splits = split or list(files)
    config = options.config(run.recipe.task.decode)
    if verbose:
        tell_engine(run.model())
    found = evaluated(run, settings=file_settings(files), splits=splits, config=config, first=first)
    if as_json:
        print_json(found)
    else:
        _table(found)


def _table(found: Mapping[str, Metrics]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right", overflow="fold")
    for row in dict.fromkeys(key for metrics in found.values() for key in metrics):
        values = (metrics.get(row, "") for metrics in found.values())
        table.add_row(row, *(f"{value:,.4g}" if isinstance(value, float) else str(value) for value in values))
    Console().print(table)
