"""Images and texts learnt together: recall by hand, a small CLIP from a table, names of folders as classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import heed
from heed.core.config import override, read_data
from heed.core.errors import ConfigError, InputError
from heed.runs.recipe import Recipe, find
from heed.show.progress import Silent
from heed.tasks import Feed, ImageText
from heed.tasks.media.base import Sample
from heed.tasks.media.image_text import recalls
from heed.text import Char
from heed.train import train
from tests.tasks.media.pictures import photos
from tests.tasks.test_tasks import Some

SMALL = {
    "tokenizer": {"kind": "char"},
    "task.augment": [],
    "task.longest": 24,
    "model.image.embeddings.image": [16, 16],
    "model.image.embeddings.patch": [4, 4],
    "model.image.embeddings.channels": 1,
    "model.image.depth": 1,
    "model.text.depth": 1,
    "data.held_out": 0.2,
    "training.batch": 8,
    "training.threads": 1,
    "training.schedule.warmup": 5,
}


def clip(data: Path, **changes: object) -> Recipe:
    settings = {**SMALL, "data.train": str(data), "training.steps": 6, "training.evaluate": 6, **changes}
    return Recipe.load(override(read_data(find("clip-small")), settings))


def test_recall_by_hand() -> None:
    near = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.1], [0.1, 0.9, 0.8]])
    found = recalls(near, np.array([0, 1, 2]))
    assert found["recall@1"] == pytest.approx(100 / 3)
    assert found["recall@5"] == 100
    assert found["recall@1 of images"] == pytest.approx(200 / 3)  # of the texts 0 and 2 the nearest image is right
    sixth = recalls(-np.arange(6.0)[None].repeat(6, 0), np.arange(6))  # each image is nearest to the texts in order
    assert sixth["recall@5"] == pytest.approx(500 / 6)
    shared = recalls(near[:, :2], np.array([0, 0, 1]))  # two images have one text: either is right
    assert shared["recall@1"] == 100
    assert shared["recall@1 of images"] == 100


def test_a_long_text_is_cut_within_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ImageText(longest=5)
    tokenizer = task.equip(Char().train(["a long text"]))
    monkeypatch.setattr(ImageText, "looked", lambda self, cell: 1)
    (sample,) = task.corpus(Some(("x.png", "a long text")), tokenizer).samples
    assert len(sample.label) == 5
    assert (sample.label[0], sample.label[-1]) == (tokenizer.begin, tokenizer.end)


def test_a_batch_holds_texts_of_every_length(tmp_path: Path) -> None:
    given = clip(photos(tmp_path / "photos", 30))
    examples = given.data.split("train", given.task.columns)
    tokenizer = given.task.equip(given.tokenizer.train(["across", "down"]))
    task = given.task.fitted(given.build(tokenizer.size), None)
    batch = next(Feed(task.corpus(examples, tokenizer), task.cost, 16, seed=0))
    assert {len(item.label) for item in batch if isinstance(item, Sample)} == {len("down") + 2, len("across") + 2}


def test_names_of_folders_become_texts(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 60)
    changes = {"training.steps": 200, "training.evaluate": 100, "training.optimizer.lr": 3e-3}
    train(clip(data, **{"task.template": "it goes {}"}, **changes), tmp_path / "run", Silent())
    found = heed.eval(tmp_path / "run", quiet=True)
    assert found["valid"]["zero_shot_accuracy"] >= 80
    assert found["valid"]["texts"] == 2
    assert found.floors["valid"]["one text for all"]["zero_shot_accuracy"] == 50
    pipeline = heed.load(tmp_path / "run")
    names = ["it goes across", "it goes down"]
    for number in range(12):
        assert pipeline.classify(data / "down" / f"{number:03}.png", names)[0].label == "it goes down"


def test_a_table_of_captions(tmp_path: Path) -> None:
    photos(tmp_path / "photos", 10)
    table = tmp_path / "captions.csv"
    rows = [
        f"photos/{kind}/{number:03}.png,{kind} number {number}" for kind in ("down", "across") for number in range(10)
    ]
    table.write_text("image,caption\n" + "\n".join(rows) + "\n")
    train(clip(table), tmp_path / "run", Silent())
    found = heed.eval(tmp_path / "run", quiet=True)["valid"]
    assert found["texts"] == found["images"] == 4
    assert "zero_shot_accuracy" not in found
    assert found["recall@5"] == 100


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    cases = (
        ({"task.template": "no place"}, "stands for the text"),
        ({"task.longest": 99}, "task.longest"),
        ({"task.augment": [{"kind": "mixup"}]}, "mixup makes one image of two"),
        ({"tokenizer": {"kind": "none"}}, "needs a tokenizer"),
        ({"model": {"kind": "vit", "image": [16, 16], "patch": [4, 4]}}, "use model.kind=clip"),
    )
    for changes, told in cases:
        with pytest.raises((ConfigError, InputError), match=told):
            train(clip(data, **changes), tmp_path / "run", Silent())
