"""From a recipe to a run: read the data, make the tokenizer, train; or take up a run that was stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..core.config import override
from ..core.errors import ConfigError
from ..data import Examples, Name
from ..runs.card import laws, write_card
from ..runs.folder import CONFIG, Run
from ..runs.recipe import Recipe
from ..show.voice import Silent, Voice, clock
from ..tasks import Corpus
from . import memory
from .checkpoint import Checkpoint, Progress, found
from .loop import Trainer
from .parallel import Group, group

SAMPLE = 50_000  # examples of an endless source that a tokenizer is made from


@dataclass(frozen=True)
class Outcome:
    """What came of a training."""

    run: Run
    progress: Progress
    finished: bool


def train(recipe: Recipe, out: Path | str, voice: Voice | None = None) -> Outcome:
    """A new run in a new folder."""
    with group(recipe.training.device) as processes:
        speaker = _speaker(processes, voice)
        if processes.leads:
            examples = _examples(recipe, "train")
            tokenizer = recipe.tokenizer.train(_texts(examples))
            Run.create(out, recipe.sized(tokenizer.size), tokenizer)
            speaker.say(f"tokenizer: {tokenizer.size:,} tokens")
        processes.wait()
        return _go(Run.open(out), processes, speaker, None)


def resume(path: Path | str, changes: Iterable[str] = (), voice: Voice | None = None) -> Outcome:
    """A run that was stopped, from its newest checkpoint, bit for bit as if it had not been.

    `changes` are overrides such as training.steps=9000; what the weights depend on cannot be changed.
    """
    run = Run.open(path)
    if changes := list(changes):
        recipe = Recipe.load(override(run.data, changes))
        for part in ("tokenizer", "task", "model"):
            if recipe.dump()[part] != run.data[part]:
                raise ConfigError(f"{part} cannot be changed in a run that goes on; start a new one")
        recipe.write(run.path / CONFIG)
        run = Run.open(path)
    with group(run.recipe.training.device) as processes:
        checkpoint = Checkpoint.load(run) if found(run) else None  # killed before its first checkpoint: from the start
        return _go(run, processes, _speaker(processes, voice), checkpoint)


def _go(run: Run, processes: Group, voice: Voice, checkpoint: Checkpoint | None) -> Outcome:
    memory.keep()
    recipe = run.recipe
    corpora: dict[Name, Corpus] = {}
    for name in ("train", "valid"):
        if name in recipe.data.splits():
            examples = _examples(recipe, name)
            corpora[name] = recipe.task.corpus(examples, run.tokenizer)
            voice.say(f"{name}: {examples.report()}; {corpora[name].report()}")
    if recipe.training.patience is not None and "valid" not in corpora:
        raise ConfigError("training.patience needs validation data; set data.valid or leave patience out")
    trainer = Trainer(run, corpora["train"], corpora.get("valid"), processes, voice)
    if checkpoint is not None:
        trainer.resume(checkpoint)
        voice.say(f"going on after step {checkpoint.progress.step} of {recipe.training.steps}")
    progress = trainer.fit()
    finished = not trainer.stopped
    if processes.leads and finished:
        write_card(run, laws(run.model()))
    _tell(run, trainer, voice)
    return Outcome(run, progress, finished)


def _tell(run: Run, trainer: Trainer, voice: Voice) -> None:
    progress = trainer.progress
    took = f"{progress.step} steps in {clock(progress.seconds)} ({trainer.watch.shares()})"
    if trainer.stopped:
        voice.say(f"stopped after {took}; nothing is lost, go on with: heed train --resume {run.path}")
        return
    best = "" if progress.best is None else f"; best validation loss {progress.best:.4f} at step {progress.best_step}"
    voice.say(f"{took}{best}")


def _examples(recipe: Recipe, name: Name) -> Examples:
    return recipe.data.split(name, recipe.task.columns)


def _texts(examples: Examples) -> Iterator[str]:
    """What a tokenizer is made from: every column of every example."""
    return (text for example in islice(examples, SAMPLE if examples.endless else None) for text in example)


def _speaker(processes: Group, voice: Voice | None) -> Voice:
    return (voice or Voice()) if processes.leads else Silent()
