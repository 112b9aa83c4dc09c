"""Evaluating a model: a run on the splits of its data or on other files, any other checkpoint on files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack
from warnings import warn

from ..core.config import Data, nearest, override, read_data
from ..core.errors import InputError, RunError
from ..core.foreign_names import refuse_unknown
from ..data import Example, Examples, Files, MediaFiles, Name, Source
from ..data.paths import Given
from ..pipelines import GenerationConfig, Pipeline, TextGeneration
from ..pipelines.generation import room
from ..show.progress import Reporter, Silent
from ..tasks import Metrics, Permute, Task
from ..tasks.measures import CONTEXT, measure_of
from ..tasks.media.judged import Shown
from . import load, resolve
from .card import add_metrics
from .floors import Floors, below, floors_of
from .folder import CONFIG, Run
from .info import CONTEXTS
from .recipe import MEDIA, Recipe, Settings, data_kind, data_settings, given_settings

if TYPE_CHECKING:
    import torch

Notify: TypeAlias = "Callable[[int, int], None]"
Measured: TypeAlias = "Callable[[Examples, Notify], Metrics]"


class EvalOptions(TypedDict, total=False):
    """The keywords of `heed.eval`."""

    split: str | Sequence[str] | None  # valid, test, train; None: all but train
    first: int | None  # so many examples only
    config: GenerationConfig | None  # how texts are generated, where some are
    context: int | None  # tokens of a window of a text
    stride: int | None  # tokens by which windows move on
    settings: Settings | None  # of the data: {"data.lines": True}
    device: torch.device | str | None  # how the model is loaded, as `heed.load` has it
    dtype: torch.dtype | str | None
    quantise: str | int | None
    revision: str | None
    offline: bool | None
    quiet: bool
    reporter: Reporter | None
    splits: Sequence[str]  # what `split` was called in the last release


LOADING = ("device", "dtype", "quantise", "revision", "offline")


class Evaluation(Mapping[str, Any]):
    """Metrics by split; they print as a table. Of one split alone, a metric can be asked for by its name, too."""

    def __init__(self, found: Mapping[str, Metrics], floors: Mapping[str, Floors] | None = None) -> None:
        self._found, self.floors = dict(found), dict(floors or {})  # of each split

    def data(self) -> dict[str, Any]:
        """For machines: metrics by split, with the floors of each."""
        told = {name: {"floors": dict(floors)} for name, floors in self.floors.items() if floors}
        return {name: {**metrics, **told.get(name, {})} for name, metrics in self._found.items()}

    def __getitem__(self, name: str) -> Any:
        if name in self._found:
            return self._found[name]
        splits = list(self._found.values())
        if len(splits) == 1 and name in splits[0]:
            return splits[0][name]
        known = [*self._found, *(splits[0] if len(splits) == 1 else ())]
        raise KeyError(f"{name!r} was not measured{nearest(name, known)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        """A column for each split, and below them what is said in words, such as the signature of a BLEU."""
        columns = dict[str, Metrics]()
        for split, metrics in self._found.items():
            columns |= {split: metrics, **self.floors.get(split, {})}
        every = columns.values()
        rows = dict.fromkeys(key for one in every for key, value in one.items() if not isinstance(value, str))
        table = [["", *columns], *([row, *(_cell(one.get(row, "")) for one in every)] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]).rstrip() for cells in table
        ]
        words = dict.fromkeys((key, value) for one in every for key, value in one.items() if isinstance(value, str))
        shown = ((split, one.table()) for split, one in self._found.items() if isinstance(one, Shown))
        tables = [f"\n{split}: {table}" for split, table in shown if table]
        return "\n".join([*lines, *(f"{key}: {value}" for key, value in words), *tables])


def _cell(value: float | str) -> str:
    """Counts in full, measured numbers in four digits."""
    if isinstance(value, str):
        return value
    return f"{value:,.4g}" if type(value) is float else f"{value:,}"


@dataclass(frozen=True)
class _Plan:
    """What is measured on which data."""

    data: Source
    columns: tuple[str, ...]
    measure: Measured
    keep: Callable[[str, Metrics, Reporter], None] | None = None  # write them down
    run: Run | None = None  # whose task has floors
    task: Task | None = None


def evaluate(
    model: Run | Pipeline | Path | str, data: Given | Source | None = None, **options: Unpack[EvalOptions]
) -> Evaluation:
    """How good a model is: `heed.eval("runs/x")`, `heed.eval("gpt2", data="book.txt")`.

    `model`: a run folder, a checkpoint folder, a GGUF file, an id of the hub, or what `heed.load` gave. `data`: a
    path, a folder, a pattern or a list of them, or a mapping of splits; a run has data of its own. Keywords: split,
    first (so many examples only), config (a GenerationConfig), context and stride (windows of a text, in tokens),
    settings (of the data), quiet; device, dtype, quantise, revision and offline as in `heed.load`.

    A run is measured by its task. Otherwise: language models by loss, perplexity and bits per byte, masked ones by
    pseudo-perplexity, encoder-decoders by BLEU and chrF on pairs, classifiers by accuracy. Metrics of the whole of a
    run's own data, with its own strategy, are also written on its card.
    """
    refuse_unknown("eval", options, EvalOptions.__annotations__)
    if "splits" in options:
        warn("eval: splits is called split now; the old name will go", DeprecationWarning, stacklevel=2)
        options["split"] = options["splits"]
    progress = options.get("reporter") or (Silent() if options.get("quiet") else Reporter())
    loading = {name: value for name, value in options.items() if name in LOADING and value is not None}
    given = opened(model, **loading)
    kind = data_kind(given.data) if isinstance(given, Run) else _read_as(given)
    settings = {**data_settings(data, "test", kind), **given_settings(options.get("settings"))}
    plan = _run_plan(given, settings, options, loading) if isinstance(given, Run) else _plan(given, settings, options)
    found, floors = dict[str, Metrics](), dict[str, Floors]()
    first = options.get("first")
    for name in _chosen(plan.data, _asked(options.get("split"), data)):
        examples = plan.data.split(name, plan.columns)
        some = examples if first is None else First(examples, first)
        progress.say(f"{name}: {some.report()}")
        found[name] = _counted(plan.measure, some, f"evaluating {name}", progress)
        if plan.keep is not None and first is None:
            plan.keep(name, found[name], progress)
        floors[name] = _floors(plan, some, found[name], progress)
    return Evaluation(found, floors)


def _floors(plan: _Plan, examples: Examples, metrics: Metrics, reporter: Reporter) -> Floors:
    """What is reached without attention on the same examples, and a word if the model is no better."""
    if plan.run is None or plan.task is None or "train" not in plan.data.splits():
        return {}
    train = plan.data.split("train", plan.columns)
    found = {} if train.endless else floors_of(plan.run, plan.task, train, examples, reporter)
    if (warning := below(plan.task, metrics, found)) is not None:
        reporter.say(warning)
    return found


def _read_as(pipeline: Pipeline) -> str:
    """What the files are that a checkpoint is evaluated on."""
    return MEDIA if pipeline.reads else "files"


def opened(model: Run | Pipeline | Path | str, **loading: Any) -> Run | Pipeline:
    """A run if it is one, else the pipeline of the checkpoint, loaded so."""
    if isinstance(model, Pipeline) and loading:
        raise InputError(f"{', '.join(loading)}: how a model is loaded; this one is loaded already")
    if isinstance(model, Run | Pipeline):
        return model
    hub = {name: loading.pop(name) for name in ("revision", "offline") if name in loading}
    path = resolve(model, **hub)
    if path.is_dir() and (path / CONFIG).is_file() and "task" in read_data(path / CONFIG):
        return Run.open(path)
    return load(path, **loading)


def usual_context(pipeline: Pipeline) -> int | None:
    """Tokens of a window, unless told: as many as a language model was trained on at once, up to CONTEXT.

    A model with rotary positions has places for any number of tokens; its config tells how many it is used to.
    """
    if not isinstance(pipeline, TextGeneration) or pipeline.opened is None:
        return None
    config = pipeline.opened.config
    told = next((config[name] for name in CONTEXTS if isinstance(config.get(name), int)), CONTEXT)
    return min(told, CONTEXT, room(pipeline.model))


def _run_plan(run: Run, settings: Data, options: EvalOptions, loading: Mapping[str, Any]) -> _Plan:
    """A run by its task; in windows that overlap if that is asked for."""
    recipe = Recipe.load(override(run.data, settings)) if settings else run.recipe
    task, config = recipe.task, options.get("config")
    context, stride = options.get("context"), options.get("stride")
    loading = {name: value for name, value in loading.items() if name not in ("revision", "offline")}  # it is here
    model = load(run.path, **loading).model if loading else run.model()
    pipeline = task.pipeline(model, run.tokenizer)
    if context is not None or stride is not None:
        if isinstance(task, Permute):
            raise InputError("context and stride are for texts that are read in order; leave them out")
        measure = measure_of(pipeline, context, stride)
        return _Plan(recipe.data, measure.columns, lambda some, notify: measure.evaluate(some, config, notify))

    def measured(some: Examples, notify: Notify) -> Metrics:
        return task.evaluate(pipeline, some, config, notify)

    usual = None if task.strategy is None else GenerationConfig(strategy=task.strategy)
    own = not settings and loading.keys() <= {"device"} and config in (None, usual)
    keep = (lambda *found: _remember(run, *found)) if own else None
    return _Plan(recipe.data, task.columns, measured, keep, run, task)


def _plan(pipeline: Pipeline, settings: Data, options: EvalOptions) -> _Plan:
    """Anything else by what it is."""
    measure = measure_of(pipeline, options.get("context") or usual_context(pipeline), options.get("stride"))
    config = options.get("config")
    tree = override({"data": {"kind": _read_as(pipeline)}}, settings)["data"]
    if not tree.keys() & {"train", "valid", "test"}:
        raise InputError(
            f"say what to evaluate on: --data PATH, in Python data=PATH. This is {pipeline.what}; it needs "
            f"{' and '.join(measure.columns)}: {'plain text, or ' * (measure.columns == ('text',))}tsv, csv, jsonl or "
            "parquet, as a file, a folder or a pattern"
        )
    source = MediaFiles if tree["kind"] == MEDIA else Files
    return _Plan(source.load(tree), measure.columns, lambda some, notify: measure.evaluate(some, config, notify))


def _counted(measure: Measured, examples: Examples, title: str, progress: Reporter) -> Metrics:
    """Metrics, and meanwhile how far they are."""
    with ExitStack() as counting:

        def notify(done: int, total: int) -> None:
            if not begun:
                begun.append(counting.enter_context(progress.counting(title, total)))
            progress.at(done)

        begun: list[None] = []
        return measure(examples, notify)


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


def _asked(split: str | Sequence[str] | None, data: Given | Source | None) -> list[str]:
    """The splits that were asked for: by name, else those that files were given for."""
    if split is not None:
        return [split] if isinstance(split, str) else list(split)
    given = [key.removeprefix("data.") for key in data_settings(data, "test") if key not in {"data", "data.kind"}]
    return [name for name in given if name != "train"] or given


def _chosen(data: Source, wanted: Iterable[str]) -> list[Name]:
    """The splits that were asked for; otherwise all that training did not see, or did not learn from."""
    there = data.splits()
    for name in (names := list(wanted)):
        if name not in there:
            raise InputError(f"there is no split {name!r} in this data{nearest(name, there)}")
    chosen = [name for name in there if (name in names if names else name != "train")]
    if not chosen:
        raise InputError("there is no validation or test data to evaluate on; give some with --data FILE")
    return chosen
