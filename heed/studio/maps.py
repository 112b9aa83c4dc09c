"""Maps as they go to the page: small ones as they are, large ones in 8 bits with a scale, overviews and tiles.

A message is one line of JSON, which says what follows, and then the numbers as bytes, row by row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]

THUMB = 40  # rows and columns of a thumbnail, at most
PLAIN = 1 << 16  # numbers of a map that is sent as they are
WHOLE = 2000  # tokens of a map that is sent whole
TILE = 256  # rows and columns of a tile
LEVELS, MIDDLE = 255, 128  # codes of 8 bits; of signed ones, the code of zero


def shrunk(values: Floats, most: int) -> Floats:
    """Rows and columns by blocks, each as its number of the largest magnitude: a single strong pair stays visible."""
    step = max(1, -(-max(values.shape) // most))
    if step == 1:
        return values
    rows, columns = -(-values.shape[0] // step), -(-values.shape[1] // step)
    padded = np.zeros((rows * step, columns * step), np.float32)
    padded[: values.shape[0], : values.shape[1]] = values
    blocks = padded.reshape(rows, step, columns, step).swapaxes(1, 2).reshape(rows, columns, step * step)
    chosen = np.abs(blocks).argmax(-1)
    found: Floats = np.take_along_axis(blocks, chosen[..., None], -1)[..., 0]
    return found


def thumbnail(values: Floats) -> Floats:
    """A map made small."""
    return shrunk(values, THUMB)


def of_heads(each: Floats, head: str) -> Floats:
    """One head's map, or all of them in one: "mean", "max" (of the largest magnitude)."""
    if head == "mean":
        mean: Floats = each.mean(0, dtype=np.float32)
        return mean
    if head == "max":
        largest = np.abs(each).argmax(0)
        most: Floats = np.take_along_axis(each, largest[None], 0)[0]
        return most
    one: Floats = each[int(head)]
    return one


def coded(values: Floats, peak: float, *, signed: bool) -> bytes:
    """Numbers in 8 bits: 0 to `peak` as 0 to 255, or -peak to peak around 128."""
    if not peak:
        return bytes([MIDDLE if signed else 0]) * values.size
    share = np.rint(values * ((LEVELS - MIDDLE if signed else LEVELS) / peak))
    raw: bytes = (share + (MIDDLE if signed else 0)).astype(np.uint8).tobytes()
    return raw


def decoded(raw: bytes, peak: float, *, signed: bool) -> Floats:
    """The numbers again, each off by half a level at most."""
    codes = np.frombuffer(raw, np.uint8).astype(np.float32)
    found: Floats = (
        (codes - MIDDLE) * np.float32(peak / (LEVELS - MIDDLE)) if signed else codes * np.float32(peak / LEVELS)
    )
    return found


def packed(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A message."""
    return json.dumps(head, allow_nan=False, separators=(",", ":")).encode() + b"\n" + body


def message(values: Floats, **told: Any) -> bytes:
    """A map, whole: as it is if it is small, else in 8 bits, and above `WHOLE` tokens as an overview."""
    finite = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32)
    peak, signed = float(np.abs(finite).max(initial=0.0)), bool((finite < 0).any())
    rows, columns = finite.shape
    head = {"rows": rows, "columns": columns, "peak": peak, "signed": signed, **told}
    if finite.size <= PLAIN:
        return packed({**head, "form": "float32", "step": 1}, finite.astype("<f4").tobytes())
    step = max(1, -(-max(rows, columns) // WHOLE))
    small = shrunk(finite, WHOLE)
    return packed({**head, "form": "uint8", "step": step}, coded(small, peak, signed=signed))


def tile(values: Floats, row: int, column: int) -> bytes:
    """A part of a large map, in 8 bits with the scale of the whole."""
    peak, signed = float(np.abs(values).max(initial=0.0)), bool((values < 0).any())
    part = values[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
    head = {"rows": part.shape[0], "columns": part.shape[1], "peak": peak, "signed": signed, "form": "uint8", "step": 1}
    return packed(head, coded(part, peak, signed=signed))


def alike(each: Floats, others: Floats) -> NDArray[np.float64]:
    """How alike maps are: the cosine of one with each of many. [N], [M, N] -> [M]"""
    sizes = np.linalg.norm(others, axis=1) * np.linalg.norm(each)
    found: NDArray[np.float64] = (others @ each) / np.where(sizes > 0, sizes, 1.0)
    return found


def comma_separated(values: Floats, rows: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """A map as a table: its first line and its first column are the tokens."""

    def cell(text: str) -> str:
        quoted = text.replace('"', '""')
        # A table program takes what begins so for a formula.
        return f'"\'{quoted}"' if quoted[:1] in "=+-@\t\r" else f'"{quoted}"'

    lines = [",".join(['""', *map(cell, columns)])]
    lines += [
        ",".join([cell(name), *(f"{value:.9g}" for value in row)]) for name, row in zip(rows, values, strict=True)
    ]
    return "\r\n".join(lines) + "\r\n"
