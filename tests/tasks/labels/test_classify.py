"""Classification: labels, batches, the loss beside torch's and transformers', metrics, floors, and a whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import heed
from heed.core.contract import Mixer
from heed.core.errors import ConfigError, InputError
from heed.data import Example
from heed.models import Bert, Decoder, Encoder, Seq2seq, Transformer
from heed.parts.outputs.heads import Pooled
from heed.parts.outputs.loss import NO_LABEL
from heed.pipelines import GenerationConfig
from heed.runs import Run
from heed.tasks import Classify
from heed.tasks.labels.base import in_order
from heed.tasks.labels.scores import several_classes
from heed.text import Char, Tokenizer
from tests.tasks.test_tasks import Some

DOUBLE = torch.float64
COLOURS = Some(
    *((f"{'sky' if n % 3 else 'leaf'} {n}" + " very" * (n % 4), "blue" if n % 3 else "green") for n in range(30))
)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Classify().equip(Char().train(text for text, _ in COLOURS))


def built(task: Classify, tokenizer: Tokenizer) -> Mixer[Any]:
    plan = Encoder.Config(width=16, depth=1)
    return plan.sized(tokenizer.size).headed(task.head()).build().to(DOUBLE).eval()


def test_classes_are_told_by_the_data() -> None:
    assert Classify().informed(COLOURS).labels == ("blue", "green")
    assert Classify(labels=("green", "blue", "red")).informed(COLOURS).labels == ("green", "blue", "red")
    assert in_order(["10", "2", "1"]) == ("1", "2", "10")  # by size, not by the alphabet
    assert in_order(["b", "10", "a"]) == ("10", "a", "b")


def test_a_text_is_no_class() -> None:
    swapped = Some(*((label, text) for text, label in COLOURS))
    with pytest.raises(InputError, match=r"30 different labels in 30 examples.*data\.columns=\[1, 0\]"):
        Classify().informed(swapped)


def test_one_class_is_none() -> None:
    with pytest.raises(InputError, match="all examples have the label 'x'; needed are two"):
        Classify().informed(Some(("a", "x"), ("b", "x")))


def test_classes_that_are_not_known_are_named(tokenizer: Tokenizer) -> None:
    task = Classify().informed(COLOURS)
    with pytest.raises(
        InputError, match=r"3 labels that the model was not trained on: 'red' \(2\), '' \(1\); it knows blue, green"
    ):
        task.corpus(Some(("a", "red"), ("b", "red"), ("c", "blue"), ("d", " ")), tokenizer)


@pytest.mark.parametrize("several", [False, True])
def test_a_batch_loses_what_its_rows_lose_alone(tokenizer: Tokenizer, *, several: bool) -> None:
    task = Classify(several=several).informed(COLOURS)
    model = built(task, tokenizer)
    items = task.corpus(COLOURS, tokenizer).once()[:7]
    batch = task.batch(items)
    with torch.no_grad():
        together = task.loss(model, batch).total
        alone = sum(task.loss(model, task.batch([item])).total for item in items)
        silent = task.loss(model, batch.silent()).total
    assert float(together) == pytest.approx(float(alone), rel=1e-12)
    assert batch.tokens == sum(task.batch([item]).tokens for item in items) == 7 * (2 if several else 1)
    assert float(silent) == 0.0


@pytest.mark.parametrize("several", [False, True])
def test_the_loss_is_that_of_transformers(tokenizer: Tokenizer, *, several: bool) -> None:
    """The mean over texts, or over texts and classes, as its heads for classification compute it."""
    from transformers import BertConfig
    from transformers.loss.loss_utils import ForSequenceClassificationLoss

    task = Classify(several=several, pool="first").informed(COLOURS)
    plan = Bert(width=16, depth=1, heads=2, dropout=0.0)
    model = plan.sized(tokenizer.size).headed(task.head()).build().to(DOUBLE).eval()
    batch = task.batch(task.corpus(COLOURS, tokenizer).once()[:9])
    with torch.no_grad():
        ours = task.loss(model, batch).total / batch.tokens
        logits = task.logits(model, batch)
    problem = "multi_label_classification" if several else "single_label_classification"
    config = BertConfig.from_dict({"num_labels": 2, "problem_type": problem})
    labels = batch.labels.to(DOUBLE) if several else batch.labels
    theirs = ForSequenceClassificationLoss(labels, logits, config)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-6)


def test_several_classes_are_a_row_of_yes_and_no(tokenizer: Tokenizer) -> None:
    examples = Some(("a", "x, y"), ("b", ""), ("c", "y"))
    task = Classify(several=True).informed(examples)
    assert task.labels == ("x", "y")
    assert task.batch(task.corpus(examples, tokenizer).once()).labels.tolist() == [[1, 1], [0, 0], [0, 1]]


def test_pairs_stand_in_one_frame(tokenizer: Tokenizer) -> None:
    task = Classify(pair=True, longest=64).informed(Some(("sky", "leaf", "1"), ("a", "b", "0")))
    item = task.corpus(Some(("sky", "leaf", "1")), tokenizer).once()[0]
    begin, end = tokenizer.begin, tokenizer.end
    sky, leaf = tokenizer.encode("sky"), tokenizer.encode("leaf")
    assert item[0][:, 0].tolist() == [begin, *sky, end, *leaf, end]
    assert item[0][:, 1].tolist() == [0] * 5 + [1] * 5


def test_long_texts_are_cut_and_counted(tokenizer: Tokenizer) -> None:
    task = Classify(longest=6).informed(COLOURS)
    corpus = task.corpus(COLOURS, tokenizer)
    assert {len(tokens) for tokens, _ in corpus.once()} == {6}
    assert {int(tokens[-1, 0]) for tokens, _ in corpus.once()} == {tokenizer.end}  # the frame stays
    assert "30 texts, 30 cut to 6 tokens (task.longest)" in corpus.report()


@pytest.mark.parametrize(
    "plan", [Encoder.Config(width=16, depth=1), Decoder.Config(width=16, depth=1), Bert(width=16, depth=1)]
)
def test_encoders_and_decoders_can_be_asked(plan: Encoder.Config | Decoder.Config | Bert, tokenizer: Tokenizer) -> None:
    task = Classify(pool="last").informed(COLOURS)
    model = plan.sized(tokenizer.size).headed(task.head()).build().eval()
    task.must_fit(model)
    found = task.pipeline(model, tokenizer).classify(["sky", "leaf 1"])
    assert [len(one) for one in found] == [2, 2]
    assert sum(one.probability for one in found[0]) == pytest.approx(1.0)


def test_a_pooled_head_keeps_how_it_pools() -> None:
    """What was learnt with it, as in fine-tuning BERT: only its classes are others."""
    shape = Bert(width=16, depth=1).sized(10).headed(Pooled.Config(pool="mean", labels=5))
    assert isinstance(shape, Encoder.Config)
    assert shape.heads == (Pooled.Config(activation="tanh", labels=5),)
    assert shape.headed(Pooled.Config(pool="mean", labels=5)) == shape


def test_an_encoder_decoder_is_refused(tokenizer: Tokenizer) -> None:
    shape = Transformer(width=16, heads=2).sized(tokenizer.size)
    assert isinstance(shape, Seq2seq.Config)
    with pytest.raises(ConfigError, match="seq2seq cannot be given a head of kind pooled"):
        shape.headed(Pooled.Config(labels=2))


def test_metrics_are_those_of_predictions(tokenizer: Tokenizer) -> None:
    """A head that always says one class: its accuracy is that class's share, F1 of the other is zero."""
    task = Classify().informed(COLOURS)
    model = built(task, tokenizer)
    head = model.get_submodule("heads.pooled")
    nn.init.zeros_(head.get_parameter("scores.weight"))
    head.get_parameter("scores.bias").data = torch.tensor([2.0, 0.0], dtype=DOUBLE)
    found = task.evaluate(task.pipeline(model, tokenizer), COLOURS)
    share = 20 / 30
    p = 1 / (1 + np.exp(-2.0))
    assert found["accuracy"] == pytest.approx(100 * share)
    assert found["f1 of blue"] == pytest.approx(100 * 2 * share / (1 + share))
    assert found["f1 of green"] == 0
    assert found["macro_f1"] == pytest.approx(100 * share / (1 + share))
    assert found["loss"] == pytest.approx(-share * np.log(p) - (1 - share) * np.log(1 - p))
    assert found["examples"] == 30
    with pytest.raises(InputError, match="nothing is generated"):
        task.evaluate(task.pipeline(model, tokenizer), COLOURS, GenerationConfig())


