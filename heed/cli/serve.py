"""The command that serves models over HTTP."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import complete
from .options import Group, spread

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
