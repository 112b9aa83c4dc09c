"""The command that shows what heed is: demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, Quiet, Sets, print_json


def demo(
    out: Annotated[Path | None, typer.Option(help="The run folder to make; default: runs/demo.")] = None,
    changes: Sets = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a small Transformer to read dates in 18 languages, then evaluate it, look into it and prove it: minutes.

    Exit code 1 if it reads worse than it should, or if a statement about it does not hold.
    """
    from rich.console import Console

    from ..demo import demo as tour
    from ..demo import tell
    from ..show.progress import Silent
    from ..train.start import free

    report = tour(out or free(Path("runs", "demo")), Silent() if quiet else None, changes=changes or ())
    if as_json:
        print_json(report.plain())
    else:
        tell(report, Console())
    raise typer.Exit(not report.holds)
