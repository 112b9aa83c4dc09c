"""Heat maps of a matrix with named rows and columns: as text for a terminal, and as a page that needs nothing else.

A page is one HTML file with its styles and drawings inside: no script, no font and no picture is fetched, so it opens
without a network and shows the same years from now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ..core.atomic import replacing
from ..core.errors import InputError

Matrix: TypeAlias = "Sequence[Sequence[float]]"  # row by row

# From nothing to the largest weight. The characters alone tell the five steps apart, the colours only help.
SHADES = ((" ", ""), ("░", "blue"), ("▒", "cyan"), ("▓", "green"), ("█", "yellow"))
LEAST = 2  # terminal cells of a column: as broad as a line is high, and room for a Chinese character
WIDTH = 100  # terminal cells of a text map, if nothing else is said

CELL, GAP, LETTER = 22, 6, 8  # pixels: a square, between labels and squares, a letter


@dataclass(frozen=True)
class Figure:
    """One map: `weight[row][column]`, each at least 0. Neighbours with the same `part` stand under one heading."""

    title: str
    weights: Matrix
    rows: Sequence[str]
    columns: Sequence[str]
    part: str = ""

    def __post_init__(self) -> None:
        sizes = {len(row) for row in self.weights}
        if not self.rows or not self.columns or len(self.weights) != len(self.rows) or sizes != {len(self.columns)}:
            given = f"{len(self.weights)} rows of {sorted(sizes)} weights"
            raise InputError(
                f"a map with {len(self.rows)} row labels and {len(self.columns)} column labels needs a weight for each "
                f"pair, at least one; got {given}"
            )
        wrong = next((w for row in self.weights for w in row if not (isfinite(w) and w >= 0)), None)
        if wrong is not None:
            raise InputError(f"a weight of a map is a number from 0 on, not {wrong}")

    @property
    def top(self) -> float:
        """The largest weight, which is drawn darkest; 1 if all are 0."""
        return max(map(max, self.weights)) or 1.0

    @property
    def words(self) -> str:
        """The map for those who cannot see it: where each row is darkest."""
        names = list(map(_printable, self.columns))
        peaks = (max(range(len(names)), key=list(row).__getitem__) for row in self.weights)
        found = zip(map(_printable, self.rows), peaks, self.weights, strict=True)
        return "; ".join(f"{row}: most on {names[peak]} ({weights[peak]:.2f})" for row, peak, weights in found)


# --- text ---


def text_map(weights: Matrix, rows: Sequence[str], columns: Sequence[str], width: int = WIDTH) -> Text:
    """A map of shaded blocks, at most `width` cells broad: columns that do not fit stand below the first ones."""
    figure = Figure("", weights, rows, columns)
    head = head_width(rows)
    text = Text(no_wrap=True)
    for band in bands(figure.columns, width - head):
        text.append(" " * head)
        for place in band:
            text.append(fitted(figure.columns[place], cells_of(figure.columns[place])))
        text.append("\n")
        for row, line in zip(figure.rows, figure.weights, strict=True):
            text.append(fitted(row, head))
            for place in band:
                text.append_text(_block(line[place] / figure.top, cells_of(figure.columns[place])))
            text.append("\n")
    text.append_text(_legend(figure.top, head))
    return text


def head_width(rows: Sequence[str]) -> int:
    """Cells of the names of rows, and of what stands between them and the map."""
    return max(cell_len(_printable(row)) for row in rows) + 1


def bands(columns: Sequence[str], width: int) -> Iterator[list[int]]:
    """Columns that stand beside one another, at least one."""
    band, taken = list[int](), 0
    for place, name in enumerate(columns):
        breadth = cells_of(name)
        if band and taken + breadth > width:
            yield band
            band, taken = [], 0
        band.append(place)
        taken += breadth
    yield band


def cells_of(name: str) -> int:
    """Cells of a column. Labels that are words need a gap between them."""
    length = cell_len(_printable(name))
    return LEAST if length <= LEAST else length + 1


def _block(share: float, breadth: int) -> Text:
    """A share of the largest weight as shade; the gap after a word stays empty."""
    block, style = SHADES[min(int(share * len(SHADES)), len(SHADES) - 1)]
    gap = breadth > LEAST
    return Text(block * (breadth - gap), style).append(" " * gap, "default")


def _legend(top: float, indent: int) -> Text:
    text = Text(" " * indent + "0 ", no_wrap=True)
    for step, (block, style) in enumerate(SHADES, 1):
        text.append(block * LEAST, style)
        text.append(f" {top * step / len(SHADES):.2f} ")
    return text


def fitted(label: str, width: int) -> str:
    """The label in so many cells, whatever it is written in."""
    return set_cell_size(_printable(label), width)


def _printable(label: str) -> str:
    """Without what moves the cursor."""
    return "".join(character if character.isprintable() else "·" for character in label)


# --- page ---

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1f; --faint: #e7e7ec; --heat: #0b5fb0; }
@media (prefers-color-scheme: dark) { :root { --paper: #16161a; --ink: #e9e9ee; --faint: #2a2a31; --heat: #7cc4ff; } }
body { margin: 2rem; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
p { max-width: 46rem; white-space: pre-line; }
section { display: flex; flex-wrap: wrap; gap: 1.5rem 2.5rem; }
h2 { flex-basis: 100%; margin: 1.5rem 0 0; font-size: 1.1rem; }
figure { margin: 0; max-width: 100%; overflow-x: auto; }
figcaption { font-size: .85rem; margin-bottom: .3rem; }
svg text { fill: var(--ink); font: 13px ui-monospace, monospace; }
svg rect { fill: var(--heat); }
svg .paper { fill: var(--faint); }
svg g rect:hover { stroke: var(--ink); stroke-width: 2; }
""".strip()


