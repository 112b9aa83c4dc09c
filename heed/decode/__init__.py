"""Decoding: one loop over any model's state. Greedy, sampling, beam search; stop strings and constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .beam import Beam
    from .constraints import Allow, Begin, Choices, Never
    from .generated import Token, Why, Written
    from .loop import WAYS, AnyWay, generate, stream
    from .sampling import PICKS, Greedy, Pick, Sample
    from .stop import Stop
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(("Allow", "Begin", "Choices", "Never"), "constraints"),
            "Beam": "beam",
            **dict.fromkeys(("WAYS", "AnyWay", "generate", "stream"), "loop"),
            **dict.fromkeys(("PICKS", "Greedy", "Pick", "Sample"), "sampling"),
            "Stop": "stop",
            **dict.fromkeys(("Token", "Why", "Written"), "generated"),
        },
    )

__all__ = [
    "PICKS",
    "WAYS",
    "Allow",
    "AnyWay",
    "Beam",
    "Begin",
    "Choices",
    "Greedy",
    "Never",
    "Pick",
    "Sample",
    "Stop",
    "Token",
    "Why",
    "Written",
    "generate",
    "stream",
]
