"""What a training tells of itself, read back: every line and number is typed, whoever wrote the file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import RunError

LARGEST = 1 << 28  # bytes of metrics.jsonl
FURTHEST = 1 << 53  # steps, beyond which a float64 does not count any more


def history(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; none if it is not there. A last line that was cut off is left out."""
    lines = text_of(path).splitlines(keepends=True)
    whole = lines[:-1] if lines and not lines[-1].endswith("\n") else lines
    found = []
    for number, line in enumerate(whole, 1):
        entry = entry_of(line)
        if entry is None:
            raise RunError(
                f"{path}, line {number}, is {line[:80]!r}; needed is an object of numbers with a step, such as "
                '{"step": 50, "loss": 2.5}. Remove the line'
            )
        found.append(entry)
    return found


def text_of(path: Path) -> str:
    """Of a file of metrics; nothing if there is none."""
    if not path.is_file():
        return ""
    try:
        if path.stat().st_size > LARGEST:
            raise RunError(f"{path} has {path.stat().st_size:,} bytes; heed reads at most {LARGEST:,} of metrics")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}") from None


def entry_of(line: str) -> dict[str, Any] | None:
    """A line: numbers by name, a step among them; None if it is anything else."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not all(is_number(value) for value in entry.values()):
        return None
    step = entry.get("step")
    return entry if isinstance(step, int) and 0 <= step < FURTHEST else None


def scores_of(data: Mapping[str, Any], path: Path) -> dict[str, dict[str, float | str]]:
    """scores.json: numbers and texts by name, for each piece of data."""
    for name, metrics in data.items():
        if not isinstance(metrics, dict) or not all(isinstance(v, str) or is_number(v) for v in metrics.values()):
            raise RunError(f"{path}: {name} is {str(metrics)[:80]}; needed are numbers by name. Remove the file")
    return dict(data)


def is_number(value: object) -> bool:
    """A number that a float can hold; NaN counts, as a metric may be undefined."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) < 1 << 1023
    return isinstance(value, float) and not math.isinf(value)
