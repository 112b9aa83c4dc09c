"""From a recipe to a run: read the data, make the tokenizer, train; or take up a run that was stopped."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ..core.config import override
from ..core.errors import ConfigError, RunError, counted
from ..data import Examples, Name
from ..runs import load
from ..runs.base import Base, begun
from ..runs.card import laws, write_card
from ..runs.digests import SUMS
from ..runs.folder import METRICS, TOLD, WEIGHTS, Run, writing
from ..runs.lock import locked
from ..runs.recipe import Recipe, Settings
from ..runs.records import history
from ..show.progress import Reporter, Silent, clock
from ..tasks import Corpus, Task
from ..tasks.base import must_learn
from ..text import NoTokenizer, Tokenizer
from . import memory
from .checkpoint import Checkpoint, Progress
from .loop import Trainer
from .metrics import must_be_there
from .parallel import Group, group
from .spread import spread

if TYPE_CHECKING:
    from ..pipelines import Pipeline

Corpora: TypeAlias = "dict[Name, Corpus]"

SAMPLE = 50_000  # examples of an endless source that a tokenizer is made from
MANY = 50  # epochs, above which data is learnt by heart
FEWER = 10  # epochs that are proposed then


@dataclass(frozen=True, repr=False)
class Outcome:
    """What came of a training: printed, it says where the run is and what to do next."""

    run: Run
    progress: Progress
    finished: bool  # False if the user stopped it
    leads: bool = True  # whether this process speaks for all

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.run.path

    def load(self, device: torch.device | str | None = None) -> Pipeline:
        """The trained model in use: it generates, translates ..."""
        return load(self.run.path, device)

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """What was measured on the way: a table of numbers for every line of metrics.jsonl."""
        return history(self.run.path / METRICS)

    @property
    def metrics(self) -> dict[str, float]:
        """What it came to: steps, seconds, the last training loss, the best validation loss and its step."""
        progress = self.progress
        losses = [line["loss"] for line in self.history if "loss" in line]
        found: dict[str, float | None] = {
            "steps": progress.step,
            "seconds": progress.seconds,
            "loss": losses[-1] if losses else None,
            "valid_loss": progress.best,
            "best_step": None if progress.best is None else progress.best_step,
        }
        return {name: value for name, value in found.items() if value is not None}

    def __repr__(self) -> str:
        name, found = shlex.quote(str(self.path)), self.metrics
        took = f"{counted(self.progress.step, 'step')} in {clock(self.progress.seconds)}"
        losses = [f"{words} {found[key]:.4f}" for key, words in LOSSES.items() if key in found]
        if not self.finished:
            return f'stopped: {name} · {took}\ngo on with  heed train --resume {name}, heed.train(resume="{self.path}")'
        return "\n".join(
            [
                " · ".join([f"{name} is ready", took, *losses]),
                f'evaluate  heed eval {name}       heed.eval("{self.path}")',
                f'use       heed run {name} "..."  heed.load("{self.path}"), .load()',
            ]
        )


LOSSES = {"loss": "training loss", "valid_loss": "best validation loss"}


def train(
    recipe: Recipe,
    out: Path | str,
    reporter: Reporter | None = None,
    *,
    numbered: bool = False,
    beside: Collection[str] = (),
) -> Outcome:
    """A new run in the folder `out`; with `numbered`, in the first of out, out-2, out-3 ... that is not there yet.

    `beside`: what may lie in the folder already.
    """
    with group(recipe.training.device) as processes, ExitStack() as held:
        path = Path(processes.agree(str(free(Path(out)) if numbered else out)))
        progress = _reporter(processes, reporter)
        corpora = _founded(recipe, path, progress, processes, held, beside) if processes.leads else None
        processes.wait()
        run = Run.open(path)
        return _go(run, corpora or _corpora(run.recipe, run.tokenizer, progress), processes, progress)


def resume(path: Path | str, changes: Settings = (), reporter: Reporter | None = None) -> Outcome:
    """A run that was stopped, from its newest checkpoint, bit for bit as if it had not been.

    `changes` are overrides such as training.steps=9000; tokenizer, task and model stay as they are.
    """
    run = Run.open(path)
    recipe = _changed(run, changes)
    with group(recipe.training.device) as processes, ExitStack() as held:
        progress = _reporter(processes, reporter)
        if processes.leads:
            left = held.enter_context(locked(run.path))
            _look_over(run, left, progress)
        corpora = _corpora(recipe, run.tokenizer, progress)
        outline = memory.afforded(run.build, recipe.training, processes, run.parts)
        fits = partial(Checkpoint.must_fit, model=outline, averaged=recipe.training.average is not None)
        checkpoint = Checkpoint.load(run, progress.say, fits) if processes.leads else None
        step = int(processes.agree("-1" if checkpoint is None else str(checkpoint.progress.step)))
        if not processes.leads and step >= 0:  # the same one, which need not be compared with its digests again
            checkpoint = Checkpoint.at(run, step)
        if processes.leads and changes:  # only now that nothing was wrong with them
            run.configure(recipe)
        processes.wait()
        return _go(Run.open(path), corpora, processes, progress, checkpoint)


def free(path: Path) -> Path:
    """This path, or the first of path-2, path-3 ... that is not there yet."""
    names = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(name for name in chain([path], names) if not name.exists())


def _look_over(run: Run, left: str | None, reporter: Reporter) -> None:
    """Whether a run that goes on is as it was left."""
    if left is not None:
        reporter.say(f"the training by {left} was killed; its lock is taken over")
    for name, damage in run.damage().items():
        removed = name == WEIGHTS and not (run.path / name).exists()  # the next evaluation writes them anew
        if name in TOLD or removed:
            reporter.say(f"{damage}. The training goes on without it")
            continue
        more = f". Or remove {WEIGHTS}: the next evaluation writes it anew" if name == WEIGHTS else ""
        raise RunError(damage + more)
    if not run.has_digests:
        reporter.say(f"{run.path} has no {SUMS}, so damage of its files may go unseen; what is written from now on has")


def _founded(
    recipe: Recipe, path: Path, reporter: Reporter, processes: Group, held: ExitStack, beside: Collection[str] = ()
) -> Corpora:
    """Read the data and make the tokenizer; only when all of it fits together there is a folder."""
    Run.must_be_new(path, beside)
    base = None if recipe.base is None else Base.open(recipe.base)
    recipe = recipe.model_copy(update={"task": recipe.task.informed(_examples(recipe, "train"))})
    if recipe.task.wordless:  # which the data may have decided
        recipe = recipe.model_copy(update={"tokenizer": NoTokenizer()})
    if base is None:
        tokenizer = _tokenizer(recipe)
    else:
        base = base.asked(recipe.task)
        if isinstance(base.written, NoTokenizer) and not recipe.task.wordless:
            base = base.reading(_tokenizer(recipe), recipe.tokenizer)
        recipe, tokenizer = base.below(recipe), base.tokenizer
    whole = recipe.sized(tokenizer.size)
    reporter.say(f"the run is written to {path}")
    if not isinstance(recipe.tokenizer, NoTokenizer):
        reporter.say(f"tokenizer: {counted(tokenizer.size, 'token')}")
    for warning in whole.task.noticed(_examples(whole, "train")):
        reporter.say(f"note: {warning}")
    outline = memory.afforded(lambda: whole.build(tokenizer.size), whole.training, processes)
    spread(whole.training, processes).must_take(outline)
    fitted = whole.task.fitted(outline, None if base is None else base.beside)
    whole = whole.model_copy(update={"task": fitted})
    must_learn(whole.task, outline)
    corpora = _corpora(whole, tokenizer, reporter)
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    held.enter_context(locked(path))
    run = Run.create(path, whole, tokenizer, beside)
    if base is not None:
        base.keep(run)
    return corpora


def _changed(run: Run, changes: Settings) -> Recipe:
    """The run's recipe with these settings, which must leave alone what the weights depend on."""
    recipe = Recipe.load(override(run.data, changes))
    for part in ("tokenizer", "task", "model", "edits", "base", "pretrain"):
        if recipe.dump().get(part) != run.recipe.dump().get(part):
            raise ConfigError(f"{part} cannot be changed in a run that goes on; start a new one")
    if recipe.training.average != run.recipe.training.average:
        raise ConfigError("training.average cannot be changed in a run that goes on: its mean is of another kind")
    return recipe


