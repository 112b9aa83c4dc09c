"""The command that finds bugs: check."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperCommand

from .options import Group, Json, Quiet, spread

if TYPE_CHECKING:
    from ..check.reports.baseline import Baseline

STOPPED = 130  # exit code: by Ctrl-C


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
    """Which probes, within which limits."""

    only: Annotated[list[str] | None, typer.Option(help="Run this probe only. May be repeated.")] = None
    skip: Annotated[list[str] | None, typer.Option(help="Leave this probe out. May be repeated.")] = None
    seed: Annotated[int, typer.Option(help="Of the weights and inputs.")] = 0
    timeout: Annotated[float, typer.Option(help="Seconds after which to give up on a target.")] = 120.0
    memory: Annotated[float, typer.Option(help="GiB that a target may take.")] = 8.0
    jobs: Annotated[int, typer.Option(help="How many targets to check at once.", min=1)] = 2


@dataclass(frozen=True)
class Judging(Group):
    """What counts as wrong."""

    panel = "What counts as wrong"

    strict: Annotated[bool, typer.Option("--strict", help="What is unusual counts as wrong.")] = False
    baseline: Annotated[
        Path | None, typer.Option(help="Accept the findings that this file names.", metavar="FILE.json")
    ] = None
    write_baseline: Annotated[
        bool,
        typer.Option(
            "--write-baseline", help="Accept what is found now: write it to the baseline (heed-baseline.json)."
        ),
    ] = False
    allow_none: Annotated[
        bool, typer.Option("--allow-none", help="That there is nothing attention-like is fine: for hooks.")
    ] = False

    def opened(self) -> Baseline | None:
        """The baseline, before anything is checked: one that is not there is told at once."""
        from ..check.reports.baseline import NAME, Baseline

        path = self.baseline or Path(NAME)
        if self.write_baseline and not path.exists():
            return Baseline(path)
        return Baseline.read(path) if self.write_baseline or self.baseline is not None else None


@dataclass(frozen=True)
class Shown(Group):
    """Where the report goes, and how much of it."""

    panel = "The report"

    everything: Annotated[bool, typer.Option("--all", help="List all probes, and what each found.")] = False
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit file for test runners.")] = None
    sarif: Annotated[Path | None, typer.Option(help="Write a SARIF file for code scanning.")] = None
    html: Annotated[Path | None, typer.Option(help="Write a page with the map of influences.")] = None
    quiet: Quiet = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback where heed itself fails.")] = (
        False
    )


class Check(TyperCommand):
    """`-:Name`, a name in what comes on standard input, is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        pasted = [word for word in args if word.startswith("-:")]
        rest = [word for word in args if word not in pasted]
        return super().parse_args(ctx, [*rest, "--", *pasted] if pasted else args)


@spread
def check(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="path/to/file.py:Name or package.module:Name; a file, folder or package: every attention in it; "
            "or a checkpoint's folder.",
        ),
    ],
    init: Annotated[str, typer.Option(help="Arguments of the constructor.", metavar="JSON")] = "{}",
    adapter: Annotated[
        str | None, typer.Option(help="A function (target, x) -> y that calls it.", metavar="FILE.py:fn")
    ] = None,
    as_json: Json = False,
    *,
    known: Known,
    wanted: Wanted,
    judging: Judging,
    shown: Shown,
) -> None:
    """Find the bug in an attention module: exit code 0 = nothing wrong, 1 = violations, 2 = could not be checked.

    The target's code is run with your rights: check what you would also import. Of one target it runs in this process,
    of several in processes of their own.
    """
    out = _reserved() if as_json else sys.stdout
    from ..check.reports.survey import Survey
    from ..check.trees.find import is_tree
    from ..check.trees.job import Options
    from .checking import give, give_one, judged, one, surveyed

    options = Options(
        _arguments(init),
        adapter,
        wanted.only or (),
        wanted.skip or (),
        wanted.seed,
        known.spec(),
        wanted.timeout,
        wanted.memory,
        judging.strict,
    )
    baseline = judging.opened()
    if len(targets) == 1 and not is_tree(targets[0]):
        survey = judged(Survey([one(targets[0], options)]), targets, baseline, write=judging.write_baseline)
        raise typer.Exit(give_one(survey, shown, as_json, out))
    if options.init or adapter is not None:
        raise typer.BadParameter("--init and --adapter are for one target: path/to/file.py:Name")
    survey = surveyed(targets, options, wanted.jobs, quiet=shown.quiet)
    survey = judged(survey, targets, baseline, write=judging.write_baseline)
    give(survey, shown, as_json, out)
    if survey.left:
        raise typer.Exit(STOPPED)
    raise typer.Exit(0 if judging.allow_none and not survey.results else survey.code)


def _reserved() -> TextIO:
    """The standard output, for JSON alone: whatever a target prints from now on, by whatever means, goes to the error
    stream."""
    out = sys.stdout
    own: TextIO
    try:
        own = os.fdopen(os.dup(out.fileno()), "w", encoding="utf-8")
        out.flush()
        os.dup2(sys.stderr.fileno(), out.fileno())
    except (OSError, ValueError):  # it is no file
        own = out
    sys.stdout = sys.stderr
    return own


def _arguments(init: str) -> dict[str, Any]:
    try:
        arguments = json.loads(init)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"--init is no JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise typer.BadParameter("--init wants an object, such as '{\"d_model\": 32}'")
    return arguments
