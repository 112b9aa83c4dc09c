"""Where examples come from: the user's files, and three sources that need no download. `SOURCES` is the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from ..core.config import OneOf
from ..core.tables import Table, later
from .base import Example as Example
from .base import Examples as Examples
from .base import Name as Name
from .base import Source as Source

SOURCES: Table[type[Source]] = Table(
    __name__,
    {
        "files": "files:Files",
        "media": "media.source:MediaFiles",
        "dates": "dates:Dates",
        "probes": "probes:Probes",
        "stdlib": "stdlib:Stdlib",
    },
)

AnySource: TypeAlias = Annotated[Source, OneOf(lambda: SOURCES)]

if TYPE_CHECKING:
    from .dates import Dates as Dates
    from .files import Files as Files
    from .media.source import MediaFiles as MediaFiles
    from .probes import Probes as Probes
    from .stdlib import Stdlib as Stdlib
else:
    __getattr__, __dir__ = later(__name__, {}, SOURCES)