def _corpora(recipe: Recipe, tokenizer: Tokenizer, reporter: Reporter) -> Corpora:
    """What is learnt from and, if there is any, what is validated on."""
    there = recipe.data.splits()
    if recipe.training.patience is not None and "valid" not in there:
        raise ConfigError("training.patience needs validation data; set data.valid or leave patience out")
    if recipe.training.tensorboard:
        must_be_there()
    found: Corpora = {}
    for name in ("train", "valid"):
        if name == "train" or name in there:
            examples = _examples(recipe, name)
            found[name] = recipe.task.corpus(examples, tokenizer)
            reporter.say(f"{name}: {examples.report()}; {found[name].report()}")
    return found


def _go(
    run: Run, corpora: Corpora, processes: Group, reporter: Reporter, checkpoint: Checkpoint | None = None
) -> Outcome:
    """From the beginning or, with a checkpoint, from there."""
    memory.keep()
    model = run.build if checkpoint is not None else partial(begun, run)
    trainer = Trainer(run, corpora["train"], corpora.get("valid"), processes, reporter, model)
    if checkpoint is None:
        for line in _planned(trainer, corpora["train"]):
            reporter.say(line)
    else:
        trainer.resume(checkpoint)
        reporter.say(f"going on in {run.path} after step {checkpoint.progress.step} of {run.recipe.training.steps}")
    progress = trainer.fit()
    if processes.leads:
        write_card(run, () if trainer.stopped else laws(run.model()))
    _tell(run, trainer, reporter)
    return Outcome(run, progress, not trainer.stopped, processes.leads)


