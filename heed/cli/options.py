"""Options that several commands share, and how what is given becomes typed."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from . import complete

if TYPE_CHECKING:
    from torch import nn

    from ..decode import AnyStrategy
    from ..pipelines import GenerationConfig, Pipeline

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes: results and errors only.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Tell what runs compiled, what as plain calls, and why.")
]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A run folder, a checkpoint folder, a .gguf file or an id of the hub.")
]
Device = Annotated[
    str | None, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps.", autocompletion=complete.devices)
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting: a.b=value; a.b=? explains it (train). May be repeated."),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        help="Your files, a folder or a pattern: PATH, or train=PATH, valid=PATH, test=PATH. May be repeated."
    ),
]


class Group:
    """Options that belong together: a dataclass, shown below its own heading."""

    panel: ClassVar[str] = "Options"


@dataclass(frozen=True)
class Telling(Group):
    """How much is told beside the results."""

    quiet: Quiet = False
    verbose: Verbose = False


@dataclass(frozen=True)
class HubOptions(Group):
    """Where a model comes from, if it is named by an id of the hub: "gpt2", "org/name"."""

    panel = "Hub"

    revision: Annotated[str | None, typer.Option(help="Of a hub id: a branch, a tag or a commit.")] = None
    offline: Annotated[
        bool | None, typer.Option("--offline", help="Of a hub id: take only what was fetched before.")
    ] = None

    def resolve(self, path: str, *, pickles: bool = False) -> Path:
        """The path of a model: fetched from the hub, if it is not here."""
        from ..runs import resolve

        return resolve(path, revision=self.revision, offline=self.offline, pickles=pickles)


@dataclass(frozen=True)
class LoadOptions(HubOptions):
    """How a model is loaded; what is not given is as `heed.load` has it."""

    panel = "Loading"

    device: Device = None
    dtype: Annotated[
        str | None,
        typer.Option(
            help="What to compute in: float32, bfloat16, float16; auto: as stored.", autocompletion=complete.dtypes
        ),
    ] = None
    quantise: Annotated[
        str | None,
        typer.Option(
            help="Quantise the weights: int8, int4 ...; keep: those of a GGUF file.", autocompletion=complete.precisions
        ),
    ] = None

    def load(self, place: Path) -> Pipeline:
        """The pipeline of a model that is here by now."""
        from ..runs import load

        return load(place, **_given(device=self.device, dtype=self.dtype, quantise=self.quantise))

    def given(self) -> dict[str, Any]:
        """What was given."""
        return _given(**dataclasses.asdict(self))


KEYWORDS = {"beam": "num_beams", "best": "num_return_sequences"}  # options that Python calls otherwise


@dataclass(frozen=True)
class GenerationOptions(Group):
    """The options of generation, as they were given; None and empty = the usual strategy of the run or checkpoint."""

    panel = "Generation"

    beam: Annotated[int | None, typer.Option("--num-beams", "--beam", help="Beam search with so many beams.")] = None
    length_penalty: Annotated[
        float | None, typer.Option(help="Of a beam search: log-probability / length^penalty.")
    ] = None
    best: Annotated[
        int | None,
        typer.Option(
            "--num-return-sequences", "--best", help="Show so many completions: draws, or the best of a beam search."
        ),
    ] = None
    temperature: Annotated[
        float | None, typer.Option(help="Sample: logits are divided by it; below 1 surer, above 1 wilder.")
    ] = None
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most probable tokens.")] = None
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the most probable tokens that make up p (nucleus sampling).")
    ] = None
    min_p: Annotated[
        float | None, typer.Option(help="Sample from tokens at least p times as probable as the best.")
    ] = None
    repetition: Annotated[
        float | None, typer.Option(help="Repetition penalty; above 1: avoid tokens that were there already.")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Of sampling; without one each run draws its own, and tells it.")] = (
        None
    )
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", "--limit", help="The most tokens of a completion.")
    ] = None
    stop: Annotated[list[str] | None, typer.Option(help="End the completion before this text. May be repeated.")] = None
    prefix: Annotated[str, typer.Option(help="Every completion begins so.")] = ""

    def config(self, usual: AnyStrategy) -> GenerationConfig:
        """Typed; contradictions are errors."""
        from ..pipelines import GenerationConfig

        given = dataclasses.asdict(self)
        keywords = {KEYWORDS.get(name, name): value for name, value in given.items() if value not in (None, "", [])}
        return GenerationConfig(strategy=usual).given("generate", keywords)

    def seeded(self, usual: AnyStrategy, *, quiet: bool = False) -> GenerationConfig:
        """The same with a seed, if anything is drawn; one that was drawn just now is told, on the error stream."""
        config = self.config(usual)
        settled = config.seeded()
        if settled.seed != config.seed and not quiet:
            print(f"seed {settled.seed} (--seed {settled.seed} draws the same again)", file=sys.stderr, flush=True)
        return settled


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command, some parameters of which are dataclasses: it gets an option for each of their fields.

    Typer reads options from a function's signature; so this makes one, and hands on what it is given.
    """
    named = inspect.Parameter.KEYWORD_ONLY
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    groups: dict[str, Any] = {p.name: p.annotation for p in own if dataclasses.is_dataclass(p.annotation)}
    fields: dict[str, list[inspect.Parameter]] = {
        name: [
            inspect.Parameter(field.name, named, default=field.default, annotation=hint)
            for field, hint in zip(dataclasses.fields(kind), _hints(kind), strict=True)
        ]
        for name, kind in groups.items()
    }

    @wraps(command)
    def run(**given: Any) -> None:
        whole = {name: groups[name](**{p.name: given[p.name] for p in some}) for name, some in fields.items()}
        command(**{p.name: given[p.name] for p in own if p.name not in groups}, **whole)

    plain = [p.replace(kind=named) for p in own if p.name not in groups]
    options = [*plain, *(p for some in fields.values() for p in some)]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in options}
    return run


def _hints(kind: type[Any]) -> list[Any]:
    hints = get_type_hints(kind, include_extras=True)  # those of its bases, too
    panel = kind.panel if issubclass(kind, Group) else Group.panel
    return [_below(panel, hints[field.name]) for field in dataclasses.fields(kind)]


def _below(panel: str, hint: Any) -> Any:
    """An option below a heading of its own; others may share it, so it is copied."""
    option = copy(hint.__metadata__[0])
    option.rich_help_panel = panel
    return Annotated[hint.__origin__, option]


def named_files(given: Iterable[str], *, alone: str) -> dict[str, list[str]] | list[str] | None:
    """`--data` by split: NAME=PATH is that split, PATH the split `alone`; if no split is named, the paths as they are.

    Paths may be repeated: a split may have several.
    """
    found: dict[str, list[str]] = {}
    bare = list[str]()
    for item in given:
        name, equals, path = item.partition("=")
        if equals and name in {"train", "valid", "test"}:
            found.setdefault(name, []).append(path)
        else:
            bare.append(item)
    if not found:
        return bare or None
    return {**found, alone: [*found.get(alone, []), *bare]} if bare else found


def tell_engine(model: nn.Module) -> None:
    """What the engine makes of a model, for people who watch: on the error stream."""
    from .. import engine
    from ..kernels import described

    print(engine.explain(model), f"kernels: {described()}", sep="\n", file=sys.stderr, flush=True)


def print_json(data: Any, *, indent: int | None = 1) -> None:
    """JSON that every reader takes: what is not a number is null, what is not ASCII is escaped."""
    print(json.dumps(_finite(data), indent=indent, allow_nan=False), flush=True)


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
