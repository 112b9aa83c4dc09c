"""The commands that serve models: to programs over HTTP, and to people in the browser."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import complete
from .options import Group, LoadOptions, spread

if TYPE_CHECKING:
    from ..serve.api.settings import ServeConfig


@dataclass(frozen=True)
class ServeOptions(Group):
    """How to serve; what is not given is as the config file has it."""

    panel = "Serving"

    host: Annotated[
        str | None, typer.Option(help="Where to listen. 127.0.0.1: this machine alone; others need keys.")
    ] = None
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = None
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The keys that open the server, one per line.")
    ] = None
    allow_hosts: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A name that the Host header may have. May be repeated.")
    ] = None
    memory: Annotated[str | None, typer.Option(help="For the states of all requests: 4GiB, 512MiB.")] = None
    rows: Annotated[int | None, typer.Option(min=1, help="Requests that are written at once.")] = None
    waiting: Annotated[int | None, typer.Option(min=1, help="Requests that may wait for that.")] = None
    threads: Annotated[int | None, typer.Option(min=1, help="Threads that compute; default: the cores there are.")] = (
        None
    )
    quiet: Annotated[
        bool | None, typer.Option("--quiet", "-q", help="No line in the log for requests that were answered.")
    ] = None


@spread
def serve(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Run folders, checkpoint folders, .gguf files or ids of the hub."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(metavar="NAME=MODEL", help="A model, and what it is called. May be repeated.")
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER[@MODEL]", help="An adapter (LoRA), served under its own name. May be repeated."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A serve.toml with all of this.")] = None,
    quantise: Annotated[
        str | None,
        typer.Option(help="Quantise the weights: int8, int4.", autocompletion=complete.precisions),
    ] = None,
    options: ServeOptions = ServeOptions(),  # noqa: B008  # frozen; typer gives one made of what was given
) -> None:
    """Serve models over HTTP, with the API of OpenAI and a page to chat in."""
    from ..serve.api.settings import adapters_named, merged, named

    told = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(options).items()}
    told["adapters"] = adapters_named(adapter or [])
    run(merged(config, told, named(paths or [], name or []), quantise))


def run(config: ServeConfig) -> None:
    """Load the models and serve them until a signal ends it."""
    from .. import __version__
    from ..serve.api import start

    start(config, __version__, say)


def say(line: str) -> None:
    """What a person at the terminal reads."""
    print(line, file=sys.stderr, flush=True)


@spread
def studio(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH|RUNS]",
            help="A run or checkpoint folder, a .gguf file, an id of the hub, or a folder of runs; default: runs.",
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Of --html: the text to look at; without a tokenizer: ids.")] = None,
    pair: Annotated[
        str | None, typer.Option(help="Of --html: the second text, or the answer of an encoder-decoder.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page with one text to a file, and serve nothing.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    loading: LoadOptions = LoadOptions(),  # noqa: B008  # frozen; typer gives one made of what was given
) -> None:
    """Look into a model in the browser: attention maps, influence, steps of attention, next tokens, runs."""
    import webbrowser

    from ..core.errors import InputError
    from ..studio import Opening, must_be_there, record, serve, studio_of

    if html is None:
        must_be_there()
        if text is not None or pair is not None:
            raise InputError("--text and --pair are what --html writes; in the studio type them into the page")
    place = None if path is None else Path(path) if Path(path).is_dir() else loading.resolve(path)
    opened = studio_of(place, loading.load)
    if html is None:
        serve(opened, Opening(place, port), say, show=webbrowser.open if browser else lambda _: None)
        return
    from ..core.atomic import replacing
    from ..studio.scenes import Given

    if len(opened.sources) != 1:
        raise InputError(f"--html writes one model's page; name one of {', '.join(opened.sources) or 'them'}")
    written = record(opened, next(iter(opened.sources)), Given(text=text, pair=pair))
    with replacing(html) as fresh:
        fresh.write_text(written, encoding="utf-8")
