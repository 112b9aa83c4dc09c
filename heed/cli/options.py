"""Options that several commands share, and how what is given becomes typed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..tasks import Ask, Task

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Change a setting: a.b=value. May be repeated.")]
Data = Annotated[
    list[str] | None,
    typer.Option(help="Your files: PATH, or train=PATH, valid=PATH, test=PATH. May be repeated."),
]


@dataclass(frozen=True)
class Wish:
    """How answers are to be written, as it was asked for; None and empty = as the task says."""

    beam: Annotated[int | None, typer.Option(help="Search with so many beams.")] = None
    length_penalty: Annotated[float | None, typer.Option(help="Of a beam search: log p / length^penalty.")] = None
    best: Annotated[int | None, typer.Option(help="Show so many answers of a beam search.")] = None
    temperature: Annotated[float | None, typer.Option(help="Draw at random; below 1 bolder, above 1 wilder.")] = None
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens that make up p.")] = None
    min_p: Annotated[float | None, typer.Option(help="Draw from tokens at least p times as likely as the best.")] = None
    repetition: Annotated[float | None, typer.Option(help="Above 1: avoid tokens that were there already.")] = None
    seed: Annotated[int | None, typer.Option(help="Of random draws.")] = None
    limit: Annotated[int | None, typer.Option(help="Longest answer, in tokens.")] = None
    stop: Annotated[list[str] | None, typer.Option(help="End the answer before this text. May be repeated.")] = None
    prefix: Annotated[str, typer.Option(help="Every answer begins so.")] = ""

    def ask(self, task: Task) -> Ask:
        """Typed; contradictions are errors."""
        from ..tasks import Ask

        searching = _given(beams=self.beam, length_penalty=self.length_penalty, best=self.best)
        drawing = _given(top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, seed=self.seed)
        drawing |= _given(temperature=self.temperature or None)  # 0 is the limit: always the likeliest token
        if searching and (drawing or self.repetition is not None):
            raise typer.BadParameter("a beam search draws nothing at random: give --beam or --temperature, not both")
        how = task.decode.dump()
        if searching:
            how = {**(how if how["kind"] == "beam" else {}), "kind": "beam", **searching}
        elif drawing or self.repetition is not None or self.temperature == 0:
            kept = how if how["kind"] == "sample" and self.temperature != 0 else {}
            kind = "sample" if drawing or kept else "greedy"
            how = {**kept, "kind": kind, **drawing, **_given(repetition=self.repetition)}
        rest = _given(limit=self.limit, stop=self.stop or None)
        return Ask.load({"how": how, "prefix": self.prefix, **rest})


def wishing(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the parameter `wish: Wish`, which gets an option for each of its fields."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.annotation is not Wish]
    hints = inspect.get_annotations(Wish, eval_str=True)
    fields = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(Wish, name, None), annotation=hint)
        for name, hint in hints.items()
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        command(**{p.name: given[p.name] for p in own}, wish=Wish(**{name: given[name] for name in hints}))

    positional = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    run.__signature__ = inspect.Signature([*positional, *fields])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in [*own, *fields]}
    return run


def file_settings(given: Iterable[str], *, alone: str) -> list[str]:
    """`--data` as settings: PATH is the split `alone`, NAME=PATH is that split."""
    found: dict[str, str] = {}
    for item in given:
        name, equals, path = item.partition("=")
        if not equals or name not in {"train", "valid", "test"}:
            name, path = alone, item
        if name in found:
            raise typer.BadParameter(f"--data names two files for {name}: {found[name]} and {path}")
        found[name] = path
    paths = [f"data.{name}={json.dumps(path)}" for name, path in found.items()]  # quoted, whatever a path holds
    return ["data.kind=files", *paths] if paths else []


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
