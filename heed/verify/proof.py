"""One proof = one subject and one statement about it, tried on every sample; what is kept is the worst number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, TypeAlias

import torch

from ..core.config import Config, kind_of, nearest
from ..core.contract import Mixer, MixerConfig, Where
from ..core.errors import InputError, StateConsumed
from ..core.laws import BOUND, LAWS, Case, Finding, Law
from ..core.state import Spec
from ..core.trials import distance
from ..mixers import MIXERS
from ..models import MODELS, Decoder, Embedded, Encoder, Seq2seq
from ..parts.feedforward import FEEDFORWARDS
from ..parts.look import look, points
from ..parts.scores import SCORES
from .samples import WIDTH, samples
from .statements import ATTEND, pooled, round_trips

AnyModel: TypeAlias = "Encoder | Decoder | Seq2seq"


@dataclass(frozen=True)
class Proof:
    """What was shown about a subject: over how many samples, how far off the worst one was, and which one that was."""

    subject: str
    statement: str
    samples: int
    error: float
    bound: float
    worst: str

    @property
    def holds(self) -> bool:
        return self.error <= self.bound  # NaN does not hold

    def plain(self) -> dict[str, Any]:
        """For machines. JSON has no infinity: an error that is no number is null."""
        return {**asdict(self), "error": self.error if isfinite(self.error) else None, "holds": self.holds}


Check: TypeAlias = "Callable[[], Proof]"


TABLES: tuple[type[Config], ...] = (*MIXERS, *FEEDFORWARDS, *MODELS)


def subjects() -> list[str]:
    """What can be verified by name: every entry of a table, `attend`, and every kind that some sample uses."""
    used = {kind for config in TABLES for sample in samples(config) for kind in _kinds(sample.dump())}
    first = [kind_of(config) for config in TABLES]
    return [*first, "attend", "scores", *map(kind_of, SCORES), *sorted(used.difference(first))]


def proofs(names: Iterable[str] = ()) -> list[Check]:
    """The proofs of these subjects, each to be called when its turn comes. Without a name: of all tables."""
    known = subjects()
    wanted = list(dict.fromkeys(names)) or [*map(kind_of, TABLES), "attend", "scores"]
    for name in wanted:
        if name not in known:
            raise InputError(f"there is nothing called {name!r} to verify{nearest(name, known)}")
    return [check for name in wanted for check in _checks(name)]


def _checks(name: str) -> Iterator[Check]:
    if name == "attend":
        for statement, compare in ATTEND.items():
            yield _compared(name, statement, compare)
        return
    if name == "scores" or name in map(kind_of, SCORES):
        chosen = [config for config in SCORES if name in ("scores", kind_of(config))]
        yield _compared(name, "weights are a mean, or nothing", lambda: pooled(chosen))
        return
    own = [sample for config in TABLES if kind_of(config) == name for sample in samples(config)]
    using = (sample for config in TABLES for sample in samples(config) if name in _kinds(sample.dump()))
    tries = own or list(using)
    for statement, measure in STATEMENTS.items():
        yield _tried(name, statement, measure, tries)
    models = [sample for sample in tries if not isinstance(sample, MixerConfig)]
    if models:
        yield _tried(name, "whole = cut = padded, over token ids", _over_ids, models)


def _kinds(data: Any) -> Iterator[str]:
    """Every kind that a configuration names, at any depth."""
    if isinstance(data, dict):
        if "kind" in data:
            yield data["kind"]
        for value in data.values():
            yield from _kinds(value)
    elif isinstance(data, list):
        for item in data:
            yield from _kinds(item)


def _tried(name: str, statement: str, measure: Callable[[Config], Finding], tries: Iterable[Config]) -> Check:
    def check() -> Proof:
        with one_thread():
            found = [(measure(sample), sample) for sample in tries]
        worst, sample = max(found, key=lambda pair: (not pair[0].holds, pair[0].error))
        return Proof(name, statement, len(found), worst.error, worst.bound, f"{worst.detail}; {sample!r}")

    return check


def _compared(name: str, statement: str, compare: Callable[[], list[Finding]]) -> Check:
    def check() -> Proof:
        with one_thread():
            found = compare()
        worst = max(found, key=lambda finding: (not finding.holds, finding.error))
        return Proof(name, statement, len(found), worst.error, worst.bound, worst.detail)

    return check


@contextmanager
def one_thread() -> Iterator[None]:
    """The samples are tiny: a second thread would only wait for the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _obeys(law: Law) -> Callable[[Config], Finding]:
    return lambda sample: law(_mixer(sample), Case.make(WIDTH))


