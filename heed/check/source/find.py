"""From a diagnosis to a change of the user's own code: found by a rule, and tried before it is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ..bugs import BUGS
from ..diagnose import Diagnosis
from ..foreign.contain.budget import Budget
from ..outcome import Status
from ..reports.report import Fix, Line, Report
from ..subject import Subject
from .case import Case
from .home import Home
from .rules import RULES
from .trial import CannotTry, mended

Again = Callable[[Any, Sequence[str]], Report]  # the same check of another target, with all probes or with some

TRIALS = 48  # changes that are tried for all bugs together
SECONDS = 20.0  # of computing, after which no other is
SCORED = {"written-out", "mask", "scale", "same", "large", "future", "padding", "dead-row"}  # probes of what is scored
LEAST = 24  # changes that are tried however long that takes
MANY = 16  # changes that are tried for one bug


class Read(NamedTuple):
    """What the source tells of the bugs, by slug."""

    fixes: dict[str, Fix]
    looks: dict[str, Line]  # where there is no fix


def fixes(origin: Any, report: Report, subject: Subject | None, again: Again) -> Read:
    """For every bug the change that mends it; what cannot be mended surely has only a line to look at."""
    home, found = Home.of(origin), Read({}, {})
    if home is None or not report.likely:
        return found
    case = Case(home, subject, lambda: again(origin, ()))
    budget = Budget(TRIALS, SECONDS, LEAST)
    for one in sorted(report.likely, key=lambda one: not one.fails):
        case.one = one
        try:
            fix = _first(case, one, report, again, budget)
            look = None if fix is not None else _nearest(case, one.bug.slug)
        except Exception:  # foreign code was read and run: a report without a fix is better than none
            continue
        if fix is not None:
            found.fixes[one.bug.slug] = fix
        elif look is not None:
            found.looks[one.bug.slug] = look
    return found


def _nearest(case: Case, slug: str) -> Line | None:
    """The line that a rule would change first; else the one where weights are made of scores."""
    proposed = next(candidates(case, slug), None)
    if proposed is not None:
        return proposed.spot
    events = [event for one in case.attended for event in (one.softmax, one.fused, one.scores) if event is not None]
    place = next((event.place for event in events if event.place is not None), None)
    if place is None or not SCORED & set(BUGS[slug].probes):
        return None
    statement = place.code.statement(place.node)
    return Line(place.code.file, statement.lineno, place.words(statement).split("\n")[0])


def _first(case: Case, one: Diagnosis, report: Report, again: Again, budget: Budget) -> Fix | None:
    """The first change with which the check finds the bug no more, nor another; untried only if it is the only one."""
    untried: list[Fix] = []
    for fix in candidates(case, one.bug.slug):
        try:
            if budget.spent():
                raise CannotTry
            if _passes(case, one, fix, report, again):
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


def _passes(case: Case, one: Diagnosis, fix: Fix, before: Report, again: Again) -> bool:
    """Whether a change mends: first the probes that found the bug are asked, then all."""
    with mended(case.home, fix) as target:
        return all(_better(one, before, target, again, probes) for probes in (one.probes, ()))


def _better(one: Diagnosis, before: Report, target: Any, again: Again, probes: Sequence[str]) -> bool:
    """Whether the bug is gone, nothing else became wrong, and no call needs more than it did."""
    try:
        report = again(target, probes)
    except Exception:  # it can no longer be built or called
        return False
    left = {other.bug.slug for other in report.likely if other.fails or not one.fails}
    worse = set(report.slugs) - set(before.slugs) or _given(report) - _given(before)
    held = any(outcome.status is Status.PASS for outcome in report.outcomes)
    return one.bug.slug not in left and not worse and (held or bool(probes))  # a probe alone may have no more to ask


def _given(report: Report) -> set[str]:
    """The names of the arguments that a call was given."""
    _, _, called = report.call.partition("called with ")
    return set(re.findall(r"[\w.]+", called.partition("(")[0]))
