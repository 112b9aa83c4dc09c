"""The demo: the original Transformer, small, learns to read dates; then it is evaluated, looked into and proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from ..core.errors import ConfigError, RunError
from ..data import Dates
from ..runs import Recipe, Run
from ..runs.evaluate import evaluate
from ..runs.folder import writing
from ..runs.recipe import SHIPPED
from ..show.heatmap import write_page
from ..show.progress import Reporter
from ..tasks import Translate
from ..train import train
from ..verify import Proof
from ..verify.trained import checks
from .align import Alignment, align
from .examples import Sample, samples
from .report import Reading, Report

PICTURE = "alignment.html"
PICTURED = ("French", "Chinese", "Russian")  # languages whose example is looked into, the first in the terminal too
INTRO = """Each map shows one attention: a row is a character that the model wrote, a column one that it read.
The stronger a square, the more the model looked there when it chose the character of the row; the weights of a row \
sum to one. Rest the mouse on a square to see its number."""


def demo(out: Path, reporter: Reporter | None = None, *, changes: Sequence[str] = ()) -> Report:
    """Train in the folder `out`, which must be new, with the recipe `dates` and these changes; then show and prove."""
    progress, seconds = reporter or Reporter(), dict[str, float]()
    recipe = Recipe.read(SHIPPED / "dates.toml", changes)
    task, shown = _fitting(recipe)
    with _timed(seconds, "training"):
        outcome = train(recipe, out, progress)
    run = outcome.run
    if not outcome.finished:
        raise RunError(f"the demo was stopped while it trained; heed train --resume {run.path} goes on with that")
    with _timed(seconds, "evaluating"):
        metrics = evaluate(run, reporter=progress)
    with _timed(seconds, "looking"):
        pipeline = task.pipeline(run.model(), run.tokenizer)
        answers = pipeline.translate([sample.text for sample in shown])
        readings = [Reading(sample, answer) for sample, answer in zip(shown, answers, strict=True)]
        pictured = sorted(readings, key=_turn)[: len(PICTURED)]
        alignments = [align(pipeline, reading.sample.text) for reading in pictured]
        picture = _draw(run, pictured, alignments)
    with _timed(seconds, "proving"):
        proofs = _prove(run, progress)
    return Report(
        run=run.path,
        picture=picture,
        weights=sum(weight.numel() for weight in pipeline.model.parameters()),
        steps=outcome.progress.step,
        metrics=metrics,
        readings=tuple(readings),
        aligned=pictured[0],
        alignment=alignments[0].mean,
        proofs=tuple(proofs),
        seconds=seconds,
    )


def _fitting(recipe: Recipe) -> tuple[Translate, list[Sample]]:
    """The task and what is shown of the data, which changes may have made something else."""
    data, task = recipe.data, recipe.task
    if not isinstance(data, Dates) or not isinstance(task, Translate):
        given = f"data.kind={data.dump()['kind']} and task.kind={task.dump()['kind']}"
        raise ConfigError(f"the demo translates dates, not {given}; for anything else there is heed train")
    found = samples(data)
    if not found:
        raise ConfigError(f"data.held={data.held} leaves no example of any language to show; make it larger")
    return task, found


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    begun = perf_counter()
    yield
    seconds[name] = perf_counter() - begun


def _turn(reading: Reading) -> int:
    """When a reading is looked into; languages that are not named come last."""
    language = reading.sample.language
    return PICTURED.index(language) if language in PICTURED else len(PICTURED)


def _draw(run: Run, readings: Sequence[Reading], alignments: Sequence[Alignment]) -> Path:
    pairs = zip(readings, alignments, strict=True)
    figures = [figure for reading, alignment in pairs for figure in alignment.figures(reading.words)]
    path = run.path / PICTURE
    with writing(path):
        write_page(path, "Where a Transformer looks when it reads a date", INTRO, figures)
    return path


def _prove(run: Run, reporter: Reporter) -> list[Proof]:
    every, found = list(checks(str(run.path))), list[Proof]()
    with reporter.counting("proving", len(every)):
        for number, check in enumerate(every, 1):
            found.append(check())
            reporter.at(number, found[-1].statement)
    return found
