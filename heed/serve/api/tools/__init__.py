"""Tool calls as models write them: formats in a table, each known by the chat template that teaches it.

`format_of(template)` finds the one of a checkpoint; its `reader` takes an answer apart, its `grammar` enforces calls.
"""

from __future__ import annotations

from .base import ToolFormat
from .formats import Hermes, Llama, Mistral, Tekken

FORMATS: tuple[type[ToolFormat], ...] = (Hermes, Tekken, Mistral, Llama)  # the first that knows a template has it


def format_of(template: str) -> type[ToolFormat] | None:
    """The format that a template teaches; None: it knows no tools, or writes calls in a way that is not known here."""
    if "tools" not in template:
        return None
    return next((one for one in FORMATS if one.taught_by(template)), None)
