"""One target in a process of its own: what is asked, as plain data, and the answer, whatever happens there."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ...core.errors import HeedError
from ..foreign.contain.limits import limited
from ..foreign.target import locate
from ..reports.report import Report
from ..reports.survey import Result
from ..run import check

ISSUES = "please report it, with the target's code, as an issue of heed"


@dataclass(frozen=True)
class Options:
    """How targets are checked: as `heed.check` takes it, within limits."""

    init: Mapping[str, Any] = field(default_factory=dict)
    adapter: str | None = None  # FILE.py:fn
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    seed: int = 0
    known: Mapping[str, Any] = field(default_factory=dict)  # what is declared
    timeout: float = 120.0  # seconds
    memory: float = 8.0  # GiB
    strict: bool = False


def checked(target: Any, name: str, options: Options) -> Result:
    """How a target comes out, within its limits. What heed itself gets wrong is told as such, and clears nothing."""
    begun = perf_counter()
    try:
        with limited(options.timeout, options.memory):
            report = check(
                target,
                init=options.init,
                adapter=None if options.adapter is None else locate(options.adapter).found,
                only=options.only,
                skip=options.skip,
                seed=options.seed,
                **options.known,
            )
    except (HeedError, OSError) as error:
        return Result(name, problem=str(error), seconds=perf_counter() - begun)
    except Exception as error:  # of heed: what the target raises is a finding, or a CannotCheck
        told = traceback.format_exc()
        return Result(name, problem=trouble(error), seconds=perf_counter() - begun, traceback=told)
    return Result.of(replace(report, target=name, strict=options.strict))


def trouble(error: BaseException) -> str:
    """An exception in heed itself, in one line: what, where, and what to do."""
    frames = traceback.extract_tb(error.__traceback__)
    root = Path(__file__).parents[3]
    own = [frame for frame in frames if (root / "heed") in Path(frame.filename).parents]
    where = f" at {Path(own[-1].filename).relative_to(root).as_posix()}:{own[-1].lineno}" if own else ""
    words = " ".join(str(error).split())[:300]
    return (
        f"heed itself failed with {type(error).__name__}: {words}{where}; this says nothing about the target. "
        f"Call it by a function of your own (--adapter FILE.py:fn), and {ISSUES} (--verbose shows the traceback)"
    )


def as_line(result: Result) -> dict[str, Any]:
    """A result for the other end of a pipe."""
    return {
        "report": None if result.report is None else result.report.as_data(),
        "problem": result.problem,
        "seconds": result.seconds,
        "traceback": result.traceback,
    }


def of_line(target: str, place: tuple[str, int] | None, data: Mapping[str, Any]) -> Result:
    """What came through the pipe."""
    report = None if data["report"] is None else Report.of_data(data["report"])
    place = place if report is None or report.place is None else report.place
    return Result(target, report, data["problem"], data["seconds"], place, traceback=data["traceback"])
