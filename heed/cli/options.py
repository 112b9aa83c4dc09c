"""Options that several commands share, and how what is given becomes typed."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import nn

    from ..decode import AnyStrategy
    from ..pipelines import GenerationConfig

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Tell what runs compiled, what as plain calls, and why.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Change a setting: a.b=value. May be repeated.")]
Data = Annotated[
    list[str] | None,
    typer.Option(help="Your files: PATH, or train=PATH, valid=PATH, test=PATH. May be repeated."),
]


@dataclass(frozen=True)
class GenerationOptions:
    """The options of generation, as they were given; None and empty = the usual strategy of the run or checkpoint."""

    beam: Annotated[int | None, typer.Option(help="Beam search with so many beams.")] = None
    length_penalty: Annotated[
        float | None, typer.Option(help="Of a beam search: log-probability / length^penalty.")
    ] = None
    best: Annotated[int | None, typer.Option(help="Show so many completions of a beam search.")] = None
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
    seed: Annotated[int | None, typer.Option(help="Of sampling.")] = None
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", "--limit", help="The most tokens of a completion.")
    ] = None
    stop: Annotated[list[str] | None, typer.Option(help="End the completion before this text. May be repeated.")] = None
    prefix: Annotated[str, typer.Option(help="Every completion begins so.")] = ""

    def config(self, usual: AnyStrategy) -> GenerationConfig:
        """Typed; contradictions are errors."""
        from ..pipelines import GenerationConfig

        rest = _given(max_new_tokens=self.max_new_tokens, stop=self.stop or None)
        return GenerationConfig.load({"strategy": self._strategy(usual.dump()), "prefix": self.prefix, **rest})

    def _strategy(self, usual: dict[str, Any]) -> dict[str, Any]:
        """The usual strategy, with the options that were given instead."""
        searching = _given(beams=self.beam, length_penalty=self.length_penalty, best=self.best)
        drawing = _given(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p)
        if searching and drawing:
            raise typer.BadParameter(f"a beam search does not sample: {_options(drawing)} cannot go with it")
        if self.temperature == 0:  # the limit of ever surer samples: always the most probable token
            kind = "greedy"
        else:
            kind = "sample" if drawing else "beam" if searching else str(usual["kind"])
        if kind == "beam" and self.repetition is not None:
            raise typer.BadParameter("a beam search takes no --repetition; add --temperature 0 for greedy decoding")
        more = {
            "beam": searching,
            "sample": {**drawing, **_given(seed=self.seed, repetition=self.repetition)},
            "greedy": _given(repetition=self.repetition),
        }
        return {**(usual if usual["kind"] == kind else {}), "kind": kind, **more[kind]}


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


def _hints(kind: type) -> list[Any]:
    hints = inspect.get_annotations(kind, eval_str=True)
    return [hints[field.name] for field in dataclasses.fields(kind)]


def named_files(given: Iterable[str], *, alone: str) -> dict[str, str]:
    """`--data` by split: NAME=PATH is that split, PATH is the split `alone`. Paths become absolute."""
    found: dict[str, str] = {}
    for item in given:
        name, equals, path = item.partition("=")
        if not equals or name not in {"train", "valid", "test"}:
            name, path = alone, item
        if name in found:
            raise typer.BadParameter(f"--data names two files for {name}: {found[name]} and {path}")
        found[name] = path if path.startswith("~") else str(Path(path).absolute())
    return found


def file_settings(files: Mapping[str, str]) -> list[str]:
    """Files by split, as settings of a recipe."""
    paths = [f"data.{name}={json.dumps(path, ensure_ascii=False)}" for name, path in files.items()]  # quoted for TOML
    return ["data.kind=files", *paths] if paths else []


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


def _options(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)
