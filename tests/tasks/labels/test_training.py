"""Tasks that label parts of a text, trained: pieces, processes, resumed, from a base, on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import heed
from heed.cli import app
from heed.pipelines.encoder import EncoderPipeline, WordTagger
from heed.runs import Run
from heed.runs.recipe import listed
from heed.show.progress import Silent
from heed.tasks import Batch
from heed.train import resume, train
from tests.tasks.labels.words_and_answers import recipe, trained, trained_by_two
from tests.train.support import metrics

RUNNER = CliRunner()
KINDS = ("tag", "span")
LONG = {  # enough steps to learn it
    "tag": ("training.steps=150", "training.evaluate=150", "training.optimizer.lr=0.005"),
    "span": ("training.steps=250", "training.evaluate=250", "training.optimizer.lr=0.005", "tokenizer.kind=word"),
}


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", KINDS)
def test_splitting_a_batch_changes_nothing(kind: str, tmp_path: Path) -> None:
    for name, count in (("one", 1), ("cut", 3)):
        trained(kind, tmp_path / name, f"training.accumulate={count}")
    one, cut = (load_file(tmp_path / name / "state" / "00000006" / "model.safetensors") for name in ("one", "cut"))
    assert max(float((one[name] - cut[name]).abs().max()) for name in one) < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_like_one(kind: str, tmp_path: Path) -> None:
    trained_by_two(kind, tmp_path / "two")
    trained(kind, tmp_path / "one")
    for what in ("loss", "valid_loss"):
        one, two = metrics(tmp_path / "one", what), metrics(tmp_path / "two", what)
        assert [loss for _, loss in one] == pytest.approx([loss for _, loss in two], rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_on_is_the_run_without_a_stop(kind: str, tmp_path: Path) -> None:
    steady = ("model.dropout=0.2", "training.schedule.kind=constant")  # what a linear one does depends on all steps
    trained(kind, tmp_path / "whole", *steady)
    trained(kind, tmp_path / "stopped", *steady, "training.steps=3")
    resume(tmp_path / "stopped", ["training.steps=6"], Silent())
    whole, stopped = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    assert Run.open(tmp_path / "stopped").recipe.task == Run.open(tmp_path / "whole").recipe.task


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_no_loss(kind: str, tmp_path: Path) -> None:
    """A batch costs what its items cost one by one, though some are padded; nothing is asked at padding."""
    run = trained(kind, tmp_path / "run", "training.steps=1").run
    task, model = run.recipe.task, run.model().double().eval()
    items = task.corpus(run.recipe.data.split("train", task.columns), run.tokenizer).once()[:12]
    assert len({len(item[0]) for item in items}) > 1
    with torch.no_grad():
        each = [float(task.loss(model, task.batch([item])).total) for item in items]
        batch = task.batch(items)
        assert float(task.loss(model, batch).total) == pytest.approx(sum(each), rel=1e-12)
        assert batch.tokens == sum(task.batch([item]).tokens for item in items)
        wild: Any = batch.inputs.tokens.clone()
        wild[~batch.inputs.where.real] = 1
        other = Batch(type(batch.inputs)(wild, batch.inputs.where), batch.labels, tokens=batch.tokens)
        assert float(task.loss(model, other).total) == pytest.approx(sum(each), rel=1e-12)
        assert float(task.loss(model, batch.silent()).total) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_is_used(kind: str, tmp_path: Path) -> None:
    out = trained(kind, tmp_path / "run", *LONG[kind])
    found = heed.eval(out.path, quiet=True)
    assert found["f1"] > 95, found
    assert json.loads((out.path / "scores.json").read_text())["valid"]["f1"] == found["f1"]
    model = out.load()
    if kind == "tag":
        assert isinstance(model, WordTagger)
        tagged = model.tag("Bert met Rome Smith.")
        assert [(one.text, one.label) for one in tagged.entities] == [("Bert", "PER"), ("Rome Smith", "LOC")]
        told = RUNNER.invoke(app, ["run", str(out.path), "Rome met Bert"])
        assert [line.split("\t")[:2] for line in told.stdout.splitlines()] == [
            ["Rome", "B-LOC"],
            ["met", "O"],
            ["Bert", "B-PER"],
        ]
        data = json.loads(RUNNER.invoke(app, ["run", str(out.path), "Rome met Bert", "--json"]).stdout)
        assert [one["text"] for one in data["entities"]] == ["Rome", "Bert"]
        return
    assert isinstance(model, EncoderPipeline)
    context = "It was cold. Anna stayed in Rome for 3 days, and it rained."
    answer = model.answer("Where was Anna?", context)
    assert context[answer.start : answer.end] == answer.text
    (tmp_path / "text.txt").write_text(context)
    for given in (context, str(tmp_path / "text.txt")):
        told = RUNNER.invoke(app, ["run", str(out.path), "Where was Anna?", "--context", given, "--json"])
        assert json.loads(told.stdout)["answer"] == answer.text
    without = RUNNER.invoke(app, ["run", str(out.path), "Where was Anna?"])
    assert without.exit_code != 0
    assert "--context FILE_OR_TEXT" in without.output + str(without.exception)


@pytest.mark.parametrize("kind", KINDS)
def test_from_a_base_the_weights_are_kept_and_the_head_is_new(kind: str, tmp_path: Path) -> None:
    first = trained("tag", tmp_path / "first").run
    recipe_of = recipe(kind, tmp_path, f"base={first.path}", "training.steps=1", "training.optimizer.lr=1e-9")
    run = train(recipe_of, tmp_path / "second", Silent()).run
    old, new = (dict(load_file(one.path / "model.safetensors")) for one in (first, run))
    kept = [name for name in new if "heads" not in name.split(".")]
    assert kept
    assert all(torch.allclose(old[name], new[name], atol=1e-6) for name in kept)
    assert any("heads" in name.split(".") for name in new)


def test_recipes_say_what_they_are_and_every_setting_is_explained() -> None:
    for name in ("tag", "tags", "entities", "span", "squad"):
        told = RUNNER.invoke(app, ["config", name, "task"])
        assert told.exit_code == 0, told.output
        assert "longest" in told.output
        assert f"\n  {name} " in listed()
