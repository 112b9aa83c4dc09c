"""The check itself: build, call, ask, diagnose."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any
from warnings import warn

import torch
from torch import nn

from ..core.contract import Mixer
from ..core.errors import HeedError
from ..core.interfaces import LanguageModel
from .diagnose import diagnosed
from .foreign.adapt import Ours
from .foreign.build import plans, unbuilt
from .foreign.calls import OtherLength, default_type
from .foreign.candidates import attends as looks_so
from .foreign.contain.cuda import on_cpu
from .foreign.contain.flex import flexing
from .foreign.contain.process import contained
from .foreign.frameworks import refuse_others
from .foreign.layouts import Layout
from .foreign.reach import reached
from .foreign.returned import Gives
from .foreign.sizes import TRIALS
from .foreign.target import CannotCheck, checkpoint_model, explained, locate, wants_gpu
from .foreign.ways.discover import WantsIds
from .foreign.ways.hints import Tries
from .kinds import OTHERS, Kind, by_name
from .kinds.attention import apart, attends, must_answer, must_attend, oriented, pools
from .kinds.model import NoModel
from .kinds.own import Own
from .masks import needing
from .outcome import Clue, Outcome, Status, Sure
from .probes import PROBES, Probe
from .reports.report import Report
from .signs import weighed
from .source.find import fixes
from .subject import QUIET, Declared, Subject
from .sweep import swept
from .trouble import Fault, Trouble
from .unchecked import troubled, unchecked

RENAMED = {"slope": "gradient"}  # probes that were called otherwise
WITHIN = "a model is asked by its scores: name an attention inside it to have its scale, softmax and heads checked"
UNMOVED = {"repeat", "gradients", "pure"}  # probes that compare no output with that of another call


def check(
    target: Any,
    *,
    init: Mapping[str, Any] | None = None,
    adapter: Callable[..., Any] | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    seed: int = 0,
    strict: bool = False,
    **declared: Any,
) -> Report:
    """Ask a module, a class, a function or `path.py:Name` everything, and say what is wrong with it.

    `declared` is what you know about it, by the names of `Declared`: causal, mask_true, layout, scale, window ...
    With `strict`, what is only unusual counts as wrong.
    """
    asked = Asked(init, adapter, tuple(only), tuple(skip), seed, Declared(**declared))
    name = str(target) if isinstance(target, str | Path) else _name(target)
    with contained() as process:
        try:
            found = _found(target)
            with on_cpu(process.tell) if wants_gpu(found) else nullcontext():
                report = _mended(found, name, asked)
        except CannotCheck as error:
            raise explained(error, process) from error
        except HeedError:
            raise
        except SystemExit as error:  # no verdict: what ends the process would clear itself
            words = (
                f"{name} leaves the process (exit code {error.code}) when it is built or called{Trouble.place(error)}"
            )
            raise CannotCheck(f"{words}; give an --adapter that does not get there") from error
        except Exception as error:  # what is heed's own fault says nothing about the target
            trouble = Trouble.of(error)
            if trouble.fault is not Fault.HEED:
                words = f"{name} cannot be checked, because it raises {trouble.words}"
                raise CannotCheck(f"{words}; give an --adapter that does not get there") from error
            words = f"heed ran into trouble of its own with {name}: {trouble.words}"
            raise CannotCheck(f"{words}; try --init or --adapter, and please report it") from error
    return replace(report, notes=(*report.notes, *process.notes), strict=strict)


@dataclass(frozen=True)
class Asked:
    """What is asked of a target, and what is known about it."""

    init: Mapping[str, Any] | None
    adapter: Callable[..., Any] | None
    only: tuple[str, ...]
    skip: tuple[str, ...]
    seed: int
    declared: Declared

    def by(self, probes: Sequence[str]) -> Asked:
        """The same by these probes alone, if they are all of attention and none were chosen."""
        known = {probe.name for probe in PROBES}
        return self if self.only or not set(probes) <= known else replace(self, only=tuple(probes))


def _mended(found: Any, name: str, asked: Asked) -> Report:
    """The report, with what would mend the target: tried on copies of it."""
    refuse_others(found)
    if isinstance(found, Mixer) and isinstance(found, LanguageModel):
        found = Own(found)
    with quiet(), flexing():
        report, subject = _report(found, name, asked)

        def again(other: Any, probes: Sequence[str]) -> Report:
            return _report(other, name, asked.by(probes))[0]

        read = fixes(found, report, subject, again)
        return replace(report, fixes=read.fixes, looks=read.looks)


def _report(found: Any, name: str, asked: Asked) -> tuple[Report, Subject | None]:
    """What is found out about the thing itself, and the face in front of it if it is an attention."""
    kind = by_name(found, _name(found)) if asked.adapter is None else Kind.ATTENTION
    if kind is not Kind.ATTENTION:
        try:
            report = _other(found, name, kind, asked.init, asked.seed)
        except NoModel:  # what is called tokens may be vectors, too
            report = None
        if report is not None and (report.asked or not (inspect.isclass(found) and looks_so(_name(found), found))):
            return report, None
    probes = chosen(asked.only, asked.skip)
    begun = perf_counter()
    try:
        subject = oriented(subjected(found, _name(found), asked.init, asked.adapter, asked.declared, asked.seed))
    except WantsIds:
        return _other(found, name, Kind.MODEL, asked.init, asked.seed), None
    if asked.adapter is None and not attends(subject) and apart(subject):
        return _other(found, name, Kind.FEEDFORWARD, asked.init, asked.seed), None
    must_attend(subject)
    must_answer(subject, name)
    if asked.adapter is None and pools(subject):
        words = "what it gives for a token does not depend on which token it is: its queries are its own"
        raise CannotCheck(
            f"{name} cannot be checked: {words}; give an --adapter that calls its attention with a stream"
        )
    report = _attended(subject, name, probes, sweeping=not asked.only)
    return replace(report, seconds=perf_counter() - begun), subject


def _attended(subject: Subject, name: str, probes: Sequence[Probe], sweeping: bool) -> Report:
    """The report on an attention."""
    if subject.sizes.rows == subject.sizes.tokens:
        return _square(subject, name)
    outcomes = weighed(subject, [_asked(probe, subject) for probe in probes])
    sweeping &= subject.call.gives is Gives.VECTORS  # another setting may give scores in place of weights
    elsewhere, tried = swept(subject, outcomes) if sweeping else ([], [])
    elsewhere = weighed(subject, elsewhere)
    return Report(
        target=name,
        kind=Kind.ATTENTION,
        call=_told(subject),
        outcomes=[*outcomes, *elsewhere],
        likely=diagnosed([*outcomes, *elsewhere]),
        conventions=() if subject.random else _conventions(subject),
        seed=subject.seed,
        place=_place(subject.origin),
        influence=[] if subject.random else subject.map.tolist(),
        expected=[] if subject.random else _expected(subject),
        swept=tried,
        notes=[*subject.notes, *_notes(subject)],
        unchecked=unchecked(subject, outcomes),
    )


def _square(subject: Subject, name: str) -> Report:
    """What can be called only with as many rows as tokens takes the one for the other: nothing else need be asked."""
    words = "it can be called only if there are as many rows as tokens"
    clue = Clue("batch-first-confusion", Sure.LIKELY, f"{words}; if [tokens, rows, width] is meant: --layout sbd")
    outcomes = [Outcome.broken("layout", words, clue)]
    call = f"called with as many rows as tokens ({subject.call.face})"
    told = ["nothing but the layout was checked: it can be called only if there are as many rows as tokens"]
    place = _place(subject.origin)
    return Report(
        name, Kind.ATTENTION, call, outcomes, diagnosed(outcomes), seed=subject.seed, place=place, unchecked=told
    )


def _found(target: Any) -> Any:
    """The thing itself: a folder's model, what a name stands for, or what was given."""
    if isinstance(target, Path) or (isinstance(target, str) and Path(target).is_dir()):
        return checkpoint_model(Path(target))
    return locate(target).found if isinstance(target, str) else target


