"""Maps of many layers and heads as one HTML file with a choice of them, hover and pins; it fetches nothing.

Weights are one byte each, in units of the largest of their head, and compressed: what is shown is off by 1/510 of that
at most, twice as much where there are signs. Maps that would make the file too large are pooled, which it says.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import InputError

TEMPLATE = "viewer.html"
MOST = 5_000_000  # squares of a file: as bytes in base64 they stay below 7 MB, however badly they compress

Weights = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Grid:
    """The maps of one layer, a head each: [heads, rows, columns]."""

    name: str
    rows: Sequence[str]
    columns: Sequence[str]
    heads: Sequence[int]
    weights: Weights

    def __post_init__(self) -> None:
        wanted = (len(self.heads), len(self.rows), len(self.columns))
        if self.weights.shape != wanted or not self.weights.size:
            raise InputError(f"{self.name} needs weights of shape {wanted}, at least one; got {self.weights.shape}")
        if not np.isfinite(self.weights).all():
            raise InputError(f"{self.name} holds weights that are no numbers; a model that gives them cannot be drawn")


@dataclass(frozen=True)
class Panel:
    """Layers that belong together: the encoder's, the decoder's, those in between."""

    name: str
    grids: Sequence[Grid]


@dataclass(frozen=True)
class Table:
    """What is told in words below the maps."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def viewer(title: str, about: Sequence[str], panels: Sequence[Panel], tables: Sequence[Table] = ()) -> str:
    """The page, whole."""
    if not panels:
        raise InputError("a page of maps needs at least one")
    squares = sum(grid.weights.size for panel in panels for grid in panel.grids)
    pool = ceil((squares / MOST) ** 0.5)
    told = {
        "panels": [{"name": panel.name, "grids": [_packed(grid, pool) for grid in panel.grids]} for panel in panels]
    }
    parts = {
        "policy": _policy(),
        "title": escape(_printable(title)),
        "about": "\n".join(f"<p>{escape(_printable(line))}</p>" for line in about),
        "tables": "\n".join(map(_table, tables)),
        # within a script nothing but its end is special, and "<" can stand for itself in JSON as an escape
        "data": json.dumps(told, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    page = []
    for piece in _template().split("{{"):
        name, closed, rest = piece.partition("}}")
        page += [parts[name], rest] if closed else [piece]  # nothing else of it holds two braces
    return "".join(page)


@cache
def _template() -> str:
    return Path(__file__).with_name(TEMPLATE).read_text(encoding="utf-8")


@cache
def _policy() -> str:
    """A browser runs the script of this page and no other, and asks nobody for anything."""
    script = _template().rpartition("<script>")[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    closed = "default-src 'none'; base-uri 'none'; form-action 'none'"
    return f"{closed}; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _packed(grid: Grid, pool: int) -> dict[str, Any]:
    """As the script reads it: a byte for each weight."""
    weights = pooled(grid.weights, pool)
    signed = bool((weights < 0).any())
    scales = np.abs(weights).max((1, 2))
    codes = quantised(weights, scales, signed=signed)
    rows, columns = _pooled_names(grid.rows, pool), _pooled_names(grid.columns, pool)
    return {
        "name": grid.name,
        "rows": rows,
        "columns": columns,
        "same": list(grid.rows) == list(grid.columns),
        "heads": list(grid.heads),
        "scales": [float(scale) for scale in scales],
        "signed": signed,
        "pooled": pool,
        "words": [_words(head, rows, columns) for head in weights],
        "data": b64encode(zlib.compress(codes.tobytes(), 6)).decode(),
    }


def quantised(weights: Weights, scales: Weights, *, signed: bool) -> Weights:
    """One byte each; where there are signs, 128 stands for nothing."""
    units = weights / np.where(scales > 0, scales, 1.0)[:, None, None]
    codes = np.rint(units * 127) + 128 if signed else np.rint(units * 255)
    return codes.astype(np.uint8)


def pooled(weights: Weights, pool: int) -> Weights:
    """The strongest of each `pool` × `pool` weights, sign and all."""
    if pool == 1:
        return weights
    heads, rows, columns = weights.shape
    padded = np.pad(weights, ((0, 0), (0, -rows % pool), (0, -columns % pool)))
    cells = padded.reshape(heads, padded.shape[1] // pool, pool, padded.shape[2] // pool, pool)
    cells = cells.transpose(0, 1, 3, 2, 4).reshape(heads, cells.shape[1], cells.shape[3], pool * pool)
    best = np.abs(cells).argmax(-1)[..., None]
    found: Weights = np.take_along_axis(cells, best, -1)[..., 0]
    return found


def _pooled_names(names: Sequence[str], pool: int) -> list[str]:
    return [_printable(" ".join(names[begin : begin + pool])) for begin in range(0, len(names), pool)]


def _words(weights: Weights, rows: Sequence[str], columns: Sequence[str]) -> str:
    """A map for those who cannot see it."""
    row, column = divmod(int(np.abs(weights).argmax()), weights.shape[1])
    return f"strongest where {rows[row]} looks at {columns[column]}, {weights[row, column]:.3f}"


def _table(table: Table) -> str:
    lines = [f"<h2>{escape(table.title)}</h2>", '<div class="table"><table>']
    lines.append(f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in table.columns)}</tr>")
    for cells in table.rows:
        lines.append(f"<tr>{''.join(f'<td>{escape(_printable(cell))}</td>' for cell in cells)}</tr>")
    return "\n".join([*lines, "</table></div>"])


def _printable(text: str) -> str:
    """Without what moves what stands beside it."""
    return "".join(character if character.isprintable() else "·" for character in text)
