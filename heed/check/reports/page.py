"""The report as one HTML page, which fetches nothing: one target with the map of who influences whom, or a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..diagnose import Diagnosis
from ..outcome import Status
from .render import MARKS, SURE, said
from .report import Report, Verdict
from .survey import Result, Survey
from .table import summary

SQUARE = 26  # pixels
MOODS = {Verdict.FINE: "pass", Verdict.UNUSUAL: "odd", Verdict.WRONG: "fail", Verdict.UNCHECKED: "none"}
STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --paper: #fff; --faint: #6b6b76; --line: #d9d9e0; --wrong: #c02626;
  --right: #15803d; --odd: #a16207; --heat: #0b5fb0; --box: #f6f6f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e9e9ee; --paper: #17171b; --faint: #9a9aa6; --line: #3a3a44;
  --wrong: #ff7b72; --right: #6fdc8c; --odd: #e3b341; --heat: #7cc4ff; --box: #212127; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { background: var(--box); padding: .6rem .8rem; border-radius: .4rem; overflow-x: auto; white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; } td { padding: .15rem .6rem .15rem 0; vertical-align: top; }
.pass { color: var(--right); } .fail { color: var(--wrong); } .none { color: var(--faint); }
section { border: 1px solid var(--line); border-left: .35rem solid var(--wrong); border-radius: .4rem;
  padding: .2rem 1rem .6rem; margin: 1.2rem 0; } section.odd { border-left-color: var(--odd); }
section.known { border-left-color: var(--line); opacity: .6; } th { text-align: left; } .odd { color: var(--odd); }
section.odd, section.known { color: var(--ink); } summary { cursor: pointer; margin: .4rem 0; }
.maps { display: flex; flex-wrap: wrap; gap: 2rem; } figure { margin: 0; } figcaption { color: var(--faint); }
.verdict { font-weight: 600; font-size: 1.1rem; } svg text { fill: var(--faint); font: 11px system-ui, sans-serif; }
.heat { fill: var(--heat); } .bad { fill: var(--wrong); } .cell { fill: var(--box); }
"""


def page(report: Report) -> str:
    """One target."""
    heading = f"<h1>heed check <code>{escape(report.target)}</code></h1>"
    return _document(f"heed check {report.target}", [heading, *_told(report)])


