"""The other paths: every switch of the constructor turned the other way, dropout on, other back ends.

Bugs hide on the path that is never run. A switch that only chooses how something is computed must not change what is
computed; with any other switch the module is another one, which is asked the same questions.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .bugs import asked_by
from .foreign.adapt import Beside, Ours
from .foreign.build import Recipe
from .foreign.calls import Face, OtherLength
from .foreign.contain.budget import Budget
from .foreign.guess.arguments import parameters_of
from .foreign.sizes import cut
from .foreign.words import Role
from .outcome import Clue, Outcome, Status, Sure
from .probes import PROBES
from .reference import distance
from .signs import weighed
from .subject import Subject
from .trouble import Fault, Trouble

HOW = re.compile(
    r"flash|fused|sdpa|fast|efficient|compile|kernel|need_weights|return_attn|checkpoint|drop|implementation"
)
SIGHT = re.compile(r"causal|mask|regress|direction|decod|ahead|future")  # switches of who sees whom
ASKED = ("rows", "prefix", "future", "past", "mask", "padding", "dead-row", "repeat", "written-out", "cache")
MOST, LEAST = 12, 4  # settings that are tried, and those that are however long that takes
SECONDS = 60.0  # of computing, after which no other one is


@dataclass(frozen=True)
class Setting:
    """One thing set otherwise."""

    name: str
    value: Any

    @property
    def words(self) -> str:
        return f"{self.name}={self.value}"

    @property
    def meant(self) -> set[str]:
        """What would be a bug, had it not been asked for by name."""
        return asked_by(self.name)

    @property
    def only_how(self) -> bool:
        """Whether it should change nothing but the way to the result."""
        return HOW.search(self.name.lower()) is not None


def swept(subject: Subject, base: list[Outcome]) -> tuple[list[Outcome], list[str]]:
    """What fails with other settings and not without them; and which settings were tried."""
    found, tried = list[Outcome](), list[str]()
    if subject.random:
        return found, tried
    known = {clue.slug for outcome in base for clue in outcome.clues if clue.sure > Sure.CONVENTION}
    budget = Budget(MOST, SECONDS, LEAST)
    for words, beside in _other_faces(subject):
        tried.append(words)
        if (outcome := _of_another_length(beside, words)) is not None:
            found.append(outcome)
            continue
        found += _asked(beside, words, known, ("rows", "future", "past", "mask", "padding", "same", "source"))
    for setting in settings(subject):
        if budget.spent():
            break
        other = with_setting(subject, setting)
        if other is None:
            continue
        tried.append(setting.words)
        fresh = list(_asked(other, f"with {setting.words}", known | setting.meant, ASKED))
        found += fresh
        if setting.only_how and other.weights_kept and not fresh:  # what is wrong there explains that it differs
            outcome = _differs(subject, other, setting)
            found += [] if outcome is None else [outcome]
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
    if SIGHT.search(setting.name.lower()):
        other.declared = subject.declared.model_copy(update={"causal": None if setting.value else False})
    elif subject.meant_causal:  # what looks back only goes on doing so, unless it is told not to
        other.declared = subject.declared.model_copy(update={"causal": True})
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


def _other_faces(subject: Subject) -> Iterator[tuple[str, Subject]]:
    """Other ways to call it: with a source that may be given, or of a decoder's own stream beside a fixed source."""
    name = subject.call.signature.named(Role.SOURCE)
    if name is None or subject.module is None or isinstance(subject.module, Ours):
        return
    if not subject.call.plain or subject.led_by_masks:
        return
    other = replace(subject)
    if subject.call.face is Face.SELF and _switched_off(subject, name):
        return
    if subject.call.face is Face.SELF and subject.meant_causal:
        return  # looking back at a source cannot be told from looking back at itself
    if subject.call.face is Face.SELF:
        made = {n: make for n, make in subject.call.made.items() if n != name}  # no filling in its place
        fixed = {n: value for n, value in subject.call.fixed.items() if n != name}
        other.call = subject.call.with_(face=Face.CROSS, made=made, fixed=fixed)
        words = f"with {name} given"
    elif subject.crossed and subject.call.rows_first:
        roles = {n: role for n, role in subject.call.signature.roles.items() if n != name}
        signature = replace(subject.call.signature, roles=roles, needed=subject.call.signature.needed - {name})
        held = Beside(subject.module, name, subject.stream(tokens=subject.sizes.source, seed=2))
        other.call = subject.call.with_(face=Face.SELF, target=held, signature=signature)
        words = f"beside one {name}"
    else:
        return
    try:
        other.run(other.stream(), other.stream(seed=2) if other.crossed else None)
    except Exception:  # a source of another kind
        return
    yield words, other


def _switched_off(subject: Subject, source: str) -> bool:
    """Whether an argument of the constructor says that it has no source: a switch that is off, a size that is none."""
    words = {"context", "cross", "encoder", "memory", "source"}
    if subject.recipe is None:
        return False
    taken = parameters_of(subject.recipe.make)
    settled = {n: p.default for n, p in taken.items() if p.default is None} | _flags(subject.recipe)
    told = {**settled, **{name: value for name, value in subject.recipe.arguments.items() if name in settled}}
    off = [set(cut(name)) for name, value in told.items() if value is None or value is False]
    return any(words & one or set(cut(source)) <= one for one in off)


def _of_another_length(other: Subject, told: str) -> Outcome | None:
    """A source that is only taken if it is as long as the stream: keys are made of the one and values of the other."""
    try:
        other.run(other.stream(), other.source())
    except Exception as error:  # foreign code may raise anything
        trouble = Trouble.of(error)
        words = f"{told}, and of another length than the stream, it raises {trouble.words}"
        if trouble.fault is not Fault.TARGET:
            return Outcome.moot("source", words)
        named = any(word in told for word in ("context", "memory", "enc"))
        return Outcome.broken("source", words, Clue("shared-self-cross", Sure.LIKELY if named else Sure.HINT, words))
    return None


def _asked(other: Subject, told: str, known: set[str], names: Sequence[str]) -> Iterator[Outcome]:
    for probe in PROBES:
        try:
            if probe.name not in names or (other.random and probe.name != "repeat"):
                continue
            outcome = weighed(other, [probe.ask(other)])[0]
        except (Exception, OtherLength):  # a setting that this input does not fit
            continue
        fresh = tuple(
            replace(clue, evidence=f"{told}: {clue.evidence}")
            for clue in outcome.clues
            if clue.sure > Sure.CONVENTION and clue.slug not in known
        )
        if outcome.status is Status.FAIL and fresh:
            words = f"{told}: {outcome.words}"
            yield replace(outcome, probe=f"{outcome.probe} ({told})", words=words, clues=fresh)
