"""Where examples come from: the user's files, and two sources that need no download. `SOURCES` is the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from ..core.config import OneOf
from ..core.tables import Table, later
from .base import Example as Example
from .base import Examples as Examples
from .base import Name as Name
from .base import Source as Source

SOURCES: Table[type[Source]] = Table(
    __name__, {"files": "files:Files", "dates": "dates:Dates", "stdlib": "stdlib:Stdlib"}
)

AnySource: TypeAlias = Annotated[Source, OneOf(lambda: SOURCES)]

if TYPE_CHECKING:
    from .dates import Dates as Dates
    from .files import Files as Files
    from .stdlib import Stdlib as Stdlib
else:
    __getattr__, __dir__ = later(__name__, {}, SOURCES)
