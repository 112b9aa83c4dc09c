"""How runs of tasks, shards, adapters of peft's and corpora of their formats are used in an attack."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

READ = {  # folders of a corpus: the columns of the task that reads it
    "words": ("words", "labels"),
    "questions": ("question", "context", "answers"),
    "image": ("image", "label"),
    "sound": ("sound", "label"),
}
MANY = 20  # examples of a split that are looked at


def run_of_a_task(folder: Path, out: Path, draw: Random) -> None:
    """Load it and ask it, tell about it, evaluate it beside its floors, or go on training it."""
    import heed

    how = draw.random()
    if how < 0.35:
        pipeline: Any = heed.load(folder)
        repr(pipeline)
        _asked(pipeline, folder)
    elif how < 0.5:
        from heed.runs.info import info

        info(folder)
    elif how < 0.8:
        repr(heed.eval(folder, split="valid", quiet=True))
    else:
        from heed.show.progress import Silent
        from heed.train import resume

        resume(folder, ("training.steps=5", "training.device=cpu"), Silent())


def _asked(pipeline: Any, folder: Path) -> None:
    """What a model of labels is for."""
    if pipeline.reads == "image":
        pipeline.classify(folder / "data" / "down" / "0.png")
        return
    if "classify" in pipeline.can:
        pipeline.classify(["Anna met nobody", ""])
    if "tag" in pipeline.can:
        pipeline.tag(words=[["Anna", "met", "Rome"]])
    if "answer" in pipeline.can:
        pipeline.answer("Where was Anna?", "It was cold. Anna stayed in Rome.")


def shards(folder: Path, out: Path, draw: Random) -> None:
    """Look at a sharded training's checkpoints, or go on from the newest in one process."""
    from heed.runs import Run
    from heed.show.progress import Silent
    from heed.train import checkpoint, resume

    if draw.random() < 0.3:
        run = Run.open(folder)
        for place in checkpoint.found(run):
            checkpoint.damage(place)
        whole = checkpoint.Checkpoint.load(run)
        if whole is not None:
            repr([tensor for held in whole.tensors.values() for tensor in held.values()])
    else:
        resume(folder, ("training.steps=5", "training.device=cpu"), Silent())


def peft(folder: Path, out: Path, draw: Random) -> None:
    """The base with its adapters, perhaps merged, asked a little."""
    import torch

    import heed
    from heed.core.contract import Where
    from heed.weights.edits import merge

    pipeline: Any = heed.load(folder)
    if draw.random() < 0.5:
        merge(pipeline.model)
    with torch.no_grad():
        pipeline.model(torch.zeros(1, 3, dtype=torch.long), Where.run(1, 3))


def corpus(folder: Path, out: Path, draw: Random) -> None:
    """A split as its task reads it; what is a file is decoded, too."""
    from heed.data import Files, MediaFiles
    from heed.media.images import upright
    from heed.media.sounds import read
    from heed.tasks.media.base import place_of

    name = next((one for one in READ if (folder / one).is_dir()), "words")
    found = sorted((folder / name).glob("train*")) or [folder]
    tables = [path for path in found if path.suffix == ".tsv"]  # beside the folder that it tells of
    path = (tables or [path for path in found if "labels" not in path.name] or found)[-1]
    given: dict[str, Any] = {"train": str(path), "bad_rows": draw.choice(("stop", "skip"))}
    source = (MediaFiles if name in ("image", "sound") else Files)(**given)
    for split in ("train", "valid"):
        examples = source.split(split, READ[name])
        examples.report()
        for index in range(min(len(examples), MANY)):
            cell = examples[index][0]
            if name == "image":
                upright(place_of(cell), 3)
            elif name == "sound":
                read(cell)
