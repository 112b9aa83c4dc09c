"""Floors of a run's task on its data, kept in the run folder: what a model is compared with when it is evaluated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ..core.config import read_data
from ..core.errors import ConfigError, MissingExtra, RunError
from ..data import Examples
from ..show.progress import Reporter
from ..tasks import Metrics, Task
from . import digests
from .folder import FLOORS, Run, writing
from .records import scores_of

Floors = Mapping[str, Metrics]  # metrics by the name of the floor


def floors_of(run: Run, task: Task, train: Examples, examples: Examples, reporter: Reporter) -> Floors:
    """What is reached without attention; computed once for the same examples, then kept."""
    if type(task).floors is Task.floors:
        return {}
    key, kept = _key(task, train, examples), _kept(run)
    found = {name.partition(": ")[2]: one for name, one in kept.items() if name.startswith(f"{key}: ")}
    if found:
        return found
    try:
        found = task.floors(train, examples)
    except MissingExtra as error:  # the model's own metrics are worth showing
        reporter.say(f"floors are left out: {error}")
        return {}
    try:
        keep(run, {**kept, **{f"{key}: {name}": one for name, one in found.items()}})
    except RunError as error:
        reporter.say(f"the floors could not be written down: {error}")
    return found


def below(task: Task, metrics: Metrics, floors: Floors) -> str | None:
    """What to say of a model that does not beat its floors."""
    beaten = {
        name: found[task.main]
        for name, found in floors.items()
        if task.main in found and float(metrics[task.main]) <= float(found[task.main])
    }
    if not beaten:
        return None
    told = ", ".join(f"{value:.4g} by {name}" for name, value in beaten.items())
    return (
        f"this model is no better than its floor: {task.main} {metrics[task.main]:.4g}, against {told}. More data, "
        "more steps, pre-training (base=) or a smaller model may help"
    )


def _key(task: Task, train: Examples, examples: Examples) -> str:
    """Which task on which examples."""
    found = sha256(json.dumps(task.dump(), sort_keys=True).encode())
    for some in (train, examples):
        for example in some:
            for cell in example:
                found.update(f"{len(cell)} {cell}".encode())
        found.update(b"|")
    return found.hexdigest()[:16]


def _kept(run: Run) -> dict[str, dict[str, Any]]:
    """What was kept so far; nothing, if the file is missing or damaged: it can be computed again."""
    path = run.path / FLOORS
    if not path.is_file() or run.damage_of(FLOORS) is not None:
        return {}
    try:
        return scores_of(read_data(path), path)
    except (ConfigError, RunError):
        return {}


def keep(run: Run, floors: Mapping[str, Metrics]) -> None:
    with writing(run.path / FLOORS), digests.recorded(run.path, FLOORS) as fresh:
        fresh.write_text(json.dumps(floors, indent=1) + "\n", encoding="utf-8")
