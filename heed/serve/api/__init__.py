"""The HTTP side of serving: an API as OpenAI has it, a page to chat in, and what keeps strangers out.

`start(config)` is what `heed serve` does: it loads the models, starts the engine and serves until a signal ends it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...core.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable

    from .settings import ServeConfig

NEEDED = ("starlette", "uvicorn", "prometheus_client")


def start(config: ServeConfig, version: str, say: Callable[[str], None]) -> None:
    """Serve until a signal ends it. `say`: told to the person who started it."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingExtra.of(package.replace("_", "-"), "serve")
    from .starting import serve

    serve(config, version, say)
