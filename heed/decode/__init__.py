"""Decoding: one loop over any model's state. Greedy, sampling, beam search; stop strings and constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .beam import Beam
    from .constraints import Begin, Choices, Constraint, Never
    from .generated import Generated, Token, Why
    from .loop import STRATEGIES, AnyStrategy, generate, stream
    from .sampling import SAMPLING, Greedy, Sample, SamplingConfig
    from .stop import Stop
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(("Constraint", "Begin", "Choices", "Never"), "constraints"),
            "Beam": "beam",
            **dict.fromkeys(("STRATEGIES", "AnyStrategy", "generate", "stream"), "loop"),
            **dict.fromkeys(("SAMPLING", "Greedy", "SamplingConfig", "Sample"), "sampling"),
            "Stop": "stop",
            **dict.fromkeys(("Token", "Why", "Generated"), "generated"),
        },
        renamed={
            "Allow": "Constraint",
            "AnyWay": "AnyStrategy",
            "Pick": "SamplingConfig",
            "PICKS": "SAMPLING",
            "WAYS": "STRATEGIES",
            "Written": "Generated",
        },
    )

__all__ = [
    "SAMPLING",
    "STRATEGIES",
    "AnyStrategy",
    "Beam",
    "Begin",
    "Choices",
    "Constraint",
    "Generated",
    "Greedy",
    "Never",
    "Sample",
    "SamplingConfig",
    "Stop",
    "Token",
    "Why",
    "generate",
    "stream",
]
