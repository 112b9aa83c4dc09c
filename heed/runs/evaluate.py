"""Evaluating a run on the splits of its data, or on other files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..core.config import nearest, override
from ..core.errors import InputError, RunError
from ..data import Example, Examples, Name
from ..pipelines import GenerationConfig
from ..show.progress import Reporter
from ..tasks import Metrics
from .card import add_metrics
from .folder import Run
from .recipe import Recipe


def evaluate(
    run: Run,
    *,
    settings: Sequence[str] = (),
    splits: Iterable[str] = (),
    config: GenerationConfig | None = None,
    first: int | None = None,
    reporter: Reporter | None = None,
) -> dict[str, Metrics]:
    """Metrics by split. `settings` may name other data, `first` takes only so many examples.

    Metrics of the whole of the run's own data, with its own strategy, are also written on its card.
    """
    recipe = Recipe.load(override(run.data, settings)) if settings else run.recipe
    task, progress = recipe.task, reporter or Reporter()
    pipeline = task.pipeline(run.model(), run.tokenizer)
    found: dict[str, Metrics] = {}
    for name in _chosen(recipe, splits):
        examples = recipe.data.split(name, task.columns)
        some = examples if first is None else First(examples, first)
        progress.say(f"{name}: {some.report()}")
        with progress.counting(f"evaluating {name}", len(some)):
            found[name] = task.evaluate(pipeline, some, config, lambda done, _: progress.at(done))
        if first is None and not settings and config in (None, GenerationConfig(strategy=task.decode)):
            _remember(run, name, found[name], progress)
    return found


def _remember(run: Run, name: str, metrics: Metrics, reporter: Reporter) -> None:
    """Write them on the card. If that cannot be done, they are still worth showing."""
    try:
        add_metrics(run, name, metrics)
    except RunError as error:
        reporter.say(f"the metrics could not be written down: {error}")


class First(Examples):
    """The first examples of some."""

    def __init__(self, examples: Examples, count: int) -> None:
        self._examples, self._count = examples, min(count, len(examples))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Example:
        return self._examples[index]

    def report(self) -> str:
        return f"{self._examples.report()}, the first {self._count:,}"


def _chosen(recipe: Recipe, wanted: Iterable[str]) -> list[Name]:
    """The splits that were asked for; otherwise all that training did not see, or did not learn from."""
    there = recipe.data.splits()
    for name in (names := list(wanted)):
        if name not in there:
            raise InputError(f"there is no split {name!r} in this data{nearest(name, there)}")
    chosen = [name for name in there if (name in names if names else name != "train")]
    if not chosen:
        raise InputError("there is no validation or test data to evaluate on; give some with --data FILE")
    return chosen
