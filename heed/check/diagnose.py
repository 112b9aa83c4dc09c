"""From what failed to what is wrong: the surest explanation first, without what merely follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .bugs import BUGS, Bug
from .outcome import Clue, Outcome, Sure


@dataclass(frozen=True)
class Diagnosis:
    """A bug that is probably there, and why."""

    bug: Bug
    sure: Sure
    evidence: tuple[str, ...]
    probes: tuple[str, ...]
    explains: frozenset[str] = frozenset()  # bugs that follow from it, by their names
    instead: tuple[str, ...] = ()  # bugs that would look the same, and what would tell them apart

    @property
    def fails(self) -> bool:
        """Whether it counts as wrong, and not only as unusual or possible."""
        return self.sure >= Sure.LIKELY


def diagnosed(outcomes: Iterable[Outcome]) -> list[Diagnosis]:
    """Every bug that a clue points to, the surest first; what a surer one explains is left out."""
    clues: dict[str, list[tuple[Clue, str]]] = {}
    for outcome in outcomes:
        for clue in outcome.clues:
            clues.setdefault(clue.slug, []).append((clue, outcome.probe))
    found = [_diagnosis(slug, told) for slug, told in clues.items()]
    found.sort(key=lambda one: -one.sure)
    return [
        replace(one, instead=tuple(_or(other) for other in found if _equally_good(one, other)))
        for place, one in enumerate(found)
        if not any(_explained(one, other, i < place) for i, other in enumerate(found))
    ]


def _explained(one: Diagnosis, other: Diagnosis, before: bool) -> bool:
    """Whether one follows from the other; of two that explain each other the first stays."""
    if one.bug.slug not in other.explains or other.sure < one.sure:
        return False
    return before or one.sure < other.sure or other.bug.slug not in one.explains


def _equally_good(one: Diagnosis, other: Diagnosis) -> bool:
    """Whether each would explain the other, and none is surer: both are told. What is certain needs no other."""
    if one.sure is not other.sure or one.sure is Sure.CERTAIN:
        return False
    return one.bug.slug in other.explains and other.bug.slug in one.explains


def _or(other: Diagnosis) -> str:
    return f"{other.bug.slug}: {other.bug.tell or other.bug.says}"


def _diagnosis(slug: str, told: list[tuple[Clue, str]]) -> Diagnosis:
    told = sorted(told, key=lambda pair: -pair[0].sure)
    sure = told[0][0].sure
    if sure is Sure.HINT and len({probe for _, probe in told}) > 1:
        sure = Sure.LIKELY  # two that point the same way
    evidence = tuple(dict.fromkeys(clue.evidence for clue, _ in told))
    explains = frozenset(BUGS[slug].explains).union(*(clue.explains for clue, _ in told))
    return Diagnosis(BUGS[slug], sure, evidence, tuple(dict.fromkeys(probe for _, probe in told)), explains)
