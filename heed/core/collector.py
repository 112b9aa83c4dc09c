"""The garbage collector at rest, while things are made that stay: classes that are imported, a model that is loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_rest() -> Iterator[None]:
    """Nothing is collected meanwhile: after torch it would look through 200,000 objects, and find nothing to free."""
    worked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if worked:
            gc.enable()
