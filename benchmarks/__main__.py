"""The command line: `python -m benchmarks [names] [--json FILE] [--markdown]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import (
    attend,
    bitnet,
    bits,
    context,
    cost,
    crate,
    dequantised,
    digests,
    dropout,
    images,
    linear,
    load,
    longer,
    loop,
    quality,
    recall,
    shakespeare,
    share,
    sounds,
    start,
    text,
    training,
    window,
)
from benchmarks.report import Report, Row, machine

SUBJECTS = {
    "start": start.rows,
    "attend": attend.rows,
    "window": window.rows,
    "longer": longer.rows,
    "linear": linear.rows,
    "dropout": dropout.rows,
    "bits": bits.rows,
    "dequantised": dequantised.rows,
    "context": context.rows,
    "share": share.rows,
    "training": training.rows,
    "loop": loop.rows,
    "load": load.rows,
    "digests": digests.rows,
}
LONG = {
    "bitnet": bitnet.rows,
    "cost": cost.rows,
    "crate": crate.rows,
    "recall": recall.rows,
    "shakespeare": shakespeare.rows,
    "dates": quality.dates,
    "characters": quality.characters,
    "translation": quality.translation,
    "sounds": sounds.rows,
    "text": text.rows,
    **text.EACH,
    "pretrained": text.pretrained,
    "images": images.rows,
}
ALL = {**SUBJECTS, **LONG}
HELP = f"What to measure: {', '.join(SUBJECTS)} (all of these if none is named); or {', '.join(LONG)}, which take long."


def main(
    names: Annotated[list[str] | None, typer.Argument(help=HELP)] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file as well.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for README.md, not tables.")] = False,
    rounds: Annotated[int | None, typer.Option(min=2, help="Rounds per race; each subject knows its own.")] = None,
) -> None:
    """Measure heed beside the best that plain torch offers. Exit code 1 if a target is clearly missed."""
    chosen = names or list(SUBJECTS)
    unknown = [name for name in chosen if name not in ALL]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is not measured here; there is {', '.join(ALL)}")
    where = machine()  # before the work: its load is what we ran into, not what we made
    progress = Console(stderr=True)
    subjects: dict[str, Sequence[Row]] = {}
    for name in chosen:
        with progress.status(f"measuring {name}"):
            subjects[name] = list(ALL[name](rounds))
    report = Report(subjects, where)
    if as_json is not None:
        as_json.write_text(json.dumps(report.plain(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if markdown:
        print(report.markdown())
    else:
        report.show(Console())
    raise typer.Exit(any(row.verdict == "missed" for rows in subjects.values() for row in rows))


if __name__ == "__main__":
    typer.run(main)
