"""The command line. Nothing heavy is imported until a command needs it, so `heed --help` is quick."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from .. import HeedError
from . import bench, catalogue, check, convert, demo, info, run, settings, training

app = typer.Typer(
    name="heed",
    help="Attention and Transformers, every mechanism under one contract.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(catalogue.list_)
app.command("verify")(catalogue.verify)
app.command("config")(settings.config)
app.command("check")(check.check)
app.command("train")(training.train)
app.command("eval")(training.evaluate)
app.command("run")(run.run)
app.command("info")(info.info)
app.command("convert")(convert.convert)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from .. import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """The entry point: what heed raises on purpose is a message, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot show ✓ or · shows ?
            stream.reconfigure(errors="replace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has gone; nothing is left to be said
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (HeedError, OSError) as error:
        print(f"heed: {error}", file=sys.stderr)
        sys.exit(2)