def _other(found: Any, name: str, kind: Kind, init: Mapping[str, Any] | None, seed: int) -> Report:
    """What belongs to an attention without being one."""
    begun, notes = perf_counter(), list[str]()
    outcomes = list[Outcome]()
    for built, guessed in _builds(found, init, seed):
        outcomes, notes = _asked_alone(kind, built, _name(found)), guessed
        if any(outcome.status is not Status.NONE for outcome in outcomes):
            break
    return Report(
        target=name,
        kind=kind,
        call="alone",
        outcomes=outcomes,
        likely=diagnosed(outcomes),
        seconds=perf_counter() - begun,
        seed=seed,
        place=_place(found),
        notes=notes,
        unchecked=[*([WITHIN] if kind is Kind.MODEL else []), *troubled(outcomes)],
    )


def _asked_alone(kind: Kind, built: Any, name: str) -> list[Outcome]:
    try:
        return OTHERS[kind](built, name)
    except HeedError:
        raise
    except Exception as error:  # foreign code may raise anything
        return [Trouble.of(error).outcome(kind)]


def _builds(found: Any, init: Mapping[str, Any] | None, seed: int) -> Iterator[tuple[Any, list[str]]]:
    """The thing itself, or a class built in the most likely ways: with the next one if nothing can be asked of one."""
    if not inspect.isclass(found):
        yield found, []
        return
    tries = Tries()
    plan = None
    for plan in islice(plans(found, init, TRIALS, tries), 6):
        yield plan.build(seed), [f"built with guessed arguments: {', '.join(plan.guessed)}"] if plan.guessed else []
    if plan is None:
        raise unbuilt(found, init or {}, tries)