def page(title: str, intro: str, figures: Sequence[Figure]) -> str:
    """An HTML page with all maps. The number of a square shows when the mouse rests on it."""
    parts = ("\n".join(_part(name, list(same))) for name, same in groupby(figures, lambda figure: figure.part))
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # whatever a label may hold, nothing is run and nothing is fetched
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title>",
        f"<style>\n{STYLE}\n</style>",
        "</head>",
        "<body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(intro)}</p>",
        *parts,
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def write_page(path: Path, title: str, intro: str, figures: Sequence[Figure]) -> None:
    """`page` as a file, all of it or nothing: a crash leaves the old one."""
    with replacing(path) as fresh:
        fresh.write_text(page(title, intro, figures), encoding="utf-8")


def _part(name: str, figures: Sequence[Figure]) -> Iterator[str]:
    yield "<section>"
    if name:
        yield f"<h2>{escape(name)}</h2>"
    for figure in figures:
        yield "<figure>"
        yield f"<figcaption>{escape(figure.title)}</figcaption>"
        yield from _drawing(figure)
        yield "</figure>"
    yield "</section>"


def _drawing(figure: Figure) -> Iterator[str]:
    """An SVG: labels above and at the left, one square per weight, as strong as its share of the largest."""
    left, above = _pixels(figure.rows) + GAP, max(CELL, _pixels(figure.columns)) + GAP
    broad, high = CELL * len(figure.columns), CELL * len(figure.rows)
    name = escape(f"{figure.title}. {figure.words}")
    yield f'<svg role="img" aria-label="{name}" width="{left + broad}" height="{above + high}">'
    for place, label in enumerate(figure.columns):
        x, y = left + CELL * place + CELL // 2, above - GAP
        if cell_len(_printable(label)) <= LEAST:
            yield f'<text x="{x}" y="{y}" text-anchor="middle">{_shown(label)}</text>'
        else:  # a word stands on its end
            yield f'<text transform="translate({x + 4} {y}) rotate(-90)">{_shown(label)}</text>'
    for place, label in enumerate(figure.rows):
        y = above + CELL * place + CELL // 2 + 4
        yield f'<text x="{left - GAP}" y="{y}" text-anchor="end">{_shown(label)}</text>'
    yield f'<rect class="paper" x="{left}" y="{above}" width="{broad}" height="{high}"/>'
    yield f'<g transform="translate({left} {above})">'
    for y, (row, line) in enumerate(zip(figure.rows, figure.weights, strict=True)):
        yield from (_square(x, y, figure, row, weight) for x, weight in enumerate(line))
    yield "</g>"
    yield "</svg>"


def _square(x: int, y: int, figure: Figure, row: str, weight: float) -> str:
    words = f"{_shown(row)} ← {_shown(figure.columns[x])}: {weight:.3f}"
    place = f'x="{CELL * x}" y="{CELL * y}" width="{CELL - 1}" height="{CELL - 1}"'
    return f'<rect {place} fill-opacity="{weight / figure.top:.3f}"><title>{words}</title></rect>'


def _pixels(labels: Sequence[str]) -> int:
    return LETTER * max(cell_len(_printable(label)) for label in labels)


def _shown(label: str) -> str:
    return escape(_printable(label))
