"""Where examples come from: the user's files, and two sources that need no download. `SOURCES` is the table."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ..core.config import OneOf
from .base import Example as Example
from .base import Examples as Examples
from .base import Name as Name
from .base import Source as Source
from .dates import Dates as Dates
from .files import Files as Files
from .stdlib import Stdlib as Stdlib

SOURCES: tuple[type[Source], ...] = (Files, Dates, Stdlib)

AnySource: TypeAlias = Annotated[Source, OneOf(lambda: SOURCES)]
