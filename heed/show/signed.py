"""Maps of numbers with a sign, as text: what is above nothing is red and +, what is below it blue and -."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ..core.errors import InputError
from .heatmap import LEAST, WIDTH, Matrix, bands, cells_of, fitted, head_width

# From the faintest to the strongest. The characters alone tell sign and strength apart, the colours only help.
ABOVE = ((" ", ""), ("+", "red"), ("▒", "red"), ("█", "bright_red"))
BELOW = ((" ", ""), ("-", "blue"), ("░", "blue"), ("▓", "bright_blue"))


def signed_map(weights: Matrix, rows: Sequence[str], columns: Sequence[str], width: int = WIDTH) -> Text:
    """A map of blocks, at most `width` cells broad: columns that do not fit stand below the first ones."""
    if not rows or not columns or len(weights) != len(rows) or {len(row) for row in weights} != {len(columns)}:
        raise InputError(f"a map needs a number for each of {len(rows)} rows and {len(columns)} columns, at least one")
    top = max(abs(value) for row in weights for value in row) or 1.0
    head = head_width(rows)
    text = Text(no_wrap=True)
    for band in bands(columns, width - head):
        text.append(" " * head)
        for place in band:
            text.append(fitted(columns[place], cells_of(columns[place])))
        text.append("\n")
        for row, line in zip(rows, weights, strict=True):
            text.append(fitted(row, head))
            for place in band:
                text.append_text(_block(line[place] / top, cells_of(columns[place])))
            text.append("\n")
    text.append(f"{' ' * head}{BELOW[-1][0] * LEAST} {-top:.2f}   {ABOVE[-1][0] * LEAST} {top:.2f}")
    return text


def _block(share: float, cells: int) -> Text:
    shades = BELOW if share < 0 else ABOVE
    block, style = shades[min(int(abs(share) * len(shades)), len(shades) - 1)]
    gap = cells > LEAST
    return Text(block * (cells - gap), style).append(" " * gap, "default")
