"""The command that uses models: run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from .options import GenerationOptions, Group, Json, LoadOptions, Model, Telling, print_json, spread, tell_engine

if TYPE_CHECKING:
    from io import BufferedReader

    from ..pipelines import GenerationConfig, GenerationPipeline, Pipeline
    from .chat import Chat

TOGETHER = 64  # lines that are completed in one batch, if so many are there
CHUNK = 1 << 16  # bytes of the input that are read at once, at most


@dataclass(frozen=True)
class ChatOptions(Group):
    """How to chat."""

    panel = "Chat"

    chat: Annotated[bool, typer.Option("--chat", help="Chat with the model; /help there lists commands.")] = False
    system: Annotated[str | None, typer.Option(help="Of a chat: the system prompt.")] = None
    history: Annotated[bool, typer.Option("--history/--no-history", help="Of a chat: keep what is typed.")] = True


@spread
def run(
    path: Model,
    loading: LoadOptions,
    chatting: ChatOptions,
    options: GenerationOptions,
    telling: Telling,
    text: Annotated[list[str] | None, typer.Argument(help="The prompts; otherwise every line of the input.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="A class to choose from (CLIP). May be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Use a run or a checkpoint: generate text, translate, chat, fill in masks, classify, transcribe files."""
    from ..pipelines import GenerationPipeline

    if chatting.system is not None and not chatting.chat:
        raise typer.BadParameter("--system is what a chat begins with; add --chat")
    place = loading.resolve(path)
    if chatting.chat:
        _must_chat(path, place)
    pipeline = loading.load(place)
    if telling.verbose:
        tell_engine(pipeline.model)
    if label and (chatting.chat or isinstance(pipeline, GenerationPipeline)):
        raise typer.BadParameter("--label names classes of images; a model that generates text has none")
    if chatting.chat:
        from .chat import banner, converse, talk

        chat = _begun(pipeline, options, chatting.system, quiet=telling.quiet)
        if text or as_json or not _person():
            talk(chat, text or _each_line(), as_json=as_json)
        else:
            converse(chat, history=chatting.history, banner="" if telling.quiet else banner(place, pipeline.model))
    elif isinstance(pipeline, GenerationPipeline):
        config = options.seeded(pipeline.strategy, quiet=telling.quiet)
        _complete(pipeline, config, [text] if text else _lines(), as_json=as_json)
    else:
        _respond(pipeline, options, text or _each_line(), label or [], as_json=as_json)


def _must_chat(path: str, place: Path) -> None:
    """Raise unless there is a chat template, before anything large is read."""
    from ..runs.info import source

    found = source(place)
    if not found.chats:
        raise typer.BadParameter(
            f"--chat needs a chat template, and {path} ({found.what}) has none: it was not trained to chat; leave "
            f'--chat out to continue a text: heed run {shlex.quote(path)} "..."'
        )


def _begun(pipeline: Pipeline, options: GenerationOptions, system: str | None, *, quiet: bool) -> Chat:
    """A chat in which nothing was said yet."""
    from ..pipelines import TextGeneration
    from .chat import Chat

    if not isinstance(pipeline, TextGeneration):
        raise typer.BadParameter(f"--chat needs a language model with a chat template; this is {pipeline.what}")
    return Chat(pipeline, options.seeded(pipeline.strategy, quiet=quiet), system)


def _person() -> bool:
    """Whether both ends are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _respond(
    pipeline: Pipeline, options: GenerationOptions, lines: Iterable[str], labels: list[str], *, as_json: bool
) -> None:
    from ..pipelines.results import classes_told

    given = [field.name for field in fields(options) if getattr(options, field.name) not in (None, "", [])]
    if given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise typer.BadParameter(f"{named}: how text is generated; this is {pipeline.what}, which generates none so")
    for line in lines:
        response = classes_told(pipeline.classify([line], labels)[0]) if labels else pipeline.respond(line)
        print_json({"text": line, **response.data}, indent=None) if as_json else print(response.text, flush=True)


def _complete(
    pipeline: GenerationPipeline, config: GenerationConfig, batches: Iterable[list[str]], *, as_json: bool
) -> None:
    number, one = 0, config.num_return_sequences is None
    for lines in batches:
        streams = len(lines) == 1 or sys.stdout.isatty()
        if streams and not as_json and one:
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
            print_json({"text": line, "answers": [completion.data() for completion in best]}, indent=None)
        else:
            several = len(best) > 1
            for completion in best:
                print(f"{completion.score:9.3f}  " * several + pipeline.lead(line) + completion.text, flush=True)
