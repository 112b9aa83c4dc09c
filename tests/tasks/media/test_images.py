"""Folders of pictures become classifiers: every kind of model, metrics, floors, the page, files and folders in use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import heed
from heed.cli import app
from heed.core.config import override, read_data
from heed.core.errors import ConfigError, InputError
from heed.runs import Run
from heed.runs.evaluate import evaluate
from heed.runs.page import write_page
from heed.runs.recipe import Recipe, find
from heed.show.progress import Silent
from heed.tasks import Images
from heed.tasks.media.judged import Judged
from heed.train import train
from tests.tasks.media.pictures import CLASSES, MODES, photos, recipe

RUNNER = CliRunner()
LEARNS = ("training.steps=300", "training.evaluate=50", "training.optimizer.lr=0.005", "model.dropout=0.0")
HEAD = "heads=[{kind='pooled',pool='mean',labels=2}]"
MODELS = {
    "vit": (),
    "stem": ("model.stem={channels=[8,8],strides=[1,2]}",),
    "convnet": ("model={kind='convnet',image=[16,16],channels=1,widths=[8,16],depth=1," + HEAD + "}",),
    "swin": (
        "model={kind='swin',width=8,depths=[1,1],heads_per_stage=[2,2],window=2,"
        "embeddings={image=[16,16],patch=[2,2],channels=1,marks=0,position=false}," + HEAD + "}",
    ),
    "crate": (
        "model={kind='vision',width=16,depth=2,embeddings={image=[16,16],patch=[4,4],channels=1},"
        "mixer=[{kind='mssa',heads=2,mask={kind='whole'}}],feedforward={kind='ista'},"
        "wiring={kind='unrolled',final=false}," + HEAD + "}",
    ),
}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that tells stripes apart."""
    place = tmp_path_factory.mktemp("learnt")
    train(recipe(photos(place / "photos", 40), *LEARNS, "model.width=32"), place / "run", Silent())
    return place


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model_learns_from_a_folder(kind: str, tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    outcome = train(recipe(data, *MODELS[kind]), tmp_path / "run", Silent())
    assert outcome.finished
    loaded = heed.load(tmp_path / "run")
    assert {one.label for one in loaded.classify(data / "down" / "001.png")} == set(CLASSES)
    found = evaluate(tmp_path / "run", quiet=True)["valid"]
    assert found["examples"] == 5
    assert 0 < found["loss"] < 3


def test_stripes_are_told_apart(learnt: Path) -> None:
    found = evaluate(learnt / "run", quiet=True)
    metrics, floors = found["valid"], found.floors["valid"]
    assert metrics["accuracy"] >= 90
    assert floors["majority"]["accuracy"] == 50
    assert floors.keys() == {"majority", "linear"}
    assert evaluate(learnt / "run", quiet=True).floors == found.floors  # read, not computed again
    assert "what is right (rows), what was said (columns):" in repr(found)
    assert isinstance(metrics, Judged)
    assert metrics.confusion.sum() == metrics["examples"] == 16


def test_the_loss_is_that_of_the_training(learnt: Path) -> None:
    run = Run.open(learnt / "run")
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    best = min(line["valid_loss"] for line in lines if "valid_loss" in line)
    assert evaluate(run, quiet=True)["valid"]["loss"] == pytest.approx(best, rel=1e-4)


def test_mixed_sizes_and_modes_are_pictures(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", sides=(16, 33, 9, 64), modes=MODES)
    outcome = train(recipe(data), tmp_path / "run", Silent())
    assert outcome.finished


@pytest.mark.parametrize("check", ["whole", "header"])
def test_unreadable_files_are_counted_and_named(check: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = photos(tmp_path / "photos", 20)
    whole = (data / "down" / "001.png").read_bytes()
    (data / "down" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (data / "down" / "empty.png").write_bytes(b"")
    (data / "across" / "text.jpg").write_text("this is no picture")
    Image.new("1", (9000, 9000)).save(data / "across" / "huge.png")
    given = recipe(data, f"task.check={check}", "data.held_out=0.0")
    examples = given.data.split("train", given.task.columns)
    task = given.task.informed(examples)
    corpus = task.corpus(examples, given.tokenizer.train([]))
    told = corpus.report()
    count = 4 if check == "whole" else 3
    assert f"{44 - count} images; {count} files left out, which cannot be read" in told
    assert "huge.png: 9000x9000 pixels" in told or "and 1 more" in told


def test_a_folder_in_which_most_is_unreadable_is_refused(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 4)
    for path in sorted(data.rglob("*.png"))[:6]:
        path.write_bytes(b"?")
    with pytest.raises(InputError, match="of 7 files, 5 files left out|of . files, . files left out"):
        train(recipe(data), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_one_class_and_too_many_classes_are_refused(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 6)
    for path in (data / "down").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="all images have the class 'across'; needed are two classes at least"):
        train(recipe(data), tmp_path / "run", Silent())
    table = tmp_path / "table.tsv"
    table.write_text("".join(f"photos/across/00{number}.png\tname {number}\n" for number in range(6)))
    with pytest.raises(InputError, match="different labels in .* those are no classes"):
        train(recipe(table), tmp_path / "run", Silent())


def test_what_is_uneven_is_told(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 30)
    for path in sorted((data / "down").iterdir())[:-3]:
        path.unlink()
    given = recipe(data)
    notes = given.task.noticed(given.data.split("train", given.task.columns))
    assert re.match(r"classes: across 2\d, down [123]\b", notes[0])
    assert "always saying so is right as often" in notes[1]
    assert "1 class with fewer than 5 images" in notes[2]


def test_classes_that_the_model_does_not_know_are_refused(learnt: Path, tmp_path: Path) -> None:
    (tmp_path / "more" / "circle").mkdir(parents=True)
    Image.new("L", (16, 16)).save(tmp_path / "more" / "circle" / "0.png")
    with pytest.raises(InputError, match=r"classes that the model was not trained on: 'circle' \(1\)"):
        evaluate(learnt / "run", data=tmp_path / "more", quiet=True)


def test_sizes_and_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    for changes, told in (
        (("task.prepare={size=[8,8],mean=[0.5],std=[0.5]}",), "is shown images of 1 channels and 16x16 pixels"),
        (("model={kind='transformer_decoder',width=16,depth=1,heads=2}",), "looks at no images"),
        (("task.kind=classify",), "reads text and needs a tokenizer"),
        (("task.augment=[{kind='blur'}]",), "blur"),
    ):
        with pytest.raises((ConfigError, InputError), match=told):
            train(recipe(data, *changes), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["images", "convnet", "vit", "crate-digits", "swin-small", "clip-small"])
def test_shipped_recipes_build_and_know_their_images(name: str) -> None:
    given = Recipe.load(override(read_data(find(name)), {}))
    if isinstance(given.task, Images):
        given = given.model_copy(update={"task": given.task.model_copy(update={"labels": ("a", "b", "c")})})
    model: Any = given.build(300)
    given.task.must_fit(model)
    task: Any = given.task.fitted(model, None)
    assert task.prepare.size == model.shown[1:]
    assert sum(weight.numel() for weight in model.parameters()) < 1_000_000


# --- the command line ---


def test_eval_shows_a_confusion_table_and_writes_a_page(learnt: Path, tmp_path: Path) -> None:
    data = photos(tmp_path / '<b>odd & "quoted"', 4)
    model = heed.load(learnt / "run")
    seen = next(path for path in sorted((data / "down").iterdir()) if model.classify(path)[0].label == "down")
    seen.rename(data / "across" / "<img src=x onerror=alert(1)>.png")
    page = tmp_path / "page.html"
    done = RUNNER.invoke(app, ["eval", str(learnt / "run"), "--data", str(data), "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "what is right (rows), what was said (columns):" in done.output
    text = page.read_text()
    assert 'src="data:image/png;base64,' in text
    assert "taken for" in text
    assert "<img src=x" not in text
    assert not re.findall(r"<(?:script|iframe|link)|https?://", text)
    assert "default-src 'none'" in text


def test_the_page_of_a_crate_draws_its_layers(tmp_path: Path) -> None:
    data = photos(tmp_path / "photos")
    train(recipe(data, *MODELS["crate"]), tmp_path / "run", Silent())
    run = Run.open(tmp_path / "run")
    write_page(tmp_path / "page.html", evaluate(run, quiet=True), run)
    text = (tmp_path / "page.html").read_text()
    assert "coding rate, nats" in text
    assert "channels not zero" in text


def test_a_page_needs_classes(tmp_path: Path, learnt: Path) -> None:
    run = Run.open(learnt / "run")
    found = evaluate(run, quiet=True)
    found._found = {name: dict(one) for name, one in found.items()}
    with pytest.raises(InputError, match="these metrics are of neither"):
        write_page(tmp_path / "page.html", found, run)


def test_run_takes_files_folders_and_patterns(learnt: Path) -> None:
    data, name = learnt / "photos", str(learnt / "run")
    one = RUNNER.invoke(app, ["run", name, str(data / "down" / "003.png")])
    assert one.output.split()[1] in CLASSES
    folder = RUNNER.invoke(app, ["run", name, str(data / "down")]).output.splitlines()
    assert len(folder) == 40
    assert folder[3].split("\t")[0] == str(data / "down" / "003.png")
    pattern = RUNNER.invoke(app, ["run", name, str(data / "*" / "00[12].png")]).output.splitlines()
    assert [Path(line.split("\t")[0]).parent.name for line in pattern] == ["across", "across", "down", "down"]
    told = RUNNER.invoke(app, ["run", name, "--json", str(data / "*" / "001.png")]).output.splitlines()
    assert [json.loads(line)["text"] for line in told] == [str(data / kind / "001.png") for kind in CLASSES]


def test_run_goes_on_after_a_file_that_it_cannot_read(learnt: Path, tmp_path: Path) -> None:
    data = photos(tmp_path / "photos", 2)
    (data / "down" / "000.png").write_bytes(b"?")
    done = RUNNER.invoke(app, ["run", str(learnt / "run"), str(data)])
    assert done.exit_code == 1
    assert len([line for line in done.output.splitlines() if "\t" in line]) == 3
    assert "1 of 4 files could not be read" in done.output
    (tmp_path / "none").mkdir()
    empty = RUNNER.invoke(app, ["run", str(learnt / "run"), str(tmp_path / "none")])
    assert empty.exit_code != 0


# --- what is judged ---


def test_what_is_judged_by_hand() -> None:
    probability = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.6, 0.3, 0.1], [0.01, 0.0, 0.99]])
    judged = Judged.of(["p", "q", "r", "s"], np.array([0, 0, 1, 1]), probability, ("a", "b", "c"))
    assert judged["accuracy"] == 25
    assert judged.confusion.tolist() == [[1, 1, 0], [1, 0, 1], [0, 0, 0]]
    assert [(one.cell, one.wanted, one.found) for one in judged.mistakes] == [
        ("s", "b", "c"),
        ("q", "a", "b"),
        ("r", "b", "a"),
    ]
    assert judged.table().splitlines()[1:] == ["   a  b  c", "a  1  1  ·", "b  1  ·  1", "c  ·  ·  ·"]
    many = Judged.of(
        ["p"] * 3, np.array([0, 5, 7]), np.eye(40)[[1, 1, 7]], [f"c{number}" for number in range(40)]
    )  # the third is right
    assert many.table().splitlines() == ["confused most often:", "1 × c0 taken for c1", "1 × c5 taken for c1"]
