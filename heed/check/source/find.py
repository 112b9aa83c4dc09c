"""From a diagnosis to a change of the user's own code: found by a rule, and tried before it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from time import process_time
from typing import Any

from ..diagnose import Diagnosis
from ..outcome import Status
from ..reports.report import Fix, Report
from ..subject import Subject
from .case import Case
from .home import Home
from .rules import RULES
from .trial import CannotTry, mended

Again = Callable[[Any, Sequence[str]], Report]  # the same check of another target, with all probes or with some

SECONDS = 1.5  # of computing, for all trials together
MANY = 16  # changes that are tried for one bug


def fixes(origin: Any, likely: Sequence[Diagnosis], subject: Subject | None, again: Again) -> dict[str, Fix]:
    """For every bug the change that mends it, where the code can be read; what cannot be mended surely is left out."""
    home = Home.of(origin)
    if home is None or not likely:
        return {}
    case = Case(home, subject, lambda: again(origin, ()))
    until, found = process_time() + SECONDS, dict[str, Fix]()
    for one in sorted(likely, key=lambda one: not one.fails):
        case.one = one
        try:
            fix = _first(case, one, {other.bug.slug for other in likely}, again, until)
        except Exception:  # foreign code was read and run: a report without a fix is better than none
            continue
        if fix is not None:
            found[one.bug.slug] = fix
    return found


def _first(case: Case, one: Diagnosis, known: set[str], again: Again, until: float) -> Fix | None:
    """The first change with which the check finds the bug no more, nor another; untried only if it is the only one."""
    untried: list[Fix] = []
    for fix in candidates(case, one.bug.slug):
        try:
            if process_time() > until:
                raise CannotTry
            if _passes(case, one, fix, known, again):
                return fix
        except CannotTry:
            untried.append(fix)
    return untried[0] if len(untried) == 1 else None


def candidates(case: Case, slug: str) -> Iterator[Fix]:
    """What the rules for a bug propose, each once: on the way that a plain call takes, then on others."""
    seen: set[Fix] = set()
    for path in chain((case,), case.paths()):
        for rule in RULES.get(slug, ()):
            for fix in rule(path):
                if fix is not None and fix not in seen:
                    seen.add(fix)
                    yield fix
                if len(seen) >= MANY:
                    return


def _passes(case: Case, one: Diagnosis, fix: Fix, known: set[str], again: Again) -> bool:
    """Whether a change mends: first the probes that found the bug are asked, then all."""
    with mended(case.home, fix) as target:
        for probes in (one.probes, ()):
            try:
                report = again(target, probes)
            except Exception:  # it can no longer be built or called
                return False
            left = {other.bug.slug for other in report.likely if other.fails or not one.fails}
            if one.bug.slug in left or set(report.slugs) - known:
                return False
        return any(outcome.status is Status.PASS for outcome in report.outcomes)  # one probe alone may know no more
