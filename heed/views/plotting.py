"""`heed plot`: a mechanism drawn from its configuration: positions, masks, kernels, scores, norms, schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.config import Config, nearest
from ..core.errors import InputError
from ..show.svg import Axis, Chart, Even, Logarithmic, chart
from ..show.viewer import Grid, Panel, Table, viewer
from .drawings import kernel, mask, norm, position, schedule, scores
from .pictures import Asked, Curves, Picture, Square

if TYPE_CHECKING:
    from rich.console import RenderableType

BROAD = 50  # rows and columns of a map in a terminal, at most
POINTS = 8  # of a curve that are told in a terminal

PLOTS: dict[str, Callable[[Asked], Picture]] = {
    "position": position,
    "mask": mask,
    "kernel": kernel,
    "scores": scores,
    "norm": norm,
    "schedule": schedule,
}


@dataclass(frozen=True)
class Plot:
    """A picture of a mechanism, and the numbers of which it is made."""

    what: str
    picture: Picture

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return {"what": self.what, **asdict(self.picture)}

    def text_figure(self) -> RenderableType:
        """Facts, maps and the points of the curves."""
        from rich.console import Group

        return Group(*self._told())

    def _told(self) -> Iterator[RenderableType]:
        from rich.markup import escape
        from rich.table import Table as Drawn

        from ..show.heatmap import text_map
        from ..show.signed import signed_map

        yield f"[bold]{escape(self.picture.title)}[/]"
        for name, value in self.picture.facts:
            yield escape(f"{name}: {value}")
        for square in self.picture.squares:
            high, wide = len(square.rows), len(square.columns)
            cut = f", the first {BROAD} of {high} × {wide} (--html shows all)" if max(high, wide) > BROAD else ""
            yield escape(f"\n{square.name}{cut}")
            values = [list(row[:BROAD]) for row in square.values[:BROAD]]
            draw = signed_map if min(map(min, values)) < 0 else text_map
            yield draw(values, square.rows[:BROAD], square.columns[:BROAD], 160)
        for curves in self.picture.curves:
            table = Drawn(title=escape(f"{curves.up} over {curves.across}"), title_justify="left", box=None)
            first = next(iter(curves.lines.values()))
            step = max(1, ceil((len(first) - 1) / (POINTS - 1)))
            places = sorted({*range(0, len(first), step), len(first) - 1})
            table.add_column(escape(curves.across), justify="right")
            for place in places:
                table.add_column(f"{first[place][0]:g}", justify="right")
            for name, line in curves.lines.items():
                table.add_row(escape(name), *(f"{line[place][1]:.3g}" for place in places if place < len(line)))
            yield table

    def svg(self) -> str:
        """The curves as one drawing each, one behind the other; a plot of maps alone has none."""
        return "\n".join(_drawn(curves) for curves in self.picture.curves)

    def html(self) -> str:
        """One file that opens without a network: facts, maps with hover, curves."""
        picture = self.picture
        about = [f"{name}: {value}" for name, value in picture.facts]
        tables = [_table(curves) for curves in picture.curves]
        if not picture.squares:
            from ..show.pictures import Page, Sheet

            sheets = (
                [Sheet("Facts", ("",), [(name, (value,)) for name, value in picture.facts])] if picture.facts else []
            )
            return Page(picture.title, sheets, [_drawn(curves) for curves in picture.curves]).html()
        grids = [
            Grid(square.name, square.rows, square.columns, [0], np.array([square.values], dtype=float))
            for square in picture.squares
        ]
        return viewer(picture.title, about, [Panel(self.what, grids)], tables)


def plot(
    what: str,
    config: Config | str | None = None,
    *,
    changes: Sequence[str] = (),
    tokens: int | None = None,
    text: str | None = None,
    token: str | None = None,
) -> Plot:
    """A mechanism drawn: "position", "mask", "kernel", "scores", "norm" or "schedule".

    `config` is a configuration, the name of a kind ("sinusoid", "window", "bigbird" ...) or a .toml or .json file that
    describes one; `changes` are settings of it, as ["back=4"]. `text` names the tokens of a mask, of which `token` is
    told whom it sees and who sees it.
    """
    if what not in PLOTS:
        raise InputError(f"there is no plot of {what!r}{nearest(what, PLOTS)}")
    if tokens is not None and not 1 <= tokens <= 4096:
        raise InputError(f"a plot is of 1 to 4,096 tokens or steps, not {tokens}")
    if what != "mask" and (text is not None or token is not None):
        raise InputError(f"text and token are for masks; a plot of {what} has no words")
    return Plot(what, PLOTS[what](Asked(config, tuple(changes), tokens, text, token)))


def _drawn(curves: Curves) -> str:
    axis: type[Axis] = Logarithmic if curves.logarithmic else Even
    told = f"{curves.up} over {curves.across}: {', '.join(curves.lines)}"
    return chart(Chart(curves.lines, curves.across, curves.up, axis), told)


def _table(curves: Curves) -> Table:
    rows = [(name, f"{x:g}", f"{y:.4g}") for name, line in curves.lines.items() for x, y in line]
    return Table(f"{curves.up} over {curves.across}", ("", curves.across, curves.up), rows)


__all__ = ["PLOTS", "Curves", "Picture", "Plot", "Square", "plot"]
