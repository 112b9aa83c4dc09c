"""heed: attention and Transformers, every mechanism under one contract.

`import heed` is quick: torch and everything else is imported when it is first needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.tables import gc_paused

__version__ = "0.1.0"

_WHERE = {  # public name -> module that holds it
    "Given": "core.contract",
    "HeedError": "core.errors",
    "Mixer": "core.contract",
    "Where": "core.contract",
    "detach": "core.state",
    "fork": "core.state",
    "nbytes": "core.state",
    "select": "core.state",
    "to": "core.state",
    "attend": "parts.attention.attend",
    "look": "parts.look",
    "build": "models",
    "edit": "weights.edits",
    "load": "runs",
    "save": "runs",
}
_PACKAGES = (
    *("core", "text", "data", "media", "show", "parts", "mixers", "models", "engine", "weights"),
    *("decode", "pipelines", "tasks", "runs", "train", "check", "verify", "demo"),
)

__all__ = [*_WHERE, *_PACKAGES, "__version__"]  # noqa: PLE0604

if TYPE_CHECKING:
    from . import check as check
    from .core.contract import Given as Given
    from .core.contract import Mixer as Mixer
    from .core.contract import Where as Where
    from .core.errors import HeedError as HeedError
    from .core.state import detach as detach
    from .core.state import fork as fork
    from .core.state import nbytes as nbytes
    from .core.state import select as select
    from .core.state import to as to
    from .models import build as build
    from .parts.attention.attend import attend as attend
    from .parts.look import look as look
    from .runs import load as load
    from .runs import save as save
    from .weights.edits import edit as edit


def __getattr__(name: str) -> Any:
    with gc_paused():
        if name in _WHERE:
            return getattr(import_module(f".{_WHERE[name]}", __name__), name)
        if name in _PACKAGES:
            return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'heed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