def test_metrics_of_several_classes_by_hand() -> None:
    """Of three labels two are found and none is wrong: micro F1 is 4/5, those of the classes are 2/3 and 1."""
    found = several_classes(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]]), ("x", "y"))
    assert found["accuracy"] == 50
    assert found["micro_f1"] == pytest.approx(80)
    assert found["macro_f1"] == pytest.approx(250 / 3)


def test_of_several_classes_those_above_a_half_are_told(tokenizer: Tokenizer) -> None:
    examples = Some(("a", "x, y"), ("b", "x"), ("c", "x"))
    task = Classify(several=True).informed(examples)
    model = built(task, tokenizer)
    head = model.get_submodule("heads.pooled")
    nn.init.zeros_(head.get_parameter("scores.weight"))
    head.get_parameter("scores.bias").data = torch.tensor([1.0, -1.0], dtype=DOUBLE)
    assert task.evaluate(task.pipeline(model, tokenizer), examples)["accuracy"] == pytest.approx(200 / 3)


def test_floors_stand_beside() -> None:
    task = Classify().informed(COLOURS)
    found = task.floors(COLOURS, COLOURS)
    assert found["majority"]["accuracy"] == pytest.approx(100 * 20 / 30)
    assert found["linear"]["accuracy"] == 100
    several = Classify(several=True).informed(COLOURS)
    assert several.floors(COLOURS, COLOURS)["linear"]["accuracy"] == 100


