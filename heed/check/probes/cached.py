"""A text in pieces: with what is kept between calls, the outputs are those of one call."""

from __future__ import annotations

from ..outcome import Outcome
from ..subject import Subject
from ..words import Role


def equal(subject: Subject) -> Outcome:
    """Several cuttings of a text, with the cache handed on, against one call."""
    if not subject.has(Role.CACHE, Role.PLACE):
        return Outcome.moot("cache", "it keeps no cache")
    return Outcome.moot("cache", "to come")
