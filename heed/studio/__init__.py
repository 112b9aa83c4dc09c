"""The studio: a local web page that looks into a model. Maps, influence, steps of attention, next tokens, runs.

`start(...)` is what `heed studio` does; `record(...)` writes the page with one text's answers as a file for the disk.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..core.errors import MissingExtra
from ..core.tables import later

if TYPE_CHECKING:
    from .starting import Opening as Opening
    from .starting import record as record
    from .starting import serve as serve
    from .starting import studio_of as studio_of
    from .studio import Studio as Studio
else:
    __getattr__, __dir__ = later(
        __name__,
        {**dict.fromkeys(("Opening", "record", "serve", "studio_of"), "starting"), "Studio": "studio"},
    )

NEEDED = ("starlette", "uvicorn")


def must_be_there() -> None:
    """Raise unless the server's packages are installed."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingExtra.of(package, "studio")
