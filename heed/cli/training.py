"""Commands that make models and use them: train, eval, run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

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

if TYPE_CHECKING:
    from io import BufferedReader

    from ..pipelines import GenerationConfig, GenerationPipeline, Pipeline
    from ..tasks import Metrics

TOGETHER = 64  # lines that are completed in one batch, if so many are there
CHUNK = 1 << 16  # bytes of the input that are read at once, at most
STOPPED = 130  # the exit code of a program that Ctrl-C stopped

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as `heed train` makes them.")]
Model = Annotated[Path, typer.Argument(metavar="PATH", help="A run folder, a checkpoint folder or a .gguf file.")]


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

    settings = [*file_settings(named_files(data or (), alone="train")), *(changes or ())]
    if (recipe is None) == (resume is None):
        raise typer.BadParameter("name either a recipe to begin with or, with --resume, a run folder to go on with")
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


@spread
def run(
    path: Model,
    options: GenerationOptions,
    text: Annotated[list[str] | None, typer.Argument(help="The prompts; otherwise every line of the input.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Chat with the model, line by line.")] = False,
    system: Annotated[str | None, typer.Option(help="Of a chat: the system prompt.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="A class to choose from (CLIP). May be repeated.")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Use a run or a checkpoint: generate text, translate, chat, fill in masks, classify, transcribe files."""
    from ..pipelines import GenerationPipeline
    from ..runs import load

    if system is not None and not chat:
        raise typer.BadParameter("--system is what a chat begins with; add --chat")
    pipeline = load(path)
    if verbose:
        tell_engine(pipeline.model)
    if label and (chat or isinstance(pipeline, GenerationPipeline)):
        raise typer.BadParameter("--label names classes of images; a model that generates text has none")
    if chat:
        _talk(pipeline, options, text or _each_line(), system, as_json=as_json)
    elif isinstance(pipeline, GenerationPipeline):
        _complete(pipeline, options, [text] if text else _lines(), as_json=as_json)
    else:
        _respond(pipeline, options, text or _each_line(), label or [], as_json=as_json)


def _talk(
    pipeline: Pipeline, options: GenerationOptions, lines: Iterable[str], system: str | None, *, as_json: bool
) -> None:
    """A chat, line by line: each completion has all messages before it as its prompt; an empty line is passed over."""
    from ..pipelines import TextGeneration

    if not isinstance(pipeline, TextGeneration) or not pipeline.framed:
        raise typer.BadParameter(f"--chat needs a language model with a chat template; this is {pipeline.what}")
    config = options.config(pipeline.strategy)
    messages = [] if system is None else [{"role": "system", "content": system}]
    for line in lines:
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        pieces = list[str]()
        for piece in pipeline.chatting(messages, config):
            pieces.append(piece)
            if not as_json:
                print(piece, end="", flush=True)
        messages.append({"role": "assistant", "content": "".join(pieces)})
        print_json(messages[-1], indent=None) if as_json else print(flush=True)


def _respond(
    pipeline: Pipeline, options: GenerationOptions, lines: Iterable[str], labels: list[str], *, as_json: bool
) -> None:
    from ..pipelines.base import classes_told

    given = [field.name for field in fields(options) if getattr(options, field.name) not in (None, "", [])]
    if given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise typer.BadParameter(f"{named}: how text is generated; this is {pipeline.what}, which generates none so")
    for line in lines:
        response = classes_told(pipeline.classify([line], labels)[0]) if labels else pipeline.respond(line)
        print_json({"text": line, **response.data}, indent=None) if as_json else print(response.text, flush=True)


def _complete(
    pipeline: GenerationPipeline, options: GenerationOptions, batches: Iterable[list[str]], *, as_json: bool
) -> None:
    config, number = options.config(pipeline.strategy), 0
    for lines in batches:
        streams = len(lines) == 1 or sys.stdout.isatty()
        if streams and not as_json and not options.best:
            for line in lines:
                _stream(pipeline, line, config, number)
                number += 1
            continue
        for begin in range(0, len(lines), TOGETHER):
            some = lines[begin : begin + TOGETHER]
            _print_batch(pipeline, some, config, number, as_json=as_json)
            number += len(some)


def _each_line() -> Iterator[str]:
    return (line for lines in _lines() for line in lines)


def _lines() -> Iterator[list[str]]:
    """The lines of the input, as many at a time as are there."""
    if sys.stdin is None:  # closed by the caller
        return
    source, done, rest = cast("BufferedReader", sys.stdin.buffer), 0, b""
    while chunk := source.read1(CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        if whole:
            yield [_text(line, number) for number, line in enumerate(whole, done + 1)]
            done += len(whole)
    if rest:
        yield [_text(rest, done + 1)]


def _text(line: bytes, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"line {number} of the input is not UTF-8 at byte {error.start + 1}; convert it, with iconv for example"
        ) from None


def _stream(pipeline: GenerationPipeline, line: str, config: GenerationConfig, number: int) -> None:
    print(pipeline.lead(line), end="", flush=True)
    for piece in pipeline.stream(line, config, first=number):
        print(piece, end="", flush=True)
    print(flush=True)


def _print_batch(
    pipeline: GenerationPipeline, lines: list[str], config: GenerationConfig, first: int, *, as_json: bool
) -> None:
    for line, best in zip(lines, pipeline.completions(lines, config, first=first), strict=True):
        if as_json:
            print_json({"text": line, "answers": [asdict(completion) for completion in best]}, indent=None)
        else:
            several = len(best) > 1
            for completion in best:
                print(f"{completion.score:9.3f}  " * several + pipeline.lead(line) + completion.text, flush=True)


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
