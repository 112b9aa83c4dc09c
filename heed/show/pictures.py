"""Tables, drawings and small pictures as one HTML page, which fetches nothing and runs nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..core.atomic import replacing

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1f; --faint: #d9d9e0; --heat: 11 95 176; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16161a; --ink: #e9e9ee; --faint: #3a3a43; --heat: 124 196 255; }
}
body { margin: 2rem; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--faint); }
th:first-child { text-align: left; }
div { overflow-x: auto; }
ul { display: flex; flex-wrap: wrap; gap: 1.25rem; padding: 0; list-style: none; }
li { width: 9rem; font-size: .85rem; overflow-wrap: anywhere; }
img { width: 8rem; height: 8rem; object-fit: contain; image-rendering: pixelated; background: var(--faint); }
svg { max-width: 100%; height: auto; background: #fff; }
""".strip()
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # whatever a name may hold


@dataclass(frozen=True)
class Sheet:
    """A table with names for rows and columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    strength: Sequence[Sequence[float]] | None = None  # how strongly each cell is tinted, from 0 to 1


@dataclass(frozen=True)
class Shot:
    """A picture with what is told of it; without one, words alone."""

    png: bytes | None
    lines: Sequence[str]


@dataclass(frozen=True)
class Page:
    """What a page shows, in this order."""

    title: str
    sheets: Sequence[Sheet] = ()
    drawings: Sequence[str] = ()  # SVG made here
    shots_title: str = ""
    shots: Sequence[Shot] = ()

    def html(self) -> str:
        lines = [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{_words(self.title)}</title>",
            f"<style>\n{STYLE}\n</style>",
            "</head>",
            "<body>",
            f"<h1>{_words(self.title)}</h1>",
            *(line for sheet in self.sheets for line in _table(sheet)),
            *(f"<div>{drawing}</div>" for drawing in self.drawings),
            *_gallery(self.shots_title, self.shots),
            "</body>",
            "</html>",
        ]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """As a file, all of it or nothing: a crash leaves the old one."""
        with replacing(path) as fresh:
            fresh.write_text(self.html(), encoding="utf-8")


def _table(sheet: Sheet) -> Iterator[str]:
    yield f"<h2>{_words(sheet.title)}</h2>"
    yield "<div><table>"
    yield f"<tr><th></th>{''.join(f'<th>{_words(name)}</th>' for name in sheet.columns)}</tr>"
    for number, (name, cells) in enumerate(sheet.rows):
        shades = [0.0] * len(cells) if sheet.strength is None else sheet.strength[number]
        told = "".join(_cell(cell, shade) for cell, shade in zip(cells, shades, strict=True))
        yield f"<tr><th>{_words(name)}</th>{told}</tr>"
    yield "</table></div>"


def _cell(text: str, shade: float) -> str:
    tint = f' style="background: rgb(var(--heat) / {shade:.2f})"' if shade > 0 else ""
    return f"<td{tint}>{_words(text)}</td>"


def _gallery(title: str, shots: Sequence[Shot]) -> Iterator[str]:
    if not shots:
        return
    yield f"<h2>{_words(title)}</h2>"
    yield "<ul>"
    for shot in shots:
        words = "<br>".join(map(_words, shot.lines))
        png = "" if shot.png is None else b64encode(shot.png).decode()
        seen = "" if shot.png is None else f'<img alt="{_words(shot.lines[0])}" src="data:image/png;base64,{png}"><br>'
        yield f"<li>{seen}{words}</li>"
    yield "</ul>"


def _words(text: str) -> str:
    """Without what would be taken for HTML, or moves what stands beside it."""
    return escape("".join(character if character.isprintable() else "·" for character in text))
