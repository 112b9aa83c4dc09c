"""Curves of runs: what metrics.jsonl of each folder says, and what is added to it while a training goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from ..core.errors import HeedError, InputError
from ..runs.folder import CONFIG, FLOORS, METRICS, SCORES
from ..runs.records import history

LOOK = 0.5  # seconds between two looks at the files
MOST = 200  # runs of one folder
QUIET = 15.0  # seconds without news after which a comment is sent, so that a client that left is noticed


def found(path: Path) -> dict[str, Path]:
    """The runs below a path, by name: itself, or the folders in it. Links are not followed."""
    if (path / METRICS).is_file():
        return {path.resolve().name: path}
    if not path.is_dir():
        return {}
    inside = sorted(one for one in path.iterdir() if one.is_dir() and not one.is_symlink())
    return {one.name: one for one in inside if (one / METRICS).is_file()}


def told(runs: dict[str, Path]) -> dict[str, Any]:
    """All runs: settings that differ, curves, scores and floors."""
    if len(runs) > MOST:
        raise InputError(f"{len(runs)} runs are too many for one page; open a folder with at most {MOST}")
    settings = {name: flat(_data(path / CONFIG)) for name, path in runs.items()}
    keys = sorted({key for one in settings.values() for key in one})
    differing = [key for key in keys if len({json.dumps(one.get(key)) for one in settings.values()}) > 1]
    return {
        "runs": [_one(name, path, {key: settings[name].get(key) for key in differing}) for name, path in runs.items()],
        "differing": differing,
    }


def _one(name: str, path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    try:
        lines, wrong = history(path / METRICS), None
    except HeedError as error:
        lines, wrong = [], str(error)
    told = {"lines": lines, "wrong": wrong, "scores": _data(path / SCORES), "floors": _data(path / FLOORS)}
    return {"name": name, "settings": settings, **told}


def _data(path: Path) -> dict[str, Any]:
    """A JSON object beside a run, which may be missing or half written."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def flat(data: Any, below: str = "") -> dict[str, Any]:
    """A tree of settings as one table: a.b = value."""
    if not isinstance(data, dict):
        return {below: data}
    return {key: value for name, one in data.items() for key, value in flat(one, f"{below}.{name}".strip(".")).items()}


async def news(runs: dict[str, Path], seen: dict[str, int]) -> AsyncGenerator[str, None]:
    """Lines as they are written, as events; `seen`: how many of each run are known. Ends when its reader leaves."""
    quiet = 0.0
    while True:
        for name, path in runs.items():
            try:
                lines = await asyncio.to_thread(history, path / METRICS)
            except HeedError:
                continue  # a line that is being written; the next look finds it whole
            fresh = lines[seen.get(name, 0) :] if len(lines) >= seen.get(name, 0) else lines
            if fresh or len(lines) < seen.get(name, 0):
                begun_anew = len(lines) < seen.get(name, 0)
                seen[name], quiet = len(lines), 0.0
                yield f"data: {json.dumps({'name': name, 'lines': fresh, 'anew': begun_anew})}\n\n"
        await asyncio.sleep(LOOK)
        quiet += LOOK
        if quiet >= QUIET:
            quiet = 0.0
            yield ": waiting\n\n"
