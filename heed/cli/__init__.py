"""The command line. Nothing heavy is imported until a command needs it, so `heed --help` is quick."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer

from .. import HeedError
from ..installed import warn_of_namesake
from . import bench, catalogue, check, convert, demo, info, run, see, serve, settings, training

warn_of_namesake()  # nothing new, unless the `__init__.py` of another heed took the place of ours
WRONG, STOPPED = 2, 130  # exit codes: what was asked for cannot be done; Ctrl-C
USAGE: type[Exception] = typer.BadParameter.__mro__[1]  # UsageError, which typer has of click or beside it
OTHERS = {  # what other programs call it
    "chat": "heed run MODEL --chat",
    "evaluate": "heed eval",
    "export": "heed convert",
    "generate": "heed run",
    "infer": "heed run",
    "inspect": "heed info",
    "models": "heed list models",
    "predict": "heed run",
    "quantise": "heed convert --quantise int8",
    "quantize": "heed convert --quantise int8",
    "recipes": "heed config",
    "settings": "heed config",
    "show": "heed list, heed config or heed info",
    "version": "heed --version",
}

app = typer.Typer(
    name="heed",
    help="Attention and Transformers, every mechanism under one contract.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(catalogue.list_)
app.command("verify")(catalogue.verify)
app.command("config")(settings.config)
app.command("check", cls=check.Check)(check.check)
app.command("train")(training.train)
app.command("eval")(training.evaluate)
app.command("run")(run.run)
app.command("serve")(serve.serve)
app.command("studio")(serve.studio)
app.command("info")(info.info)
app.command("see")(see.see)
app.command("cost")(see.cost)
app.command("summary")(see.summary)
app.command("plot")(see.plot)
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
            code = _obeyed(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has gone; nothing is left to be said
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (HeedError, OSError) as error:
        _fail(str(error))
    except USAGE as error:
        _fail(_worded(error))
    except typer.Abort:  # Ctrl-C
        print(file=sys.stderr)
        sys.exit(STOPPED)
    sys.exit(code)


def _obeyed(words: list[str]) -> int:
    """Do what the words say; the exit code."""
    known = [command.name for command in app.registered_commands if command.name is not None]
    if words and not words[0].startswith("-") and words[0] not in known:
        from ..core.config import nearest

        meant = f"; did you mean {OTHERS[words[0]]}?" if words[0] in OTHERS else nearest(words[0], known)
        _fail(f"there is no command {words[0]!r}{meant}")
    # Not standalone: typer then leaves wording and ending to us.
    return app(words or ["--help"], prog_name="heed", standalone_mode=False) or 0


def _worded(error: Any) -> str:
    """What typer found wrong, in heed's way: one line, and where to read more."""
    own = error.ctx is None or (type(error) is typer.BadParameter and error.param is None)
    message = error.message if own else error.format_message()
    command = "heed" if error.ctx is None else error.ctx.command_path
    return message if own else f"{message[:1].lower()}{message[1:].rstrip('.')}; {command} --help tells more"


def _fail(message: str) -> NoReturn:
    print(f"heed: {message}", file=sys.stderr)
    sys.exit(WRONG)
