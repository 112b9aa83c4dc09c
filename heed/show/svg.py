"""Drawings as files of their own: a pattern of squares, and curves over logarithmic or even axes.

Each is one SVG that fetches nothing. Its colours follow the reader's light or dark theme.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from ..core.errors import InputError

STYLE = """<style>
text { fill: #1b1b1f; font: 12px system-ui, sans-serif; }
.paper { fill: #f1f1f4; } .heat { fill: #0b5fb0; } .line { stroke: #c9c9d1; stroke-width: 1; }
.curve { fill: none; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e9e9ee; } .paper { fill: #2a2a31; } .heat { fill: #7cc4ff; } .line { stroke: #45454f; }
}
</style>"""
SQUARE, GAP, LINE = 9, 18, 22  # pixels: a square, between patterns, and of a pattern's name
COLOURS = ("#0b5fb0", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490")
WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 460, 260, 64, 150, 14, 40  # pixels of a chart and of what stands around it

Points = Sequence[tuple[float, float]]
Weights = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Axis(ABC):
    """From `low` to `high` over so many pixels."""

    low: float
    high: float
    pixels: int

    @classmethod
    @abstractmethod
    def of(cls, values: Sequence[float], pixels: int) -> Axis:
        """One that holds these values, with a little room around them."""

    @abstractmethod
    def at(self, value: float) -> float:
        """The pixel of a value."""

    @abstractmethod
    def marks(self) -> Iterator[float]:
        """Values that are written beside it."""


class Logarithmic(Axis):
    """Equal steps are equal factors; `low` and `high` are logarithms of ten."""

    @classmethod
    def of(cls, values: Sequence[float], pixels: int) -> Axis:
        low, high = log10(min(values)), log10(max(values))
        room = max(0.05 * (high - low), 0.05)
        return cls(low - room, high + room, pixels)

    def at(self, value: float) -> float:
        return (log10(value) - self.low) / (self.high - self.low) * self.pixels

    def marks(self) -> Iterator[float]:
        """Powers of ten and, if they are few, two and five times them."""
        steps = (1,) if self.high - self.low > 3 else (1, 2, 5)
        for power in range(floor(self.low), ceil(self.high) + 1):
            yield from (step * 10.0**power for step in steps if self.low <= log10(step * 10.0**power) <= self.high)


class Even(Axis):
    """Equal steps are equal differences."""

    @classmethod
    def of(cls, values: Sequence[float], pixels: int) -> Axis:
        low, high = min(values), max(values)
        room = 0.05 * (high - low) or 0.5
        return cls(low - room, high + room, pixels)

    def at(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low) * self.pixels

    def marks(self) -> Iterator[float]:
        """At most eight round numbers."""
        power = 10.0 ** floor(log10(self.high - self.low))
        step = next(some * power for some in (0.1, 0.2, 0.5, 1, 2) if (self.high - self.low) / (some * power) <= 8)
        yield from (round(count * step, 10) for count in range(ceil(self.low / step), floor(self.high / step) + 1))


@dataclass(frozen=True)
class Chart:
    """Curves by name, over axes of one kind."""

    curves: Mapping[str, Points]
    across: str  # what the axes count
    up: str
    axis: type[Axis] = Logarithmic

    def __post_init__(self) -> None:
        points = [point for curve in self.curves.values() for point in curve]
        if not points:
            raise InputError("a chart needs points; over logarithmic axes all of them must be above 0")
        if self.axis is Logarithmic and any(x <= 0 or y <= 0 for x, y in points):
            raise InputError("a chart over logarithmic axes needs points, all of them above 0; or set axis=Even")


def pattern(weights: Weights, words: str) -> str:
    """Which row looks at which column: the stronger, the darker. `words` tell it to those who cannot see it."""
    high, broad = SQUARE * len(weights), SQUARE * max(map(len, weights), default=0)
    return "\n".join([*_opened(broad, high, words), *_squares(weights), "</svg>", ""])


def gallery(patterns: Mapping[str, Weights], words: str, columns: int = 6) -> str:
    """Patterns side by side, each under its name."""
    step = SQUARE * max(len(weights) for weights in patterns.values()) + GAP
    rows = ceil(len(patterns) / columns)
    lines = _opened(columns * step - GAP, rows * (step + LINE) - GAP, words)
    for place, (name, weights) in enumerate(patterns.items()):
        x, y = place % columns * step, place // columns * (step + LINE)
        lines += [f'<g transform="translate({x} {y})">', f'<text y="{LINE - 6}">{escape(name)}</text>']
        lines += [f'<g transform="translate(0 {LINE})">', *_squares(weights), "</g>", "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _opened(width: int, height: int, words: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(words)}" '
        f'width="{width}" height="{height}">',
        STYLE,
    ]


def _squares(weights: Weights) -> Iterator[str]:
    most = max((weight for row in weights for weight in row), default=0.0) or 1.0
    high, broad = SQUARE * len(weights), SQUARE * max(map(len, weights), default=0)
    yield f'<rect class="paper" width="{broad}" height="{high}"/>'
    for y, row in enumerate(weights):
        for x, weight in enumerate(row):
            if weight > 0:
                place = f'x="{SQUARE * x}" y="{SQUARE * y}" width="{SQUARE - 1}" height="{SQUARE - 1}"'
                yield f'<rect class="heat" {place} fill-opacity="{0.15 + 0.85 * weight / most:.2f}"/>'


def chart(drawn: Chart, words: str) -> str:
    """The curves with their axes and their names."""
    points = [point for curve in drawn.curves.values() for point in curve]
    across, up = drawn.axis.of([x for x, _ in points], WIDE), drawn.axis.of([y for _, y in points], HIGH)
    lines = [
        *_opened(LEFT + WIDE + RIGHT, TOP + HIGH + BOTTOM, words),
        f'<g transform="translate({LEFT} {TOP})">',
        f'<rect class="paper" width="{WIDE}" height="{HIGH}"/>',
        *_grid(across, up),
        f'<text x="{WIDE / 2:.0f}" y="{HIGH + 34}" text-anchor="middle">{escape(drawn.across)}</text>',
        f'<text transform="translate(-48 {HIGH / 2:.0f}) rotate(-90)" text-anchor="middle">{escape(drawn.up)}</text>',
    ]
    for place, (name, curve) in enumerate(drawn.curves.items()):
        colour, dash = COLOURS[place % len(COLOURS)], " 6 4" if place >= len(COLOURS) else ""
        drawing = " ".join(f"{across.at(x):.1f},{HIGH - up.at(y):.1f}" for x, y in curve)
        style = f'stroke="{colour}"' + (f' stroke-dasharray="{dash.strip()}"' if dash else "")
        lines.append(f'<polyline class="curve" {style} points="{drawing}"/>')
        y = 16 + 18 * place
        lines.append(f'<path class="curve" {style} d="M{WIDE + 10} {y - 4}h18"/>')
        lines.append(f'<text x="{WIDE + 34}" y="{y}">{escape(name)}</text>')
    return "\n".join([*lines, "</g>", "</svg>", ""])


def below(drawings: Sequence[str], words: str) -> str:
    """Charts one below the other, in one drawing."""
    high = TOP + HIGH + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(words)}" '
        f'width="{LEFT + WIDE + RIGHT}" height="{high * len(drawings)}">'
    ]
    for place, drawing in enumerate(drawings):
        lines += [f'<g transform="translate(0 {high * place})">', drawing.rstrip(), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _grid(across: Axis, up: Axis) -> Iterator[str]:
    for mark in across.marks():
        x = across.at(mark)
        yield f'<path class="line" d="M{x:.1f} 0v{HIGH}"/>'
        yield f'<text x="{x:.1f}" y="{HIGH + 16}" text-anchor="middle">{_short(mark)}</text>'
    for mark in up.marks():
        y = HIGH - up.at(mark)
        yield f'<path class="line" d="M0 {y:.1f}h{WIDE}"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{_short(mark)}</text>'


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
