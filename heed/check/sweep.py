"""The other paths: every switch of the constructor turned the other way, dropout on, other back ends.

Bugs hide on the path that nobody runs. A switch that only chooses how something is computed must not change what is
computed; with any other switch the module is another one, which is asked the same questions.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch

from .build import Recipe
from .outcome import Clue, Outcome, Status, Sure
from .probes import PROBES
from .reference import distance
from .subject import Subject

HOW = re.compile(
    r"flash|fused|sdpa|fast|efficient|compile|kernel|need_weights|return_attn|checkpoint|drop|implementation"
)
ASKED = ("rows", "prefix", "future", "past", "mask", "padding", "dead-row", "repeat", "written-out", "cache")
MOST = 12  # settings that are tried
SECONDS = 20.0  # after which no other one is begun


@dataclass(frozen=True)
class Setting:
    """One thing set otherwise."""

    name: str
    value: Any

    @property
    def words(self) -> str:
        return f"{self.name}={self.value}"

    @property
    def only_how(self) -> bool:
        """Whether it should change nothing but the way to the result."""
        return HOW.search(self.name.lower()) is not None


def swept(subject: Subject, base: list[Outcome]) -> tuple[list[Outcome], list[str]]:
    """What fails with other settings and not without them; and which settings were tried."""
    found, tried = list[Outcome](), list[str]()
    known = {clue.slug for outcome in base for clue in outcome.clues if clue.sure > Sure.CONVENTION}
    begun = perf_counter()
    for setting in list(settings(subject))[:MOST]:
        other = with_setting(subject, setting)
        if other is None or perf_counter() - begun > SECONDS:
            continue
        tried.append(setting.words)
        if setting.only_how and (outcome := _differs(subject, other, setting)) is not None:
            found.append(outcome)
        found += _asked(other, setting, known)
    return found, tried


def settings(subject: Subject) -> Iterator[Setting]:
    """All that can be set otherwise."""
    if subject.recipe is None:
        return
    for name in subject.recipe.dropouts:
        yield Setting(name, 0.25)
    for name, value in _flags(subject.recipe).items():
        yield Setting(name, not value)
    for name, value in subject.recipe.arguments.items():
        if "_attn_implementation" in dir(value):
            yield Setting(f"{name}._attn_implementation", "sdpa")


def _flags(recipe: Recipe) -> dict[str, bool]:
    """Switches with their values, those with defaults included; not those that move axes or devices."""
    import inspect

    parameters = inspect.signature(recipe.make).parameters.values()
    defaults = {p.name: p.default for p in parameters if isinstance(p.default, bool)}
    found = {**defaults, **recipe.flags}
    return {name: value for name, value in found.items() if name not in {"batch_first", "device", "dtype"}}


def with_setting(subject: Subject, setting: Setting) -> Subject | None:
    """The same with one thing set otherwise, with the same weights where they fit."""
    recipe = subject.recipe
    assert recipe is not None
    owner, _, field = setting.name.partition(".")
    value = setting.value
    if field:
        value = copy.deepcopy(recipe.arguments[owner])
        setattr(value, field, setting.value)
    other = subject.rebuilt(**{owner: value})
    if other is None:
        return None
    other.recipe = replace(recipe, arguments={**recipe.arguments, owner: value})
    switched = "causal" in setting.name.lower()
    if switched or subject.meant_causal:  # what looks back only goes on doing so, unless it is told not to
        other.declared = subject.declared.model_copy(update={"causal": None if switched else True})
    return other


def _differs(subject: Subject, other: Subject, setting: Setting) -> Outcome | None:
    """A switch of how: the outputs, with a mask where there is one, are the same."""
    x, source = subject.stream(), subject.source()
    form = subject.pairs
    sees = None
    if form is not None:
        sees = torch.ones(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
        sees = sees.tril() if source is None else sees
    elif "implementation" in setting.name:
        return None
    try:
        gap = distance(other.run(x, source, sees=sees, form=form), subject.run(x, source, sees=sees, form=form))
    except Exception as error:  # foreign code may raise anything
        words = f"with {setting.words} it raises {type(error).__name__}: {str(error)[:200]}"
        return Outcome.moot(f"path {setting.words}", words)
    if gap <= 1e-5:
        return None
    words = f"with {setting.words} the output differs by {gap:.1e}, while not training"
    return Outcome.broken(
        f"path {setting.words}", words, Clue("path-differs", Sure.LIKELY, words), error=gap, bound=1e-5
    )


def _asked(other: Subject, setting: Setting, known: set[str]) -> Iterator[Outcome]:
    for probe in PROBES:
        if probe.name not in ASKED:
            continue
        try:
            outcome = probe.ask(other)
        except Exception:  # a setting that this input does not fit
            continue
        fresh = tuple(
            replace(clue, evidence=f"with {setting.words}: {clue.evidence}")
            for clue in outcome.clues
            if clue.sure > Sure.CONVENTION and clue.slug not in known
        )
        if outcome.status is Status.FAIL and fresh:
            words = f"with {setting.words}: {outcome.words}"
            yield replace(outcome, probe=f"{outcome.probe} ({setting.words})", words=words, clues=fresh)
