"""A page of its own with a bar for every contestant: no scripts, nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from .contest import Outcome
from .figures import short
from .report import Report, Row

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1b1f; --faint: #6b6b76; --line: #c9c9d1; --ours: #0b5fb0;
  --theirs: #a9b4c4; --limit: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --paper: #17171b; --ink: #e9e9ee; --faint: #a0a0ab; --line: #45454f;
  --ours: #7cc4ff; --theirs: #5b6675; --limit: #fb923c; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin-top: 2.5rem; } p { color: var(--faint); }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.ours { fill: var(--ours); } .theirs { fill: var(--theirs); } .spread { stroke: var(--ink); stroke-width: 1.5; }
.limit { stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 4 3; } svg .note { fill: var(--limit); }
table { border-collapse: collapse; width: 100%; font-size: 0.85rem; }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.6rem 0.25rem 0; text-align: left; }
.scroll { overflow-x: auto; }
"""
LEFT, WIDE, RIGHT, HIGH, BAR = 300, 460, 180, 30, 18  # pixels: names, bars, figures; a row, and the bar in it


def page(report: Report) -> str:
    """All contests, each as a drawing and a table."""
    parts = [part for outcome in report.outcomes for part in _section(report, outcome)]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>heed bench</title><style>{STYLE}</style></head><body>",
            "<h1>heed and its peers</h1>",
            f"<p>{escape(report.stamp())} Medians over rounds in which all took turns; lines show the quartiles.</p>",
            *parts,
            "</body></html>",
            "",
        ]
    )


def _section(report: Report, outcome: Outcome) -> Iterator[str]:
    rows = report.rows(outcome)
    load = outcome.work.subject == "load"
    unit = "seconds, shorter is better" if load else f"{outcome.work.unit} per second"
    yield f"<h2>{escape(outcome.work.title)}</h2>"
    yield bars(rows, outcome, unit)
    yield f"<p>{escape(unit)}. {escape(report.limits(outcome))}.</p>"
    yield (
        '<div class="scroll"><table><tr>' + "".join(f"<th>{escape(h)}</th>" for h in report.headings(outcome)) + "</tr>"
    )
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.cells(load)) + "</tr>"
    yield "</table></div>"
    for name, why in outcome.absent.items():
        yield f"<p>{escape(name)}: {escape(why)}</p>"


def bars(rows: Sequence[Row], outcome: Outcome, unit: str) -> str:
    """Bars from zero, heed's in colour; where weights are read once per token, a line where bandwidth ends."""
    load = outcome.work.subject == "load"
    figures = [row.seconds if load else row.rate for row in rows]
    limit = rows[0].rate.middle / rows[0].share if rows[0].share else None
    most = max([figure.high for figure in figures] + ([limit] if limit else []))
    high = HIGH * len(rows) + (18 if limit else 0)
    words = f"{outcome.work.title}: " + ", ".join(
        f"{row.name} {short(figure.middle)}" for row, figure in zip(rows, figures, strict=True)
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(words)}, {escape(unit)}" '
        f'viewBox="0 0 {LEFT + WIDE + RIGHT} {high}">'
    ]
    for place, (row, figure) in enumerate(zip(rows, figures, strict=True)):
        y = HIGH * place + (HIGH - BAR) / 2
        low, middle, top = (WIDE * value / most for value in (figure.low, figure.middle, figure.high))
        kind = "theirs" if row.ours is not None else "ours"
        ratio = "" if row.ours is None else f"   heed {row.ours.middle:.2f}×"
        lines += [
            f'<text x="{LEFT - 10}" y="{y + 13:.1f}" text-anchor="end">{escape(row.name)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y:.1f}" width="{middle:.1f}" height="{BAR}" rx="2"/>',
            f'<path class="spread" d="M{LEFT + low:.1f} {y + BAR / 2:.1f}H{LEFT + top:.1f}"/>',
            f'<text x="{LEFT + max(middle, top) + 8:.1f}" y="{y + 13:.1f}" xml:space="preserve">'
            f"{short(figure.middle)}{ratio}</text>",
        ]
    if limit:
        x = LEFT + WIDE * limit / most
        note = f"bandwidth ends at {short(limit)} for heed's weights"
        lines += [
            f'<path class="limit" d="M{x:.1f} 0V{HIGH * len(rows)}"/>',
            f'<text class="note" x="{x:.1f}" y="{high - 4}" text-anchor="end">{note}</text>',
        ]
    return "\n".join([*lines, "</svg>"])
