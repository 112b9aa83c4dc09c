"""What a mechanism is, in the words of its own documentation: its docstring, its paper, its page."""

from __future__ import annotations

import inspect
from typing import Any

from .. import mixers
from ..core.errors import InputError
from .reading import Layer


def about(layer: Layer) -> dict[str, Any]:
    """Of the mixer of a layer."""
    kind: Any = type(layer.mixer)
    text = inspect.getdoc(kind)
    if not text:
        raise InputError(f"{kind.__name__} does not say what it is")
    config = vars(kind).get("Config")
    ours = config is not None and kind.__module__.startswith(f"{mixers.__name__}.")
    return {
        "kind": layer.kind,
        "text": text,
        "paper": "" if config is None else config.paper,
        "page": f"docs/mechanisms/{config.model_fields['kind'].default}.md" if ours else "",
    }
