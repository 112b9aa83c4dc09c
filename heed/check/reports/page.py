"""The report as one HTML page, with the map of who influences whom beside what it should be. It fetches nothing."""

from __future__ import annotations

from html import escape

from ..diagnose import Diagnosis
from ..outcome import Status
from .render import MARKS, SURE
from .report import Report

SQUARE = 26  # pixels
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
.maps { display: flex; flex-wrap: wrap; gap: 2rem; } figure { margin: 0; } figcaption { color: var(--faint); }
.verdict { font-weight: 600; font-size: 1.1rem; } svg text { fill: var(--faint); font: 11px system-ui, sans-serif; }
.heat { fill: var(--heat); } .bad { fill: var(--wrong); } .cell { fill: var(--box); }
"""


def page(report: Report) -> str:
    """All of it."""
    verdict = "nothing wrong" if report.ok else "likely: " + ", ".join(report.slugs)
    parts = [
        f"<h1>heed check <code>{escape(report.target)}</code></h1>",
        f'<p class="verdict {"pass" if report.ok else "fail"}">{escape(verdict)}</p>',
        f"<p>{escape(report.kind)}; {escape(report.call)}</p>",
        *(_bug(one) for one in report.likely),
        "<h2>Who is influenced by whom</h2>",
        _maps(report),
        "<h2>Probes</h2>",
        _probes(report),
    ]
    if report.conventions:
        told = "".join(f"<tr><td>{escape(n)}</td><td>{escape(v)}</td></tr>" for n, v in report.conventions)
        parts += ["<h2>Conventions</h2>", f"<table>{told}</table>"]
    body = "\n".join(parts)
    title = f"heed check {escape(report.target)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _bug(one: Diagnosis) -> str:
    bug = one.bug
    seen = "".join(f"<li>{escape(line)}</li>" for line in one.evidence[:4])
    case = f'<p class="none">resembles {escape(bug.case)}</p>' if bug.case else ""
    return (
        f'<section class="{"bug" if one.fails else "odd"}"><h3>{escape(bug.slug)} · {SURE[one.sure]}</h3>'
        f"<p><strong>{escape(bug.says)}</strong></p><ul>{seen}</ul><p>{escape(bug.fix)}</p>"
        f"<pre>- {escape(bug.before)}\n+ {escape(bug.after)}</pre>{case}</section>"
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
