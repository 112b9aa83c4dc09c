"""Loading files: how many processes do it, where a training stops and how it is cut changes nothing that is learnt."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from heed.core.errors import InputError
from heed.media.augment.base import Mixup
from heed.show.progress import Silent
from heed.tasks import Batch, Feed, Images
from heed.tasks.base import Item
from heed.tasks.loader import Loader
from heed.tasks.media.base import MediaCorpus, Sample
from heed.train import resume, train
from tests.children import environment
from tests.tasks.media.pictures import AUGMENTED, photos, recipe
from tests.train.support import metrics

LAST = Path("state", "00000006", "model.safetensors")


def fitted(data: Path, *changes: str) -> tuple[Images, MediaCorpus]:
    """The task as a training has it, and its corpus."""
    given = recipe(data, *changes)
    examples = given.data.split("train", given.task.columns)
    task = given.task.informed(examples)
    model = given.model_copy(update={"task": task}).build(4)
    told = task.fitted(model, None)
    assert isinstance(told, Images)
    return told, told.corpus(examples, given.tokenizer.train([]))


def batches(task: Images, corpus: MediaCorpus, count: int, workers: int = 0) -> list[Batch]:
    feed, loader, found = Feed(corpus, task.cost, 8, seed=5), Loader(task, workers), list[Batch]()
    for number, (turn, items) in enumerate(loader.over(enumerate(feed))):
        assert turn == number
        found.append(task.batch(items))
        if len(found) == count:
            break
    loader.close()
    return found


def equal(one: Batch, other: Batch) -> bool:
    assert one.shares is not None
    assert other.shares is not None
    pairs = ((one.inputs.tokens, other.inputs.tokens), (one.labels, other.labels), (one.shares, other.shares))
    return all(torch.equal(a, b) for a, b in pairs)


def test_workers_load_the_same_batches(tmp_path: Path) -> None:
    task, corpus = fitted(photos(tmp_path / "photos", sides=(16, 20, 31), modes=("L", "RGB")), *AUGMENTED)
    here, there = batches(task, corpus, 5), batches(task, corpus, 5, workers=2)
    assert all(map(equal, here, there))
    assert not equal(here[0], here[3])


def test_orders_differ_and_what_is_mixed_in_draws_for_itself() -> None:
    corpus = MediaCorpus([Sample(str(number), (0,)) for number in range(30)], "image", pairing=Mixup(alpha=1.0))
    first, again, second = (
        [item for item in corpus.round(number, 0) if isinstance(item, Sample)] for number in (1, 1, 2)
    )
    assert first == again
    assert [item.cell for item in first] != [item.cell for item in second]
    assert {item.cell for item in first} == {item.cell for item in second}
    mixed = [item for item in first if item.other is not None]
    assert len(mixed) > 20
    for item in first:
        assert item.draw is not None
        assert str(item.draw.place) == item.cell
    for item in mixed:
        assert item.other is not None
        assert item.other.draw is not None
        assert str(item.other.draw.place) == item.other.cell


def test_what_is_drawn_depends_on_seed_round_and_number_alone(tmp_path: Path) -> None:
    task, corpus = fitted(photos(tmp_path / "photos"), *AUGMENTED)

    def numbers(items: list[Item]) -> dict[str, Any]:
        return {item.cell: task.fetch(item)[0] for item in items if isinstance(item, Sample)}

    first, again, other = (numbers(corpus.round(*place)) for place in ((1, 7), (1, 7), (2, 7)))
    assert all(np.array_equal(first[cell], again[cell]) for cell in first)
    assert sum(np.array_equal(first[cell], other[cell]) for cell in first) == 0
    bare = numbers(corpus.once())
    assert all(np.array_equal(bare[cell], numbers(corpus.once())[cell]) for cell in bare)


def trained(data: Path, out: Path, *changes: str) -> Path:
    train(recipe(data, *AUGMENTED, *changes), out, Silent())
    return out


def test_a_run_that_goes_on_is_the_run_without_a_stop(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    whole = trained(data, tmp_path / "whole")
    stopped = trained(data, tmp_path / "stopped", "training.steps=3")
    resume(stopped, ["training.steps=6", "training.workers=1"], Silent())
    one, other = load_file(whole / LAST), load_file(stopped / LAST)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_splitting_a_batch_changes_nothing_but_rounding(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    changes = ("model.dropout=0.0", "training.steps=3")
    one, cut = (
        trained(data, tmp_path / name, *changes, f"training.accumulate={pieces}")
        for name, pieces in (("one", 1), ("cut", 3))
    )
    losses = [[loss for _, loss in metrics(run, "loss")] for run in (one, cut)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_two_processes_train_like_one(tmp_path: Path) -> None:
    data, changes = photos(tmp_path / "photos"), ("model.dropout=0.0", "training.steps=3")
    script = tmp_path / "two.py"
    given = recipe(data, *AUGMENTED, *changes).dump()
    script.write_text(
        "from heed.runs.recipe import Recipe\nfrom heed.train import train\nfrom heed.show.progress import Silent\n"
        f"train(Recipe.load({given!r}), {str(tmp_path / 'two')!r}, Silent())\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(launch, env=environment(OMP_NUM_THREADS="1"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    trained(data, tmp_path / "one", *changes)
    for what in ("loss", "valid_loss"):
        one, two = metrics(tmp_path / "one", what), metrics(tmp_path / "two", what)
        assert one
        assert [loss for _, loss in one] == pytest.approx([loss for _, loss in two], rel=1e-4)


def test_a_broken_worker_says_what_to_do(tmp_path: Path) -> None:
    task, corpus = fitted(photos(tmp_path / "photos"))
    items = corpus.once()
    broken = Path(corpus.samples[3].cell)
    broken.write_bytes(b"no image any more")
    for workers in (0, 1):
        loader = Loader(task, workers)
        with pytest.raises(InputError, match=f"{broken.name} is no image that heed opens"):
            list(loader.over([(0, items)]))
        loader.close()
