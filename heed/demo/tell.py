"""The demo's findings as people read them in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..core.errors import counted
from ..show.heatmap import text_map
from ..show.progress import clock
from ..verify import show
from .report import GOALS, Report


def tell(report: Report, console: Console) -> None:
    """All of it, in the order in which it was found."""
    for heading, part in (
        ("How many answers are exactly right", _metrics(report)),
        ("What it reads, the first of each language", _readings(report)),
        (f"Where it looks: {report.aligned.words}", _map(report, console.width)),
    ):
        console.print(Text(f"\n{heading}", "bold"))
        console.print(part)
    console.print(Text("\nWhat is proven about these very weights, in float64", "bold"))
    show(report.proofs, console)
    console.print(Text("\nWhat to try next", "bold"))
    for command, words in report.commands:
        console.print(Text.assemble(command, (f"  # {words}", "dim")), soft_wrap=True)
    console.print()
    _verdict(report, console)


def _metrics(report: Report) -> Table:
    table = _table("", "split", "examples", "right", "goal", "what it asks")
    for goal in GOALS:
        exact = report.exact(goal.split)
        numbers = (str(report.metrics[goal.split]["pairs"]), f"{exact:.1f} %", f"{goal.exact:.0f} %")
        table.add_row(_mark(exact >= goal.exact), goal.split, *numbers, goal.asks)
    return table


def _readings(report: Report) -> Table:
    table = _table("", "language", "format", "written", "read as", "is")
    for reading in report.readings:
        sample = reading.sample
        kept = "kept out" if sample.kept else "of training"
        words = (sample.language, kept, Text(sample.text), Text(reading.short), sample.wanted)
        table.add_row(_mark(reading.right), *words)
    return table


def _map(report: Report, width: int) -> Text:
    figure = report.alignment
    text = text_map(figure.weights, figure.rows, figure.columns, width)
    text.append(f"\n{figure.title}; each head of each layer: {report.picture}", "dim")
    return text


def _verdict(report: Report, console: Console) -> None:
    took = ", ".join(f"{name} {clock(seconds)}" for name, seconds in report.seconds.items())
    what = f"{report.weights:,} weights, {counted(report.steps, 'step')}; {took}"
    console.print(Text(what), soft_wrap=True)
    if report.holds:
        console.print(Text("Every goal is reached and every statement holds.", "bold green"))
        return
    console.print(Text("This is not what the demo promises:", "bold red"))
    for words in report.missed:
        console.print(Text(f"✗ {words}", "red"), soft_wrap=True)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _mark(right: bool) -> Text:
    return Text("✓", "green") if right else Text("✗", "bold red")