def _planned(trainer: Trainer, corpus: Corpus) -> Iterator[str]:
    """What is about to be done, in numbers, and a warning if the steps are out of proportion to the data."""
    settings, epoch = trainer.settings, trainer.steps_per_epoch
    every = sum(weight.numel() for weight in trainer.model.parameters())
    learning = sum(weight.numel() for weight in trainer.model.parameters() if weight.requires_grad)
    some = "" if learning == every else f", of which {learning:,} learn"
    work = f"{counted(settings.steps, 'step')} of at most {counted(settings.batch, trainer.task.costs)}"
    if corpus.endless:
        yield f"model: {counted(every, 'parameter')}{some}; {work}"
        return
    epochs = settings.steps / epoch
    yield f"model: {counted(every, 'parameter')}{some}; {work}; {counted(epoch, 'step')} an epoch, {epochs:.3g} epochs"
    if epochs > MANY and settings.patience is None:
        yield (
            f"warning: {epochs:,.0f} epochs of so little data are learnt by heart; more data, fewer steps "
            f"(training.steps={FEWER * epoch} is {FEWER} epochs), or training.patience=3, which stops when validation "
            "no longer improves"
        )
    elif epochs < 1:
        yield (
            f"warning: the steps see only {100 * epochs:.2g} % of the data; "
            f"training.steps={epoch} sees all of it once, as does a larger training.batch"
        )


def _tell(run: Run, trainer: Trainer, reporter: Reporter) -> None:
    progress, shares = trainer.progress, trainer.watch.shares()
    took = f"{counted(progress.step, 'step')} in {clock(progress.seconds)}{f' ({shares})' if shares else ''}"
    if trainer.stopped:
        reporter.say(f"stopped after {took}; nothing is lost, go on with: heed train --resume {run.path}")
        return
    best = "" if progress.best is None else f"; best validation loss {progress.best:.4f} at step {progress.best_step}"
    again = "" if shares else "; all were made before: set training.steps to a larger number to go on"
    reporter.say(f"{took}{best}{again}")


def _examples(recipe: Recipe, name: Name) -> Examples:
    return recipe.data.split(name, recipe.task.columns)


def _tokenizer(recipe: Recipe) -> Tokenizer:
    """The tokenizer that a recipe names, made from its training data."""
    return recipe.task.equip(recipe.tokenizer.train(_texts(recipe.task, _examples(recipe, "train"))))


def _texts(task: Task, examples: Examples) -> Iterator[str]:
    """What a tokenizer is made from: all that is text."""
    return (text for example in islice(examples, SAMPLE if examples.endless else None) for text in task.texts(example))


def _reporter(processes: Group, reporter: Reporter | None) -> Reporter:
    return (reporter or Reporter()) if processes.leads else Silent()
