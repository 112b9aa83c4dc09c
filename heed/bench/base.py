"""Who takes part in a contest, and what is told about a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from typing import ClassVar, TypeAlias

from .work import Precision, Subject, Work


@dataclass(frozen=True)
class Done:
    """What a round got done, and what the first row wrote, to compare."""

    units: int
    tokens: tuple[int, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)  # of a contestant that measures something else than time


Round: TypeAlias = Callable[[], Done]


@dataclass(frozen=True)
class Prepared:
    """A contestant with its model built: ways of doing the same work, of which the quickest is taken by trial."""

    ways: Mapping[str, Round]
    bytes: int = 0  # weights that are read for every new token; 0 if that is not known


class Contestant(ABC):
    """heed, or a peer of its."""

    name: ClassVar[str]
    package: ClassVar[str]  # what is imported
    distribution: ClassVar[str]  # what pip calls it

    @abstractmethod
    def precision(self, work: Work) -> str | None:
        """The precision it has that is nearest to what is asked for, in its own words; None if it cannot do this."""

    @abstractmethod
    def prepare(self, work: Work) -> Prepared:
        """Builds its model. Called in a process of its own."""

    @property
    def installed(self) -> bool:
        """Whether it can be imported; it is not."""
        try:
            return find_spec(self.package) is not None
        except ModuleNotFoundError:
            return False

    @property
    def version(self) -> str:
        """As installed."""
        return metadata.version(self.distribution) if self.installed else ""


def nearest(work: Work, known: Mapping[Precision, str], subjects: tuple[Subject, ...]) -> str | None:
    """The finest precision that is not finer than what is asked for; otherwise the coarsest there is."""
    if work.subject not in subjects:
        return None
    order: tuple[Precision, ...] = ("int4", "int8", "fp32")
    for precision in order[order.index(work.precision) :]:
        if precision in known:
            return known[precision]
    return None
