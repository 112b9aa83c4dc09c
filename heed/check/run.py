"""The check itself: build, call, ask, diagnose."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any
from warnings import warn

import torch
from torch import nn

from ..core.contract import Mixer
from ..core.interfaces import LanguageModel
from .diagnose import diagnosed
from .foreign.adapt import Adapted, Ours, measured
from .foreign.build import Recipe, copied, lively, recipe, rotations_of
from .foreign.calls import discover
from .foreign.target import CannotCheck, locate
from .foreign.words import TRIALS, Sizes
from .kinds import OTHERS, Kind, by_name
from .kinds.model import opened
from .kinds.own import Own
from .outcome import Clue, Outcome, Sure
from .probes import PROBES, Probe
from .reports.report import Report
from .subject import QUIET, Declared, Subject
from .sweep import swept

RENAMED = {"slope": "gradient"}  # probes that were called otherwise


def check(
    target: Any,
    *,
    init: Mapping[str, Any] | None = None,
    adapter: Callable[..., Any] | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    seed: int = 0,
    **declared: Any,
) -> Report:
    """Ask a module, a class, a function or `path.py:Name` everything, and say what is wrong with it.

    `declared` is what you know about it, by the names of `Declared`: causal, mask_true, layout, scale, window ...
    """
    begun = perf_counter()
    name = str(target) if isinstance(target, str | Path) else _name(target)
    found = _found(target)
    if isinstance(found, Mixer) and isinstance(found, LanguageModel):
        found = Own(found)
    kind = by_name(found, _name(found)) if adapter is None else Kind.ATTENTION
    if kind is not Kind.ATTENTION:
        return _other(found, name, kind, init, seed)
    with quiet():
        subject = subjected(found, _name(found), init, adapter, Declared(**declared), seed)
        if subject.sizes.rows == subject.sizes.tokens:
            return _square(subject, name, perf_counter() - begun)
        outcomes = [_asked(probe, subject) for probe in chosen(only, skip)]
        elsewhere, tried = ([], []) if only else swept(subject, outcomes)
        outcomes += elsewhere
        likely = diagnosed(outcomes)
    return Report(
        target=name,
        kind=kind,
        call=_told(subject),
        outcomes=outcomes,
        likely=likely,
        conventions=_conventions(subject),
        seconds=perf_counter() - begun,
        seed=seed,
        place=_place(found),
        influence=subject.map.tolist(),
        expected=_expected(subject),
        swept=tried,
    )


def _square(subject: Subject, name: str, seconds: float) -> Report:
    """What can be called only with as many rows as tokens takes the one for the other: nothing else need be asked."""
    words = "it can be called only if there are as many rows as tokens"
    clue = Clue("batch-first-confusion", Sure.LIKELY, f"{words}; if [tokens, rows, width] is meant: --layout sbd")
    outcomes = [Outcome.broken("layout", words, clue)]
    call = f"called with as many rows as tokens ({subject.call.face})"
    return Report(
        name, Kind.ATTENTION, call, outcomes, diagnosed(outcomes), (), seconds, subject.seed, _place(subject.origin)
    )


def _found(target: Any) -> Any:
    """The thing itself: a folder's model, what a name stands for, or what was given."""
    if isinstance(target, Path) or (isinstance(target, str) and Path(target).is_dir()):
        return opened(Path(target))
    return locate(target) if isinstance(target, str) else target


def _other(found: Any, name: str, kind: Kind, init: Mapping[str, Any] | None, seed: int) -> Report:
    """What belongs to an attention without being one."""
    begun = perf_counter()
    with quiet():
        built = recipe(found, init).build(seed) if inspect.isclass(found) else found
        outcomes = OTHERS[kind](built, _name(found))
    return Report(name, kind, "alone", outcomes, diagnosed(outcomes), (), perf_counter() - begun, seed, _place(found))


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
    """The target behind the one face; a class that cannot be called with one set of sizes is built with others."""
    if not inspect.isclass(found):
        return _faced(found, name, None, adapter, declared, seed)
    refused: CannotCheck | None = None
    for start in range(len(TRIALS)):
        try:
            return _faced(found, name, recipe(found, init, TRIALS[start:]), adapter, declared, seed)
        except CannotCheck as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _faced(
    found: Any,
    name: str,
    plan: Recipe | None,
    adapter: Callable[..., Any] | None,
    declared: Declared,
    seed: int,
) -> Subject:
    sizes, built = Sizes(), found
    if plan is not None:
        sizes, built = plan.sizes, plan.build(seed)
    elif isinstance(found, nn.Module):  # theirs stays as it is
        built = lively(copied(found), seed)
    if isinstance(built, Mixer):
        declared = declared if declared.causal is not None else declared.model_copy(update={"causal": built.streams})
        built = Ours(built)
    if adapter is not None:
        built = Adapted(built, adapter)
    trials = measured(found) if plan is None and isinstance(found, nn.Module) else [sizes]
    call = discover(built, trials, tables=None if plan is None else rotations_of(plan))
    if declared.layout == "sbd":
        call = call.with_(rows_first=False)
    return Subject(name, call, declared, plan, seed, found)


def _asked(probe: Probe, subject: Subject) -> Outcome:
    """One probe; what the target raises is a finding, with its place."""
    try:
        return probe.ask(subject)
    except CannotCheck:
        raise
    except Exception as error:  # foreign code may raise anything
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if "heed/check" not in f.filename.replace("\\", "/")
        ]
        where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        words = f"raised {type(error).__name__}: {str(error)[:300]}{where}"
        return Outcome.broken(probe.name, words, Clue("raises", Sure.LIKELY, f"{probe.name}: {words}"))


@contextmanager
def quiet() -> Iterator[None]:
    """One thread, torch's generator as it was, no warnings of foreign code."""
    import warnings

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
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
