"""The engine: a plain model compiled for use without gradients.

`compile(model)` is the same model with compiled stacks; `runner(model)` generates; `explain(model)` says what runs as a
program, what as plain calls, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .adaptive import runner as runner
    from .cache import forget as forget
    from .execution import SamplingSettings as SamplingSettings
    from .program import Uncompiled as Uncompiled
    from .report import Report as Report
    from .report import explain as explain
    from .report import has_emitter as has_emitter
    from .runners import Runner as Runner
    from .shadow import compile as compile
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            "runner": "adaptive",
            "forget": "cache",
            "SamplingSettings": "execution",
            **dict.fromkeys(("Report", "explain", "has_emitter"), "report"),
            "Uncompiled": "program",
            "Runner": "runners",
            "compile": "shadow",
        },
    )

__all__ = [
    "Report",
    "Runner",
    "SamplingSettings",
    "Uncompiled",
    "compile",
    "explain",
    "forget",
    "has_emitter",
    "runner",
]