def chosen(only: Sequence[str], skip: Sequence[str]) -> list[Probe]:
    """The probes to run: by name or by number."""
    only, skip = _renamed(only), _renamed(skip)
    known = {probe.name for probe in PROBES} | {probe.number for probe in PROBES}
    unknown = [name for name in (*only, *skip) if name not in known]
    if unknown:
        raise CannotCheck(f"there is no probe {unknown[0]!r}; there are {', '.join(p.name for p in PROBES)}")
    return [
        probe
        for probe in PROBES
        if (not only or probe.name in only or probe.number in only) and not {probe.name, probe.number} & set(skip)
    ]


def _renamed(names: Sequence[str]) -> list[str]:
    for name in set(names) & RENAMED.keys():
        warn(
            f"the probe {name!r} is called {RENAMED[name]!r} now; the old name will go",
            DeprecationWarning,
            stacklevel=4,
        )
    return [RENAMED.get(name, name) for name in names]


def subjected(
    found: Any,
    name: str,
    init: Mapping[str, Any] | None,
    adapter: Callable[..., Any] | None,
    declared: Declared,
    seed: int,
) -> Subject:
    """The target behind the one face."""
    within = reached(found, init, adapter, seed)
    call, ours = within.call, within.call.target
    if isinstance(ours, Ours) and declared.causal is None:
        declared = declared.model_copy(update={"causal": ours.mixer.streams})
    if declared.layout == "sbd":
        call = call.with_(layout=Layout.TOKENS)
    return Subject(name, needing(call), declared, within.recipe, seed, found, notes=within.notes)


def _asked(probe: Probe, subject: Subject) -> Outcome:
    """One probe; what the target raises where it should not is a finding, what heed raises is none."""
    try:
        if subject.random and probe.name not in UNMOVED:
            return Outcome.moot(probe.name, "its output is random, so that nothing can be compared: see repeat")
        return probe.ask(subject)
    except CannotCheck:
        raise
    except OtherLength as length:
        return Outcome.moot(probe.name, str(length))
    except Exception as error:  # foreign code may raise anything
        return Trouble.of(error).outcome(probe.name)


@contextmanager
def quiet() -> Iterator[None]:
    """One thread, torch's generator as it was, no warnings of foreign code."""
    import warnings

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), default_type(torch.float64):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def _told(subject: Subject) -> str:
    arguments = {} if subject.recipe is None else subject.recipe.arguments
    plain = {n: v for n, v in arguments.items() if isinstance(v, int | float | str | bool) or v is None}
    built = f"built with {', '.join(f'{n}={v}' for n, v in plain.items())}; " if plain else ""
    names = subject.call.arguments(subject.stream(), subject.source(), None)
    return f"{built}called with {', '.join(names)} ({subject.call.face})"


def _notes(subject: Subject) -> list[str]:
    """What was handled, and might surprise."""
    if subject.random or not subject.named_causal or not subject.led_by_masks or subject.pairs is None:
        return []
    return [f"by itself it looks both ways, whatever its name says; {subject.pairs.argument} makes it causal"]


def _conventions(subject: Subject) -> list[tuple[str, str]]:
    from .probes.written import found

    told = [("looks", "back only" if subject.meant_causal else "both ways")]
    told += [("mask", found_.forms[0].words()) for found_ in subject.masks.values() if found_.forms]
    match = found(subject)[1]
    if match is not None and match.slug is None:
        told += list(match.how.words())
    return told


def _expected(subject: Subject) -> list[list[float]]:
    shape = subject.map.shape
    ones = torch.ones(shape)
    allowed = ones.tril() if subject.meant_causal and shape[0] == shape[1] else ones
    if subject.declared.window is not None and shape[0] == shape[1]:
        allowed = allowed.triu(1 - subject.declared.window)
    return [[float(v) for v in row] for row in allowed]


def _place(found: Any) -> tuple[str, int] | None:
    kind = type(found) if isinstance(found, nn.Module) else found
    try:
        return inspect.getsourcefile(kind) or "", inspect.getsourcelines(kind)[1]
    except (TypeError, OSError):
        return None


def _name(target: Any) -> str:
    if isinstance(target, Own):
        return type(target.model).__name__
    if isinstance(target, nn.Module):
        return type(target).__name__
    return str(getattr(target, "__name__", type(target).__name__))


def moved(influence: torch.Tensor) -> torch.Tensor:
    """Which pairs of a map count as influence."""
    return influence > QUIET