def _mixer(sample: Config) -> Mixer[Any]:
    torch.manual_seed(0)
    mixer = sample.build(WIDTH) if isinstance(sample, MixerConfig) else Embedded(_built(sample))
    return mixer.double().eval()


def _built(sample: Config) -> AnyModel:
    if isinstance(sample, Encoder.Config | Decoder.Config | Seq2seq.Config):
        return sample.build()
    raise InputError(f"{sample!r} is not the configuration of a mixer or a model")


def _guard(sample: Config) -> Finding:
    """A state passed in a second time must raise, unless it holds nothing."""
    mixer, case = _mixer(sample), Case.make(WIDTH, tokens=2)
    statement = "a consumed state is refused"
    if not mixer.streams or not _remembers(mixer.spec()):
        return Finding(statement, 0.0, 0.0, "keeps no state")
    state = mixer.start(len(case.x), case.given)
    mixer(case.x, case.where(0, 2), state)
    try:
        mixer(case.x, case.where(0, 2), state)
    except StateConsumed:
        return Finding(statement, 0.0, 0.0, "refused")
    return Finding(statement, 1.0, 0.0, "a state was taken twice without an error")


def _looking(sample: Config) -> Finding:
    """The output with every point watched, against the output with none: equal to the last bit."""
    mixer, case = _mixer(sample), Case.make(WIDTH)
    where = case.where(0, case.x.shape[1])
    if not points(mixer):
        return Finding("looking changes nothing", 0.0, 0.0, "has no points to look at")
    with torch.no_grad():
        plain, _ = mixer(case.x, where)
        with look(mixer) as seen:
            watched, _ = mixer(case.x, where)
    shown = sum(bool(tensors) for tensors in seen.values())
    error = float((plain - watched).abs().max()) if shown else float("inf")
    return Finding("looking changes nothing", error, 0.0, f"{shown} points shown")


def _over_ids(sample: Config) -> Finding:
    """A model over token ids: one call, against two, and against one with ids in its padding that do not exist."""
    torch.manual_seed(0)
    model, case = _built(sample).double().eval(), Case.make(WIDTH, rows=2)
    tokens = torch.randint(11, (2, 7))
    late = torch.arange(7) >= 5
    with torch.no_grad():
        whole, _ = model(tokens, Where.run(2, 7).beside(case.given))
        short, _ = model(tokens[:, :5], Where.run(2, 5).beside(case.given))
        padded, _ = model(tokens.masked_fill(late, -100), Where.ragged([5, 5], width=7).beside(case.given))
        error = distance(short, padded[:, :5])
        if model.streams:
            first, state = model(tokens[:, :3], Where.run(2, 3), model.start(2, case.given))
            rest, _ = model(tokens[:, 3:], Where.run(2, 4, start=3), state)
            error = max(error, distance(whole, torch.cat((first, rest), 1)))
    return Finding("ids", error, BOUND, "over token ids")


def _remembers(spec: Spec) -> bool:
    return any(map(_remembers, spec)) if isinstance(spec, tuple) else True


STATEMENTS: dict[str, Callable[[Config], Finding]] = {
    **{law.__name__: _obeys(law) for law in LAWS},
    "a consumed state is refused": _guard,
    "looking changes nothing": _looking,
    "config round trip": round_trips,
}
