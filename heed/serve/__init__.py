"""Serving: many requests at once, each answered with the bits that it would get alone.

`Engine(model)` owns a thread that reads prompts in chunks and writes one token per row and tick, for every mechanism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .answer import Answer, Busy, Completed, EngineStopped, Event, RequestFailed, ServeError, Usage
    from .engine import Engine
    from .request import Request
    from .served import Limits, ModelInfo
    from .statistics import Health, Statistics
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(
                ("Answer", "Busy", "Completed", "EngineStopped", "Event", "RequestFailed", "ServeError", "Usage"),
                "answer",
            ),
            "Engine": "engine",
            "Request": "request",
            **dict.fromkeys(("Limits", "ModelInfo"), "served"),
            **dict.fromkeys(("Health", "Statistics"), "statistics"),
        },
    )

__all__ = [
    "Answer",
    "Busy",
    "Completed",
    "Engine",
    "EngineStopped",
    "Event",
    "Health",
    "Limits",
    "ModelInfo",
    "Request",
    "RequestFailed",
    "ServeError",
    "Statistics",
    "Usage",
]
