"""Commands that make models and use them: train, eval, run, demo."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Data, Json, Sets, Wish, file_settings, wishing

if TYPE_CHECKING:
    from ..tasks import Ask, Ready, Scores

TOGETHER = 64  # lines that are read before they are answered, if nobody waits for each

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as `heed train` makes them.")]


def train(
    recipe: Annotated[str | None, typer.Argument(help="A recipe: a .toml file, or the name of one of heed's.")] = None,
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

    settings = [*file_settings(data or (), alone="train"), *(changes or ())]
    if (recipe is None) == (resume is None):
        raise typer.BadParameter("name either a recipe to begin with or, with --resume, a run folder to go on with")
    if resume is not None:
        if out is not None:
            raise typer.BadParameter("--out is for new runs; --resume goes on in the folder it names")
        outcome = go_on(resume, settings)
    else:
        path = find(recipe or "")
        outcome = begin(Recipe.read(path, settings), out or Path("runs", path.stem), numbered=out is None)
    if as_json:
        found = {"run": str(outcome.run.path), "finished": outcome.finished, **asdict(outcome.progress)}
        print(json.dumps(found, indent=1))
    elif outcome.finished:
        print(f'{outcome.run.path} is ready: heed eval {outcome.run.path}; heed run {outcome.run.path} "..."')


@wishing
def evaluate(
    folder: Folder,
    wish: Wish,
    split: Annotated[list[str] | None, typer.Option(help="valid or test; default: those there are.")] = None,
    data: Data = None,
    first: Annotated[int | None, typer.Option(min=1, help="Score only so many examples.")] = None,
    as_json: Json = False,
) -> None:
    """Score a trained model, and write the scores on its card."""
    from ..runs import Run
    from ..runs.score import evaluate as score

    run = Run.open(folder)
    settings = file_settings(data or (), alone="test")
    splits = split or (["test"] if settings else [])
    found = score(run, settings=settings, splits=splits, ask=wish.ask(run.recipe.task), first=first)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        _table(found)


@wishing
def run(
    folder: Folder,
    wish: Wish,
    text: Annotated[list[str] | None, typer.Argument(help="What to answer; otherwise every line of the input.")] = None,
    as_json: Json = False,
) -> None:
    """Answer texts with a trained model: translate them, or go on from them."""
    from ..runs import load

    ready = load(folder)
    ask = wish.ask(ready.task)
    lines = text or (line.rstrip("\r\n") for line in sys.stdin)
    if as_json or wish.best or not (text or sys.stdin.isatty()):
        for first, some in _groups(lines, TOGETHER):
            _answer(ready, some, ask, first, as_json=as_json)
        return
    for number, line in enumerate(lines):
        print(ready.lead(line), end="", flush=True)
        for piece in ready.stream(line, ask, first=number):
            print(piece, end="", flush=True)
        print()


def _answer(ready: Ready, lines: list[str], ask: Ask, first: int, *, as_json: bool) -> None:
    for line, best in zip(lines, ready.answers(lines, ask, first=first), strict=True):
        if as_json:
            print(json.dumps({"text": line, "answers": [asdict(answer) for answer in best]}, ensure_ascii=False))
        else:
            several = len(best) > 1
            for answer in best:
                print(f"{answer.score:9.3f}  " * several + ready.lead(line) + answer.text)


def _groups(lines: Iterable[str], size: int) -> Iterator[tuple[int, list[str]]]:
    """So many lines at a time, with the number of the first."""
    left = iter(lines)
    for first in count(0, size):
        some = list(islice(left, size))
        if not some:
            return
        yield first, some


def _table(found: Mapping[str, Scores]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right", overflow="fold")
    for row in dict.fromkeys(key for scores in found.values() for key in scores):
        values = (scores.get(row, "") for scores in found.values())
        table.add_row(row, *(f"{value:,.4g}" if isinstance(value, float) else str(value) for value in values))
    Console().print(table)
