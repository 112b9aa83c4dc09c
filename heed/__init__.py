"""heed: attention and Transformers, every mechanism under one contract.

`import heed` is quick: torch and everything else is imported when it is first needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.tables import gc_paused
from .installed import warn_of_namesake
from .threads.waiting import wait_briefly

warn_of_namesake()
wait_briefly()

__version__ = "0.1.0"

_WHERE = {  # public name -> module that holds it, :name there if it is another
    "Aligned": "parts.inputs.padding",
    "Given": "core.contract",
    "HeedError": "core.errors",
    "Mixer": "core.contract",
    "MultiheadAttention": "parts.attention.torch_multihead",
    "Where": "core.contract",
    "detach": "core.state",
    "fork": "core.state",
    "nbytes": "core.state",
    "select": "core.state",
    "to": "core.state",
    "attend": "parts.attention.functional",
    "look": "parts.look",
    "build": "models",
    "edit": "weights.edits",
    "load": "runs",
    "register": "mixers",
    "save": "runs",
    "see": "views",
    "cost": "views",
    "plot": "views",
    "summary": "views",
    "eval": "runs.evaluate:evaluate",
}
_PACKAGES = (
    *("core", "text", "data", "media", "show", "parts", "mixers", "models", "engine", "weights"),
    *("decode", "pipelines", "tasks", "runs", "train", "check", "verify", "views", "demo"),
)

__all__ = [*_WHERE, *_PACKAGES, "__version__"]  # noqa: PLE0604

if TYPE_CHECKING:
    from .check import Check as _Check
    from .core.contract import Given as Given
    from .core.contract import Mixer as Mixer
    from .core.contract import Where as Where
    from .core.errors import HeedError as HeedError
    from .core.state import detach as detach
    from .core.state import fork as fork
    from .core.state import nbytes as nbytes
    from .core.state import select as select
    from .core.state import to as to
    from .mixers import register as register
    from .models import build as build
    from .parts.attention.functional import attend as attend
    from .parts.attention.torch_multihead import MultiheadAttention as MultiheadAttention
    from .parts.inputs.padding import Aligned as Aligned
    from .parts.look import look as look
    from .runs import load as load
    from .runs import save as save
    from .runs.evaluate import evaluate as _evaluate
    from .train import Train as _Train
    from .views import cost as cost
    from .views import plot as plot
    from .views import see as see
    from .views import summary as summary
    from .weights.edits import edit as edit

    check: _Check  # packages that can be called
    train: _Train
    eval = _evaluate


def __getattr__(name: str) -> Any:
    with gc_paused():
        if name in _WHERE:
            module, _, other = _WHERE[name].partition(":")
            return getattr(import_module(f".{module}", __name__), other or name)
        if name in _PACKAGES:
            return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'heed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
