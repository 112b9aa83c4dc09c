"""The command that finds bugs: check."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Group, Json, spread

if TYPE_CHECKING:
    from ..check import Report

WRONG, CANNOT = 1, 2  # exit codes


class MaskTrue(StrEnum):
    """What True or 1 means in a mask."""

    attend = "attend"
    block = "block"


class Layout(StrEnum):
    """What comes first in a stream."""

    bsd = "bsd"
    sbd = "sbd"


class Grouping(StrEnum):
    """Which query heads share a key head."""

    interleave = "interleave"
    tile = "tile"


class Rotation(StrEnum):
    """Which channels turn together."""

    half = "half"
    pairs = "pairs"


@dataclass(frozen=True)
class Known(Group):
    """What the user declares; what is not declared is found out."""

    panel = "What you know of it"

    causal: Annotated[
        bool | None, typer.Option("--causal/--bidirectional", help="Whether no token attends to later ones.")
    ] = None
    mask_true: Annotated[MaskTrue | None, typer.Option(help="What True or 1 means in a mask.")] = None
    layout: Annotated[Layout | None, typer.Option(help="Rows first (bsd) or tokens first (sbd).")] = None
    scale: Annotated[
        str | None, typer.Option(help="By what attention scores are scaled.", metavar="head|none|NUMBER")
    ] = None
    window: Annotated[int | None, typer.Option(help="How many tokens a token sees, itself included.")] = None
    gqa: Annotated[Grouping | None, typer.Option(help="Which query heads share a key head.")] = None
    rope: Annotated[Rotation | None, typer.Option(help="Which channels RoPE rotates together.")] = None

    def spec(self) -> dict[str, Any]:
        """As `heed.check` takes it."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        if self.scale is not None and self.scale not in ("head", "none"):
            try:
                found["scale"] = float(self.scale)
            except ValueError:
                raise typer.BadParameter(f"--scale is head, none or a number, not {self.scale!r}") from None
        return {name: str(value) if isinstance(value, StrEnum) else value for name, value in found.items()}


@dataclass(frozen=True)
class Wanted(Group):
    """Which probes, within which limits, and where the report goes."""

    only: Annotated[list[str] | None, typer.Option(help="Run this probe only. May be repeated.")] = None
    skip: Annotated[list[str] | None, typer.Option(help="Leave this probe out. May be repeated.")] = None
    seed: Annotated[int, typer.Option(help="Of the weights and inputs.")] = 0
    timeout: Annotated[float, typer.Option(help="Seconds after which to give up.")] = 120.0
    memory: Annotated[float, typer.Option(help="GiB that the target may take.")] = 8.0
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit file for test runners.")] = None
    sarif: Annotated[Path | None, typer.Option(help="Write a SARIF file for code scanning.")] = None
    html: Annotated[Path | None, typer.Option(help="Write a page with the map of influences.")] = None


@spread
def check(
    target: Annotated[str, typer.Argument(help="path/to/file.py:Name, package.module:Name, or a checkpoint's folder.")],
    init: Annotated[str, typer.Option(help="Arguments of the constructor.", metavar="JSON")] = "{}",
    adapter: Annotated[
        str | None, typer.Option(help="A function (target, x) -> y that calls it.", metavar="FILE.py:fn")
    ] = None,
    as_json: Json = False,
    *,
    known: Known,
    wanted: Wanted,
) -> None:
    """Find the bug in an attention module: exit code 0 = nothing wrong, 1 = violations, 2 = could not run.

    The target's code is run in this process, with your rights: check what you would also import.
    """
    from ..check import check as asked
    from ..check.foreign.limits import limited
    from ..check.foreign.target import locate

    try:
        arguments = json.loads(init)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"--init is no JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise typer.BadParameter("--init wants an object, such as '{\"d_model\": 32}'")
    with limited(wanted.timeout, wanted.memory):
        report = asked(
            _opened(target),
            init=arguments,
            adapter=None if adapter is None else locate(adapter),
            only=wanted.only or (),
            skip=wanted.skip or (),
            seed=wanted.seed,
            **known.spec(),
        )
    _give(report, wanted, as_json)
    raise typer.Exit(0 if report.ok else WRONG)


def _opened(target: str) -> Any:
    """The model of a folder that heed itself reads and transformers does not: a run, or a checkpoint of authors."""
    place = Path(target)
    if not place.is_dir() or _theirs(place):
        return target
    from ..check.kinds.own import Own
    from ..runs import Run, load
    from ..tasks import Causal

    model = load(place).model
    task = Run.open(place).recipe.task if "task" in _config(place) else None
    return Own(model, _losing(task) if isinstance(task, Causal) else None)


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # opening it says so
        return {}
    return found if isinstance(found, dict) else {}


def _theirs(folder: Path) -> bool:
    """Whether transformers knows the model of a folder, and is there."""
    try:
        import transformers
    except ImportError:
        return False
    named = _config(folder).get("architectures") or []
    return bool(named) and named[0] in dir(transformers)


def _losing(task: Any) -> Any:
    """How training would compute the loss of some ids with some labels: the mean over labels that count."""

    def of(model: Any) -> Any:
        def loss(ids: Any, labels: Any) -> Any:
            batch = task.batch([(row.numpy(),) for row in ids])
            wanted = labels[:, 1:]
            batch = replace(batch, labels=wanted, tokens=int((wanted >= 0).sum()))
            return task.loss(model, batch).total / max(batch.tokens, 1)

        return loss

    return of


def _give(report: Report, wanted: Wanted, as_json: bool) -> None:
    from ..check.reports import exports, render
    from ..check.reports.page import page

    for path, form in ((wanted.junit, exports.junit), (wanted.sarif, exports.sarif), (wanted.html, page)):
        if path is not None:
            exports.write(path, form(report))
    if as_json:
        print(exports.as_json(report))
    else:
        render.show(report)
