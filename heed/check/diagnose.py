"""From what failed to what is wrong: the surest explanation first, without what merely follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .bugs import BUGS, Bug
from .outcome import Clue, Outcome, Sure


@dataclass(frozen=True)
class Diagnosis:
    """A bug that is probably there, and why."""

    bug: Bug
    sure: Sure
    evidence: tuple[str, ...]
    probes: tuple[str, ...]

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
    kept: list[Diagnosis] = []
    for one in found:
        if not any(one.bug.slug in other.bug.explains and other.sure >= one.sure for other in kept):
            kept.append(one)
    return kept


def _diagnosis(slug: str, told: list[tuple[Clue, str]]) -> Diagnosis:
    told = sorted(told, key=lambda pair: -pair[0].sure)
    sure = told[0][0].sure
    if sure is Sure.HINT and len({probe for _, probe in told}) > 1:
        sure = Sure.LIKELY  # two that point the same way
    evidence = tuple(dict.fromkeys(clue.evidence for clue, _ in told))
    return Diagnosis(BUGS[slug], sure, evidence, tuple(dict.fromkeys(probe for _, probe in told)))