def test_labels_without_gradient_are_smoothed_in_training_only(tokenizer: Tokenizer) -> None:
    plain, smooth = (Classify(smoothing=share).informed(COLOURS) for share in (0.0, 0.3))
    model = built(plain, tokenizer)
    batch = plain.batch(plain.corpus(COLOURS, tokenizer).once())
    assert batch.labels.ne(NO_LABEL).all()
    with torch.no_grad():
        used = [float(task.loss(model.eval(), batch).total) for task in (plain, smooth)]
        learnt = float(smooth.loss(model.train(), batch).total)
    assert used[0] == used[1] != pytest.approx(learnt, rel=1e-3)


def written(path: Path, rows: list[Example]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier, trained."""
    folder = tmp_path_factory.mktemp("classify")
    data = written(folder / "train.tsv", [("text", "label"), *COLOURS])
    small = {"model.width": 16, "model.depth": 1, "model.mixer.0.heads": 2, "model.feedforward.hidden": 32}
    settings = {**small, "tokenizer.size": 300, "training.evaluate": 20, "training.threads": 1, "data.test": str(data)}
    heed.train(
        "classify", data=str(data), out=folder / "run", steps=40, batch=256, lr=5e-3, settings=settings, quiet=True
    )
    return folder / "run"


def test_a_run_is_trained_evaluated_and_used(run: Path) -> None:
    found = heed.eval(run, split="test", quiet=True)
    assert found["accuracy"] > 66
    assert set(found.floors["test"]) == {"majority", "linear"}
    assert "majority" in repr(found)
    assert found.data()["test"]["floors"]["linear"]["accuracy"] > 90
    told = heed.load(run).classify("sky 7")
    assert {one.label for one in told} == {"blue", "green"}
    recipe = Run.open(run).recipe
    assert isinstance(recipe.task, Classify)
    assert recipe.task.labels == ("blue", "green")


def test_floors_are_computed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heed.eval(run, split="test", quiet=True)
    kept = json.loads((run / "floors.json").read_text())
    assert len({name.partition(": ")[0] for name in kept}) == 1
    monkeypatch.setattr(Classify, "floors", lambda *_: pytest.fail("again"))
    assert float(heed.eval(run, split="test", quiet=True).floors["test"]["linear"]["accuracy"]) > 90


def test_floors_are_of_their_examples_and_damaged_ones_are_computed_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heed.eval(run, split="test", quiet=True)
    heed.eval(run, split="valid", quiet=True)
    path = run / "floors.json"
    kept = json.loads(path.read_text())
    assert len({name.partition(": ")[0] for name in kept}) == 2, "each split has floors of its own"
    path.write_text(json.dumps({name: {"accuracy": 1.0} for name in kept}))  # its digest does not hold any more
    monkeypatch.setattr(Classify, "floors", lambda *_: {"majority": {"accuracy": 50.0}})
    assert heed.eval(run, split="test", quiet=True).floors["test"] == {"majority": {"accuracy": 50.0}}
    path.unlink()


def test_a_run_is_begun_from_with_other_classes(run: Path, tmp_path: Path) -> None:
    """Fine-tuning: the body is the base's, the head is fresh and has as many classes as the new data."""
    data = written(
        tmp_path / "more.tsv",
        [("text", "label"), *((f"{text} {n % 3}", str(n % 3)) for n, (text, _) in enumerate(COLOURS))],
    )
    settings = {"training.threads": 1, "training.evaluate": 5}
    heed.train(
        "classify", data=str(data), base=run, out=tmp_path / "run", steps=1, settings=settings, lr=1e-9, quiet=True
    )
    before, after = heed.load(run).model.state_dict(), heed.load(tmp_path / "run").model.state_dict()
    assert len(after["heads.pooled.scores.bias"]) == 3
    body = [name for name in before if not name.startswith("heads")]
    assert body
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in body)
