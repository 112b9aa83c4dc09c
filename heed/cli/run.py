"""The command that uses models: run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..core.errors import InputError
from .options import GenerationOptions, Group, Json, LoadOptions, Model, Telling, print_json, spread, tell_engine

if TYPE_CHECKING:
    from io import BufferedReader

    from ..pipelines import GenerationConfig, GenerationPipeline, Pipeline, Response
    from .chat import Chat

TOGETHER = 64  # lines that are completed in one batch, if so many are there
LONGEST = 1 << 24  # bytes of a context
CHUNK = 1 << 16  # bytes of the input that are read at once, at most


@dataclass(frozen=True)
class ChatOptions(Group):
    """How to chat."""

    panel = "Chat"

    chat: Annotated[bool, typer.Option("--chat", help="Chat with the model; /help there lists commands.")] = False
    system: Annotated[str | None, typer.Option(help="Of a chat: the system prompt.")] = None
    history: Annotated[bool, typer.Option("--history/--no-history", help="Of a chat: keep what is typed.")] = True


@dataclass(frozen=True)
class AskOptions(Group):
    """What a model that generates nothing is told beside a text."""

    panel = "Classes and answers"

    label: Annotated[list[str] | None, typer.Option(help="A class to choose from (CLIP). May be repeated.")] = None
    context: Annotated[
        str | None, typer.Option(help="Of questions: the text that answers them, or the file that holds it.")
    ] = None

    def response(self, pipeline: Pipeline, line: str) -> Response:
        """What the model has to say to a text, or to a question about the context."""
        from ..pipelines.results import classes_told

        if self.context is not None:
            return pipeline.answer(line, _context(self.context)).told()
        return classes_told(pipeline.classify([line], self.label)[0]) if self.label else pipeline.respond(line)


@dataclass(frozen=True)
class OutputOptions(Group):
    """What is answered at once, and where answers go."""

    panel = "Output"

    as_json: Json = False
    batch: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='Answer a file, many lines at once: {"prompt": ...} or OpenAI\'s batches.'),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of --batch: where line i answers line i; goes on if it is there."),
    ] = None


@spread
def run(
    path: Model,
    loading: LoadOptions,
    chatting: ChatOptions,
    asking: AskOptions,
    options: GenerationOptions,
    telling: Telling,
    output: OutputOptions,
    text: Annotated[list[str] | None, typer.Argument(help="The prompts; otherwise every line of the input.")] = None,
) -> None:
    """Use a run or a checkpoint: generate text, translate, chat, fill in masks, classify, tag, answer, transcribe."""
    from ..pipelines import GenerationPipeline

    if chatting.system is not None and not chatting.chat:
        raise typer.BadParameter("--system is what a chat begins with; add --chat")
    as_json = output.as_json
    _must_be_batch(output, other=bool(text or as_json or chatting.chat or asking.label or asking.context))
    place = loading.resolve(path)
    if chatting.chat:
        _must_chat(path, place)
    pipeline = loading.load(place)
    if telling.verbose:
        tell_engine(pipeline.model)
    if output.batch is not None and output.out is not None:
        _answer_file(pipeline, options, output.batch, output.out, quiet=telling.quiet)
        return
    generates = chatting.chat or isinstance(pipeline, GenerationPipeline)
    if generates and asking.label:
        raise typer.BadParameter("--label names classes of images; a model that generates text has none")
    if generates and asking.context is not None:
        raise typer.BadParameter("--context is for models that answer by a part of it; put it into the prompt here")
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
        _respond(pipeline, options, asking, text or _each_line(), as_json=as_json)


def _must_be_batch(output: OutputOptions, *, other: bool) -> None:
    """Raise at half of it, or at what does not go with it."""
    if (output.batch is None) != (output.out is None):
        raise typer.BadParameter("--batch names a file of prompts, --out the file of answers: give both")
    if output.batch is not None and other:
        raise typer.BadParameter("--batch answers a file of prompts, as JSON: no prompts, --chat, --label or --context")


def _answer_file(pipeline: Pipeline, options: GenerationOptions, batch: Path, out: Path, *, quiet: bool) -> None:
    """Every line of a file, through the engine that serves; a run that was ended goes on."""
    from ..pipelines import GenerationPipeline
    from ..serve import Engine
    from ..serve.bulk import Progress, answer_file
    from ..show.progress import Reporter, Silent

    if not isinstance(pipeline, GenerationPipeline):
        raise typer.BadParameter(f"--batch needs a model that generates text; this is {pipeline.what}")
    config = options.config(pipeline.strategy)
    if config.prefix or config.num_return_sequences is not None or options.beam is not None:
        raise typer.BadParameter("--prefix, --num-return-sequences and --num-beams do not go with --batch")
    reporter = Silent() if quiet else Reporter()
    with ExitStack() as stack:
        engine = stack.enter_context(Engine(pipeline))

        def at(progress: Progress) -> None:
            if progress.done == progress.before:
                stack.enter_context(reporter.counting("lines", progress.total, progress.before))
            reporter.at(progress.done, f"{progress.failed:,} not answered" if progress.failed else "")

        made = answer_file(engine, batch, out, config, at)
    if made.failed:
        print(f"{made.failed:,} of {made.done - made.before:,} lines have errors as answers", file=sys.stderr)
        raise typer.Exit(1)


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


def _context(given: str) -> str:
    """The text of the file of that name, if there is one, otherwise what was given."""
    try:
        if not Path(given).is_file():
            return given
        if Path(given).stat().st_size > LONGEST:
            raise typer.BadParameter(f"{given} has more than {LONGEST:,} bytes; give a part of it as --context")
        return Path(given).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(
            f"{given} is not UTF-8 at byte {error.start + 1}; convert it, or give a text"
        ) from None
    except OSError:  # too long for a name
        return given


def _respond(
    pipeline: Pipeline, options: GenerationOptions, asking: AskOptions, lines: Iterable[str], *, as_json: bool
) -> None:
    given = [field.name for field in fields(options) if getattr(options, field.name) not in (None, "", [])]
    if given and "transcribe" in pipeline.can:
        _searching(pipeline, options)
    elif given:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise typer.BadParameter(f"{named}: how text is generated; this is {pipeline.what}, which generates none so")
    from ..tasks.media.meant import meant

    told, wrong = 0, list[str]()
    for line, several in meant(pipeline, lines):
        try:
            response = asking.response(pipeline, line)
        except InputError as error:
            if not several:
                raise
            wrong.append(str(error))  # the other files of a folder are still worth looking at
            print(error, file=sys.stderr, flush=True)
            continue
        told += 1
        if as_json:
            print_json({"text": line, **response.data}, indent=None)
        else:
            print(f"{line}\t{response.text.partition(chr(10))[0].strip()}" if several else response.text, flush=True)
    if wrong:
        print(f"{len(wrong):,} of {told + len(wrong):,} files could not be read", file=sys.stderr)
        raise typer.Exit(1)


def _searching(pipeline: Pipeline, options: GenerationOptions) -> None:
    """How a model that hears finds texts: the best path, or beams."""
    from ..pipelines.media.speech import SpeechPipeline

    if isinstance(pipeline, SpeechPipeline):
        pipeline.strategy = options.config(pipeline.strategy).strategy


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
