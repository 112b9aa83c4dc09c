"""The laws on a run's card, tried once for every kind of model: half of the time of a tiny training goes into them.

Tests of cards (`tests/runs`) and of the laws have them tried each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heed.core.contract import Mixer
from heed.core.laws import Finding

FOUND: dict[str, list[Finding]] = {}


def once(laws: Callable[[Mixer[Any]], list[Finding]]) -> Callable[[Mixer[Any]], list[Finding]]:
    """What was found of a model of the same parts and sizes."""

    def found(model: Mixer[Any]) -> list[Finding]:
        key = f"{model}{[(name, tuple(weight.shape)) for name, weight in model.named_parameters()]}"
        if key not in FOUND:
            FOUND[key] = laws(model)
        return FOUND[key]

    return found
