"""The report on several targets for a terminal: one table, what is wrong in detail, and a line that sums it up."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from .render import STYLES, drawn
from .report import Verdict
from .survey import Result, Survey


def show(survey: Survey, console: Console | None = None, *, details: bool = False) -> None:
    """Print it: details of what is wrong, or of everything."""
    (console or Console()).print(surveyed(survey, details=details))


def remark(survey: Survey, console: Console | None = None) -> None:
    """Print what is to be said beside the results."""
    (console or Console()).print(*_remarks(survey), sep="\n", end="")


def surveyed(survey: Survey, *, details: bool = False) -> Group:
    """All of it: the sum first, then the table, then each target that has something to say."""
    parts: list[RenderableType] = [summary(survey)]
    if survey.results:
        parts += [Text(), _table(survey)]
    for result in survey.results:
        if result.report is not None and (details or result.verdict is Verdict.WRONG):
            parts += [Text(), drawn(result.report, probes=details)]
    unchecked = [result for result in survey.results if result.verdict is Verdict.UNCHECKED]
    if unchecked:
        parts += [Text(), Text("not checked", "bold magenta"), _reasons(unchecked)]
    parts += _remarks(survey)
    return Group(*parts)


def summary(survey: Survey) -> Text:
    """How many of each verdict, in one line."""
    if not survey.results:
        words, style = "nothing attention-like was found: nothing was checked", STYLES[Verdict.UNCHECKED]
        return Text.assemble((words, style), (f" · {survey.seconds:.1f} s", "dim"))
    counted = [(survey.count(verdict), verdict) for verdict in (Verdict.WRONG, Verdict.UNCHECKED, Verdict.UNUSUAL)]
    pieces: list[tuple[str, str] | str] = [(_many(len(survey.results), "target"), "bold"), ": "]
    told = [(f"{count} {verdict}", STYLES[verdict]) for count, verdict in counted if count]
    told.append((f"{survey.count(Verdict.FINE)} {Verdict.FINE}", STYLES[Verdict.FINE]))
    for piece in told:
        pieces += [piece, ", "]
    pieces[-1] = (f" · {survey.seconds:.1f} s", "dim")
    accepted = sum(len(result.accepted) + result.known for result in survey.results)
    if accepted:
        pieces.append((f"; {_many(accepted, 'finding')} accepted by the baseline", "dim"))
    if survey.left:
        pieces.append((f"; interrupted: {_many(survey.left, 'target')} not reached", "bold magenta"))
    return Text.assemble(*pieces)


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _table(survey: Survey) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("target", "verdict", "findings"):
        table.add_column(name, overflow="fold")
    table.add_column("seconds", justify="right", no_wrap=True)
    for result in survey.results:
        verdict = Text(str(result.verdict), "dim" if result.known else STYLES[result.verdict])
        table.add_row(Text(result.target), verdict, _findings(result), f"{result.seconds:.1f}")
    return table


def _findings(result: Result) -> Text:
    """The bugs, what is unusual, and dimmed what a baseline accepts."""
    if result.report is None:
        return Text("accepted", "dim") if result.known else Text()
    named = []
    for one in result.report.likely:
        slug = one.bug.slug
        known, wrong = slug in result.accepted, slug in result.slugs
        named.append(Text(f"{slug} (accepted)" if known else slug, "dim" if known else "red" if wrong else "yellow"))
    return Text(", ").join(named)


def _reasons(results: Sequence[Result]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for result in results:
        style = "dim" if result.known else ""
        table.add_row(Text(f"  {result.target}", style), Text(result.reason, style))
    return table


def _remarks(survey: Survey) -> list[RenderableType]:
    remarks: list[RenderableType] = []
    if survey.stale:
        remarks += [
            Text(),
            Text("accepted by the baseline, but no longer there (--write-baseline removes them)", "bold"),
        ]
        remarks += [Text(f"  {target}: {slug}") for target, slug in survey.stale]
    if survey.notes:
        remarks += [Text(), Text("left out", "bold"), *(Text(f"  {note}", "dim") for note in survey.notes)]
    return remarks
