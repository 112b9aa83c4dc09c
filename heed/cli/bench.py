"""The command that measures: bench."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..bench.shapes import Model
from ..bench.work import Precision, Subject
from .options import Json, print_json, spread

STOPPED = 128 + signal.SIGTERM  # the exit code of a program that was told to end


@dataclass(frozen=True)
class Sizes:
    """How much work, and how often."""

    batch: Annotated[int | None, typer.Option(min=1, help="Rows at a time; default: the usual ones.")] = None
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a row: written by decode, else read.")] = None
    rounds: Annotated[int, typer.Option(min=1, help="How often everybody has a turn.")] = 7
    threads: Annotated[int | None, typer.Option(min=1, help="Of everybody; default: one per core.")] = None


@spread
def bench(
    sizes: Sizes,
    subject: Annotated[Subject | None, typer.Argument(help="What is measured; default: some of everything.")] = None,
    model: Annotated[Model | None, typer.Option(help="The shape; its weights are random.")] = None,
    against: Annotated[str | None, typer.Option(help="Peers, with commas between them; default: all.")] = None,
    precision: Annotated[Precision, typer.Option(help="Of heed's weights; peers take the nearest they have.")] = "fp32",
    html: Annotated[Path | None, typer.Option(help="Write a page with drawings to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Measure heed beside the peers that are installed: in turns, in processes of their own, doing the same work.

    Peers: transformers, ctranslate2, llama.cpp, onnxruntime, x-transformers, rwkv, torch, torch.compile, bare-torch.
    """
    from rich.console import Console

    from ..bench import bench as measure
    from ..bench.cases import Size, contests
    from ..bench.page import page

    threads = sizes.threads or len(os.sched_getaffinity(0))
    works = contests(subject, model, precision, Size(sizes.batch, sizes.tokens, threads))
    errors = Console(stderr=True)
    signal.signal(signal.SIGTERM, _end)
    with errors.status("") as status:
        say = status.update if errors.is_terminal else errors.print
        report = measure(works, against, sizes.rounds, say)
    if html is not None:
        html.write_text(page(report), encoding="utf-8")
    if as_json:
        print_json(report.plain())
    else:
        report.show(Console())


def _end(*_: object) -> None:
    """Checkpoints and processes are cleared away, which a second signal must not interrupt."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(STOPPED)