def pages(survey: Survey) -> str:
    """Many targets: one table, each with its details folded."""
    rows = "".join(_row(number, result) for number, result in enumerate(survey.results))
    head = "<tr>" + "".join(f"<th>{name}</th>" for name in ("target", "verdict", "findings", "seconds")) + "</tr>"
    parts = ["<h1>heed check</h1>", f'<p class="verdict">{escape(summary(survey).plain)}</p>']
    parts += [f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"] if survey.results else []
    parts += [_folded(number, result) for number, result in enumerate(survey.results)]
    stale = [f"{target}: {slug}" for target, slug in survey.stale]
    parts += _list("Accepted by the baseline, but no longer there", stale) + _list("Left out", survey.notes)
    return _document("heed check", parts)


def _document(title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _row(number: int, result: Result) -> str:
    target = f'<a href="#t{number}"><code>{escape(result.target)}</code></a>'
    verdict = f'<span class="{MOODS[result.verdict]}">{escape(str(result.verdict))}</span>'
    likely = [] if result.report is None else result.report.likely
    found = [f"{one.bug.slug} (accepted)" if one.bug.slug in result.accepted else one.bug.slug for one in likely]
    cells = (target, verdict, escape(", ".join(found)), f"{result.seconds:.1f}")
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _folded(number: int, result: Result) -> str:
    opened = " open" if result.verdict is Verdict.WRONG else ""
    title = f"<summary><code>{escape(result.target)}</code></summary>"
    told = [f"<p>{escape(result.problem)}</p>"] if result.report is None else _told(result.report)
    return f'<details id="t{number}"{opened}>{title}{"".join(told)}</details>'


def _told(report: Report) -> list[str]:
    """What is told of one target, below its name."""
    parts = [
        f'<p class="verdict {MOODS[report.verdict]}">{escape(said(Result.of(report)))}</p>',
        *(_bug(report, one) for one in report.likely),
        *_list("Not checked", report.unchecked),
        f"<p>{escape(str(report.kind))}; {escape(report.call)}</p>",
        *_list("Notes", report.notes),
        "<h2>Who is influenced by whom</h2>",
        _maps(report),
        "<h2>Probes</h2>",
        _probes(report),
    ]
    if report.conventions:
        told = "".join(f"<tr><td>{escape(n)}</td><td>{escape(v)}</td></tr>" for n, v in report.conventions)
        parts += ["<h2>Conventions</h2>", f"<table>{told}</table>"]
    return parts


def _list(title: str, lines: Sequence[str]) -> list[str]:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return [f"<h2>{escape(title)}</h2><ul>{items}</ul>"] if lines else []


def _bug(report: Report, one: Diagnosis) -> str:
    bug, fix = one.bug, report.fixes.get(one.bug.slug)
    seen = "".join(f"<li>{escape(line)}</li>" for line in one.evidence[:4])
    spot = report.spot(bug.slug)
    where = f"<p><code>{escape(spot.words)}</code> <code>{escape(spot.text)}</code></p>" if spot is not None else ""
    words, before, after = (bug.fix, bug.before, bug.after) if fix is None else (fix.words, fix.before, fix.after)
    case = f'<p class="none">resembles {escape(bug.case)}</p>' if bug.case else ""
    others = "".join(f"<p>or {escape(other)}</p>" for other in one.instead)
    known = bug.slug in report.accepted
    mood = "known" if known else "bug" if one.fails or report.strict else "odd"
    sure = f"{SURE[one.sure]}, accepted by the baseline" if known else SURE[one.sure]
    return (
        f'<section class="{mood}"><h3>{escape(bug.slug)} · {sure}</h3>'
        f"<p><strong>{escape(bug.says)}</strong></p><ul>{seen}</ul>{where}<p>{escape(words)}</p>"
        f"<pre>- {escape(before)}\n+ {escape(after)}</pre>{others}{case}</section>"
    )


def _probes(report: Report) -> str:
    rows = []
    for outcome in report.outcomes:
        kind = {Status.PASS: "pass", Status.FAIL: "fail", Status.NONE: "none"}[outcome.status]
        cells = (MARKS[outcome.status][0], outcome.probe, outcome.words)
        rows.append(f'<tr class="{kind}">' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table>{''.join(rows)}</table>"


def _maps(report: Report) -> str:
    if not report.influence:
        return "<p>It has no tokens that could influence each other.</p>"
    found = _map(report, "influence", "measured: how far an output (row) moves with an input (column)")
    return f'<div class="maps">{found}{_map(report, "expected", "expected: where it may move")}</div>'


def _map(report: Report, which: str, words: str) -> str:
    rows = report.influence if which == "influence" else report.expected
    most = max((min(v, 1.0) for row in rows for v in row), default=1.0) or 1.0
    squares = []
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            allowed = report.expected[i][j] > 0 if report.expected else True
            place = f'x="{20 + SQUARE * j}" y="{20 + SQUARE * i}" width="{SQUARE - 2}" height="{SQUARE - 2}"'
            squares.append(f'<rect class="cell" {place}/>')
            if value > 1e-9:
                kind = "heat" if allowed else "bad"
                shade = 0.25 + 0.75 * min(value, most) / most
                told = f"<title>output {i}, input {j}: {value:.2g}</title>"
                squares.append(f'<rect class="{kind}" {place} fill-opacity="{shade:.2f}">{told}</rect>')
    numbers = [f'<text x="{28 + SQUARE * j}" y="14">{j}</text>' for j in range(len(rows[0]))]
    numbers += [f'<text x="4" y="{36 + SQUARE * i}">{i}</text>' for i in range(len(rows))]
    wide, high = 24 + SQUARE * len(rows[0]), 24 + SQUARE * len(rows)
    inside = "".join(squares + numbers)
    drawing = f'<svg width="{wide}" height="{high}" role="img" aria-label="{escape(words)}">{inside}</svg>'
    return f"<figure>{drawing}<figcaption>{escape(words)}</figcaption></figure>"
