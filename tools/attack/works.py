"""Works of heed that write files, to be struck down: what must never be lost, and when two are the same."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

TINY = (
    *("tokenizer.kind=byte", "task.context=16"),
    *("model.width=16", "model.depth=1", "model.mixer.0.heads=2", "model.feedforward.hidden=24"),
    *("model.dropout=0.2", "training.batch=64", "training.steps=12", "training.evaluate=4", "training.save=2"),
    *("training.log=1", "training.schedule.warmup=2", "training.average.kind=ema", "training.device=cpu"),
)


class Work(ABC):
    """Something that writes to a folder and may be ended at any moment."""

    name: str

    def __init__(self, run: Path) -> None:
        self.run = run  # a healthy one among the materials, to work with

    def prepare(self, place: Path) -> None:
        """An empty folder, made ready."""
        return

    @abstractmethod
    def go(self, place: Path) -> None:
        """Do it, or go on with it."""

    @abstractmethod
    def lost(self, place: Path, whole: Path) -> str:
        """What is lost after an interruption, in words; `whole`: what the undisturbed work left."""

    @abstractmethod
    def differs(self, place: Path, whole: Path) -> str:
        """How the end differs from that of the undisturbed work, in words."""


class Train(Work):
    """A tiny training with a checkpoint after every other step, gone on with after every interruption."""

    name = "train"

    def go(self, place: Path) -> None:
        from heed.runs import Recipe, find
        from heed.show.progress import Silent
        from heed.train import resume, train

        run = place / "run"
        if (run / "config.json").exists():
            resume(run, (), Silent())
            return
        shutil.rmtree(run, ignore_errors=True)  # nothing was trained yet
        text = self.run.parents[1] / "data" / "txt" / "train.txt"
        train(Recipe.read(find("characters"), (*TINY, f"data.train={text}")), run, Silent())

    def lost(self, place: Path, whole: Path) -> str:
        from heed.runs import Run
        from heed.train import checkpoint

        path = place / "run"
        if not (path / "config.json").exists():
            return "checkpoints without a config.json" if (path / "state").exists() else ""
        run = Run.open(path)
        problems = [*run.damage(), *(said for found in checkpoint.found(run) for said in checkpoint.damage(found))]
        if problems:
            return problems[0]
        newest = max((int(found.name) for found in checkpoint.found(run)), default=0)
        reached, mark = newest, place / "reached"
        before = int(mark.read_text()) if mark.exists() else 0
        mark.write_text(str(max(before, reached)))
        return f"the checkpoint of step {before}; the newest is of {newest}" if newest < before else ""

    def differs(self, place: Path, whole: Path) -> str:
        ours, theirs = place / "run", whole / "run"
        last = f"state/{max(path.name for path in (theirs / 'state').iterdir())}"
        names = ["config.json", "tokenizer.json", "model.safetensors"]
        names += [f"{last}/{part}.safetensors" for part in ("model", "optimizer", "average", "rng")]
        for name in names:
            if (ours / name).read_bytes() != (theirs / name).read_bytes():
                return f"{name} has other bytes"
        if _metrics(ours) != _metrics(theirs):
            return "metrics.jsonl tells of other losses"
        left = [str(path) for path in (ours / "state").glob(".*")]
        return f"left behind: {left}" if left else ""


def _metrics(run: Path) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [tuple(line.get(key) for key in ("step", "loss", "lr", "valid_loss")) for line in lines]


class Appears(Work):
    """A folder or a file that is there whole or not at all."""

    target = "made"

    def lost(self, place: Path, whole: Path) -> str:
        made = place / self.target
        return self.differs(place, whole) if made.exists() else ""

    def differs(self, place: Path, whole: Path) -> str:
        ours, theirs = _held(place / self.target), _held(whole / self.target)
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                return f"{name} is missing or has other bytes"
        return "" if theirs else "nothing was made"

    def go(self, place: Path) -> None:
        if not (place / self.target).exists():
            self.make(place / self.target)

    @abstractmethod
    def make(self, target: Path) -> None: ...


class Convert(Appears):
    """A run to a folder in the Hugging Face layout."""

    name = "convert"

    def make(self, target: Path) -> None:
        from heed.runs.convert import convert

        convert(self.run, target)


class ConvertGguf(Appears):
    """A run to a GGUF file."""

    name, target = "convert to GGUF", "made.gguf"

    def make(self, target: Path) -> None:
        from heed.runs.convert import convert

        convert(self.run, target, kind="f32")


class Save(Appears):
    """A model that was loaded, saved."""

    name = "save"

    def make(self, target: Path) -> None:
        import heed

        heed.load(self.run).save(target)


class Evaluate(Work):
    """Metrics into a run's folder: scores.json and its card."""

    name = "eval"

    def prepare(self, place: Path) -> None:
        shutil.copytree(self.run, place / "run")

    def go(self, place: Path) -> None:
        from heed.runs.evaluate import evaluate

        evaluate(place / "run", split="valid", quiet=True)

    def lost(self, place: Path, whole: Path) -> str:
        from heed.runs import Run

        run = Run.open(place / "run")
        _ = run.evaluated
        if not (place / "run" / "README.md").read_text().strip():
            return "the card is empty"
        return next(iter(run.damage()), "")

    def differs(self, place: Path, whole: Path) -> str:
        same = (place / "run" / "scores.json").read_bytes() == (whole / "run" / "scores.json").read_bytes()
        return "" if same else "scores.json has other bytes"


class Rewrite(Work):
    """A file and its digest, replaced over and over, as an index is: the list of digests, and what it lists."""

    name = "rewrite"

    def prepare(self, place: Path) -> None:
        shutil.copytree(self.run, place / "run")

    def go(self, place: Path) -> None:
        from heed.runs import Run

        for _ in range(20):
            run = Run.open(place / "run")
            run.configure(run.recipe)

    def lost(self, place: Path, whole: Path) -> str:
        from heed.runs import Run

        run = Run.open(place / "run")
        run.recipe.dump()
        return next(iter(run.damage()), "")

    def differs(self, place: Path, whole: Path) -> str:
        same = (place / "run" / "config.json").read_bytes() == (whole / "run" / "config.json").read_bytes()
        return "" if same else "config.json has other bytes"


def _held(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {found.relative_to(path).as_posix(): found.read_bytes() for found in path.rglob("*") if found.is_file()}


WORKS: tuple[type[Work], ...] = (Train, Convert, ConvertGguf, Save, Evaluate, Rewrite)
SHARES = {"train": 6, "convert": 1, "convert to GGUF": 1, "save": 1, "eval": 2, "rewrite": 2}  # of the interruptions
