"""What `heed check` does: one target in this process, many in processes of their own; then the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

from .. import HeedError
from ..check.reports import exports, page, render, sarif, table
from ..check.reports.baseline import Baseline
from ..check.reports.survey import Result, Survey
from ..check.trees.find import expanded
from ..check.trees.job import Options, checked
from ..check.trees.pool import each
from ..show.progress import Reporter, Silent
from .check import Shown


def one(target: str, options: Options) -> Result:
    """One target, in this process."""
    try:
        found = _opened(target)
    except (HeedError, OSError) as error:
        return Result(target, problem=str(error))
    return checked(found, target, options)


def surveyed(words: list[str], options: Options, jobs: int, *, quiet: bool) -> Survey:
    """Every target that the words name: folders of models here, code in processes of their own."""
    begun = perf_counter()
    reporter = Silent() if quiet else Reporter()
    found = expanded(words)
    folders = [target for target in found.targets if Path(target.name).is_dir()]
    code = [target for target in found.targets if target not in folders]
    results, order = list[Result](), {target.name: place for place, target in enumerate(found.targets)}

    def coming() -> Generator[Result, None, None]:
        yield from (one(target.name, options) for target in folders)
        yield from each(code, options, jobs)

    counting = reporter.counting("checking", len(found.targets))
    with suppress(KeyboardInterrupt), counting, closing(coming()) as stream:  # what was found until then is told
        for result in stream:
            results.append(result)
            reporter.at(len(results), f"{result.target}: {result.verdict}")
    results.sort(key=lambda result: order[result.target])
    return Survey(results, perf_counter() - begun, found.notes, left=len(found.targets) - len(results))


def judged(survey: Survey, words: Sequence[str], baseline: Baseline | None, *, write: bool) -> Survey:
    """The results in the light of a baseline, which may be written first."""
    if baseline is None:
        return survey
    places = () if survey.left else words  # what was not reached may still be there
    if write:
        baseline = baseline.updated([baseline.judged(result) for result in survey.results], places)
        baseline.write()
    results = [baseline.judged(result) for result in survey.results]
    return replace(survey, results=results, stale=baseline.stale(results, places))


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


def give_one(survey: Survey, shown: Shown, as_json: bool, out: TextIO) -> int:
    """The report on a single target; the exit code."""
    (result,) = survey.results
    report = result.report
    _files(
        (shown.junit, lambda: exports.junit_of(survey) if report is None else exports.junit(report)),
        (shown.sarif, lambda: sarif.sarif(survey.results)),
        (shown.html, lambda: page.pages(survey) if report is None else page.page(report)),
    )
    if as_json:
        print(exports.as_json(result), file=out, flush=True)
    elif report is not None:
        render.show(report, probes=shown.everything)
        table.remark(survey)
    if report is None:
        if shown.verbose:
            print(result.traceback, end="", file=sys.stderr)
        print(f"heed: {result.problem}", file=sys.stderr)
    return result.code


def give(survey: Survey, shown: Shown, as_json: bool, out: TextIO) -> None:
    _files(
        (shown.junit, lambda: exports.junit_of(survey)),
        (shown.sarif, lambda: sarif.sarif(survey.results)),
        (shown.html, lambda: page.pages(survey)),
    )
    if as_json:
        print(exports.as_json(survey), file=out, flush=True)
    else:
        table.show(survey, details=shown.everything)
    if shown.verbose:
        print(*(result.traceback for result in survey.results), sep="", end="", file=sys.stderr)


def _files(*wanted: tuple[Path | None, Callable[[], str]]) -> None:
    for path, form in wanted:
        if path is not None:
            exports.write(path, form())
