"""One proof = one subject and one statement about it, tried on every sample; what is kept is the worst number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..core.config import Config, kind_of, nearest
from ..core.contract import Mixer, MixerConfig
from ..core.errors import InputError, StateConsumed
from ..core.laws import LAWS, Case, Finding, Law
from ..core.spec import Spec
from ..mixers import MIXERS
from ..models import MODELS, AnyModel, Decoder, Embedded, Encoder, Seq2seq
from ..parts.feedforward import FEEDFORWARDS
from ..parts.scores import SCORES
from . import kernels, trained
from .base import Check, Proof, attempted, compared
from .samples import WIDTH, samples
from .statements import ATTEND, looking, over_ids, pooled, round_trips

__all__ = ["STATEMENTS", "Proof", "proofs", "subjects"]


def tables() -> tuple[type[Config], ...]:
    """All that can be built, what other packages bring included."""
    return (*MIXERS, *FEEDFORWARDS, *MODELS)


def subjects() -> list[str]:
    """What can be verified by name: every entry of a table, `attend`, and every kind that some sample uses."""
    every = tables()
    used = {kind for config in every for sample in samples(config) for kind in _kinds(sample.dump())}
    first, fast = [kind_of(config) for config in every], ("attend", "kernels", "dequantised", "scores")
    return [*first, *fast, *map(kind_of, SCORES), *sorted(used.difference(first))]


def proofs(names: Iterable[str] = ()) -> list[Check]:
    """The proofs of these subjects, each to be called when its turn comes. Without a name: of all tables.

    A name that is not known may be the path of a run folder: then what it has learnt is verified.
    """
    known = subjects()
    wanted = list(dict.fromkeys(names)) or [*map(kind_of, tables()), "attend", "scores", "dequantised", "kernels"]
    for name in wanted:
        if name not in known and not Path(name).is_dir():
            raise InputError(f"there is nothing called {name!r} to verify{nearest(name, known)}")
    return [check for name in wanted for check in (_checks(name) if name in known else trained.checks(name))]


def _checks(name: str) -> Iterator[Check]:
    if name == "kernels":
        yield from kernels.checks()
        return
    if name in ("attend", "dequantised"):
        for statement, compare in (ATTEND if name == "attend" else kernels.DEQUANTISED).items():
            yield compared(name, statement, compare)
        return
    if name == "scores" or name in map(kind_of, SCORES):
        chosen = [config for config in SCORES if name in ("scores", kind_of(config))]
        yield compared(name, "weights are a mean, or nothing", lambda: pooled(chosen))
        return
    every = tables()
    own = [sample for config in every if kind_of(config) == name for sample in samples(config)]
    using = (sample for config in every for sample in samples(config) if name in _kinds(sample.dump()))
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
    def tried(sample: Config) -> Finding:
        (finding,) = attempted(statement, lambda: [measure(sample)])
        return replace(finding, detail=f"{finding.detail}; {sample!r}")

    return compared(name, statement, lambda: [tried(sample) for sample in tries])


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
    case = Case.make(WIDTH)
    return looking(_mixer(sample), case.x, case.where(0, case.x.shape[1]))


def _over_ids(sample: Config) -> Finding:
    torch.manual_seed(0)
    model = _built(sample).double().eval()
    return over_ids(model, torch.randint(11, (2, 7)), Case.make(WIDTH, rows=2).given)


def _remembers(spec: Spec) -> bool:
    return any(map(_remembers, spec)) if isinstance(spec, tuple) else True


STATEMENTS: dict[str, Callable[[Config], Finding]] = {
    **{law.__name__: _obeys(law) for law in LAWS},
    "a consumed state is refused": _guard,
    "looking changes nothing": _looking,
    "config round trip": round_trips,
}
