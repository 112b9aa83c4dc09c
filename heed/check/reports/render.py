"""The report for a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ..diagnose import Diagnosis
from ..outcome import Outcome, Status, Sure
from .report import Report

MARKS = {Status.PASS: ("✓", "green"), Status.FAIL: ("✗", "bold red"), Status.NONE: ("·", "dim")}
SURE = {Sure.CERTAIN: "certain", Sure.LIKELY: "likely", Sure.HINT: "possible", Sure.CONVENTION: "unusual"}


def show(report: Report, console: Console | None = None) -> None:
    """Print it."""
    (console or Console()).print(drawn(report))


def text(report: Report) -> str:
    """As plain text."""
    console = Console(file=StringIO(), width=110, no_color=True)
    console.print(drawn(report))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def drawn(report: Report) -> Group:
    """All of it."""
    head = Text.assemble((report.target, "bold"), f"  {report.kind}; {report.call}", overflow="fold")
    parts: list[RenderableType] = [head, Text(), _probes(report)]
    if report.conventions:
        told = "; ".join(f"{name}: {value}" for name, value in report.conventions)
        parts += [Text(), Text.assemble(("conventions  ", "bold"), told)]
    for one in report.likely:
        parts += [Text(), _bug(one)]
    parts += [Text(), _verdict(report)]
    return Group(*parts)


def _probes(report: Report) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for outcome in report.outcomes:
        mark, style = MARKS[outcome.status]
        table.add_row(Text(mark, style), Text(outcome.probe, style), Text(outcome.words, _style(outcome)))
    return table


def _style(outcome: Outcome) -> str:
    return "dim" if outcome.status is Status.NONE else "red" if outcome.status is Status.FAIL else ""


def _bug(one: Diagnosis) -> Panel:
    bug, code = one.bug, f"- {one.bug.before}\n+ {one.bug.after}"
    seen = (Text(f"seen: {line}") for line in one.evidence[:3])
    diff = Syntax(code, "diff", background_color="default", word_wrap=True)
    lines: list[RenderableType] = [Text(bug.says, "bold"), *seen, Text(f"fix: {bug.fix}"), diff]
    if bug.case:
        lines.append(Text(f"resembles: {bug.case}", "dim"))
    style = "red" if one.fails else "yellow"
    title = f"[bold]{bug.slug}[/bold] · {SURE[one.sure]}"
    return Panel(Group(*lines), title=title, title_align="left", border_style=style)


def _verdict(report: Report) -> Text:
    tried = sum(outcome.status is not Status.NONE for outcome in report.outcomes)
    swept = f", {len(report.swept)} other settings" if report.swept else ""
    told = f"{tried} probes{swept} in {report.seconds:.1f} s"
    if report.ok:
        return Text.assemble(("nothing wrong", "bold green"), f"  {told}")
    many = "1 likely bug" if len(report.wrong) == 1 else f"{len(report.wrong)} likely bugs"
    return Text.assemble((f"{many}: {', '.join(report.slugs)}", "bold red"), f"  {told}")
