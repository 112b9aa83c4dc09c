"""One target for a terminal: the verdict first, then what is wrong, what was not checked, what was guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ..diagnose import Diagnosis
from ..outcome import Outcome, Status, Sure
from .report import Report, Verdict
from .survey import Result

MARKS = {Status.PASS: ("✓", "green"), Status.FAIL: ("✗", "bold red"), Status.NONE: ("·", "dim")}
SURE = {Sure.CERTAIN: "certain", Sure.LIKELY: "likely", Sure.HINT: "possible", Sure.CONVENTION: "unusual"}
STYLES = {
    Verdict.FINE: "bold green",
    Verdict.UNUSUAL: "bold yellow",
    Verdict.WRONG: "bold red",
    Verdict.UNCHECKED: "bold magenta",
}
SEEN = 3  # lines of evidence that are shown


def show(report: Report, console: Console | None = None, *, probes: bool = False) -> None:
    """Print it."""
    (console or Console()).print(drawn(report, probes=probes))


def text(report: Report) -> str:
    """As plain text."""
    console = Console(file=StringIO(), width=110, no_color=True)
    console.print(drawn(report))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def drawn(report: Report, *, probes: bool = False) -> Group:
    """All of it, with the list of probes if that is wanted."""
    parts: list[RenderableType] = [_verdict(report)]
    for one in report.likely:
        parts += [Text(), _finding(report, one)]
    if report.unchecked:
        parts += [Text(), _listed("not checked", report.unchecked)]
    parts += [Text(), _rows(_context(report))]
    if probes:
        parts += [Text(), _probes(report)]
    return Group(*parts)


def said(result: Result) -> str:
    """What a check came to, in a few words: the verdict and the names of what it found."""
    report = result.report
    if report is None or report.verdict is Verdict.UNCHECKED:
        return str(Verdict.UNCHECKED)
    named = {
        Verdict.WRONG: report.slugs,
        Verdict.UNUSUAL: [one.bug.slug for one in report.likely if one.bug.slug not in report.accepted],
    }.get(report.verdict, [])
    words = f"{report.verdict}: {', '.join(named)}" if named else str(report.verdict)
    return f"{words} (accepted: {', '.join(report.accepted)})" if report.accepted else words


def _verdict(report: Report) -> Text:
    """One line: the target, the verdict, what is wrong, how much was asked and how long it took."""
    result = Result.of(report)
    words = said(result)
    if report.ok and report.unchecked:
        words += " in what was checked; not all could be"
    elif report.verdict is Verdict.UNCHECKED:
        words += ": no probe applied"
    many = [f"{report.asked} probe{'' if report.asked == 1 else 's'}"]
    if report.swept:
        many.append(f"{len(report.swept)} other setting{'' if len(report.swept) == 1 else 's'}")
    counted = ", ".join((*many, f"{report.seconds:.1f} s"))
    return Text.assemble((f"{report.target}: ", "bold"), (words, STYLES[report.verdict]), (f" · {counted}", "dim"))


def _finding(report: Report, one: Diagnosis) -> Group:
    """What was seen, where, and how to mend it; what a baseline accepts is dimmed."""
    slug = one.bug.slug
    known = slug in report.accepted
    style = "dim" if known else "bold red" if one.fails or report.strict else "bold yellow"
    sure = f"{SURE[one.sure]}, accepted by the baseline" if known else SURE[one.sure]
    title = Text.assemble((slug, style), (f" · {sure}", "dim"), "  ", (one.bug.says, "dim" if known else "bold"))
    table = _rows(_told(report, one))
    if known:
        table.style = "dim"
    return Group(title, table)


def _told(report: Report, one: Diagnosis) -> Iterator[tuple[str, RenderableType]]:
    bug, fix = one.bug, report.fixes.get(one.bug.slug)
    for line in one.evidence[:SEEN]:
        yield "seen", Text(line)
    spot = report.spot(bug.slug)
    if spot is not None:
        look = "look at  " if bug.slug in report.looks else ""
        yield "where", Text.assemble((spot.words, "cyan"), "  " if spot.text else "", look, spot.text)
    if fix is not None:
        yield "fix", Text(fix.words)
        yield "", _diff(fix.before, fix.after)
    else:
        yield "fix", Text(bug.fix)
        yield "such as", _diff(bug.before, bug.after)
    for other in one.instead:
        yield "or", Text(other)
    if bug.case:
        yield "resembles", Text(bug.case, "dim")


def _diff(before: str, after: str) -> Syntax:
    lines = [f"- {line}" for line in before.splitlines()] + [f"+ {line}" for line in after.splitlines()]
    return Syntax("\n".join(lines), "diff", background_color="default", word_wrap=True)


def _context(report: Report) -> Iterator[tuple[str, RenderableType]]:
    """What it was taken for, what was guessed, what it does in one of several usual ways."""
    yield "taken for", Text(f"{report.kind}; {report.call}")
    for note in report.notes:
        yield "note", Text(note)
    if report.conventions:
        yield "conventions", Text("; ".join(f"{name}: {value}" for name, value in report.conventions))


def _rows(rows: Iterator[tuple[str, RenderableType]]) -> Table:
    """Words in a column, what they say beside them; a word is not said twice in a row."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    last = ""
    for name, value in rows:
        table.add_row(f"  {'' if name == last else name}", value)
        last = name
    return table


def _listed(title: str, lines: Sequence[str]) -> Group:
    return Group(Text(title, "bold magenta"), *(Text(f"  {line}") for line in lines))


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
