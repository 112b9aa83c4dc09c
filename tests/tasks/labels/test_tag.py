"""Tagging: where labels are put, what is measured, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import heed
from heed.core.errors import ConfigError, InputError
from heed.data import Files
from heed.models import Encoder
from heed.parts.outputs.heads import Tagged
from heed.parts.outputs.loss import NO_LABEL
from heed.pipelines import GenerationConfig
from heed.runs import Run
from heed.tasks import Batch, Tag
from heed.tasks.labels.span_scores import word_metrics
from heed.text import Bpe, Char
from tests.pipelines.small import BERT, opened
from tests.tasks.labels.words_and_answers import trained

DATA = Path(os.environ.get("HEED_DATA") or Path(__file__).resolve().parents[4] / "shared" / "data") / "tag"


def examples(path: Path, text: str) -> Any:
    path.write_text(text, encoding="utf-8")
    return Files(train=str(path), held_out=0).split("train", Tag().columns)


TEXT = "Anna\tB-PER\nSmith\tI-PER\nunbelievably\tO\n.\tO\n\nRome\tB-LOC\n"


def test_the_first_token_of_a_word_carries_its_label(tmp_path: Path) -> None:
    given = examples(tmp_path / "a.conll", TEXT)
    task = Tag().informed(given)
    assert task.labels == ("B-LOC", "B-PER", "I-PER", "O")
    tokenizer = task.equip(Bpe(size=280).train(task.texts(example)[0] for example in given))
    first, second = task.corpus(given, tokenizer).once()
    ids, labels = first[0][:, 0], first[1]
    assert tokenizer.decode(ids.tolist()) == "Anna Smith unbelievably ."
    at = [place for place, label in enumerate(labels) if label != NO_LABEL]
    assert [int(labels[place]) for place in at] == [1, 2, 3, 3]
    spelt = [
        tokenizer.decode(ids[begin:end].tolist()).strip() for begin, end in zip(at, [*at[1:], len(ids)], strict=True)
    ]
    assert spelt == ["Anna", "Smith", "unbelievably", "."]
    batch = task.batch([first, second])
    assert batch.tokens == 5
    assert batch.labels.shape == batch.inputs.tokens.shape[:2]
    assert (batch.labels[~batch.inputs.where.real] == NO_LABEL).all()


def test_long_sentences_are_cut_and_no_word_is_lost(tmp_path: Path) -> None:
    given = examples(
        tmp_path / "a.conll", "".join(f"word{number}\tL{number % 3}\n" for number in range(30)) + "\nend\tL0\n"
    )
    task = Tag(longest=20).informed(given)
    corpus = task.corpus(given, task.equip(Char().train(["word0123456789 end"])))
    assert sum(int((labels != NO_LABEL).sum()) for _, labels in corpus.once()) == 31
    assert max(len(tokens) for tokens, _ in corpus.once()) <= 20
    assert "31 words in" in corpus.report()
    assert "1 sentence cut into pieces of 20 tokens (task.longest)" in corpus.report()


def test_a_long_text_is_tagged_to_its_end(tmp_path: Path) -> None:
    model = trained("tag", tmp_path / "run", "task.longest=12").load()
    words = ["Anna", "met", "Rome"] * 30
    tagged = model.tag(words=words)
    assert [word for word, _ in tagged] == words
    assert model.tag(words=[words, ["Anna"]])[0] == tagged


def test_the_loss_is_theirs(tmp_path: Path) -> None:
    """On the same weights, ids and labels: BertForTokenClassification's."""
    torch.manual_seed(0)
    theirs, pipeline = opened(
        transformers.BertForTokenClassification(transformers.BertConfig(**{**BERT, "num_labels": 4})), tmp_path
    )
    task = Tag(labels=("a", "b", "c", "d"), longest=24)
    items = [tuple(map(torch.Tensor.numpy, _item(length))) for length in (9, 9, 5, 2)]
    batch = task.batch(items)
    labels = batch.labels
    loss = theirs(
        input_ids=batch.inputs.tokens[..., 0],
        token_type_ids=batch.inputs.tokens[..., 1],
        attention_mask=batch.inputs.where.real.long(),
        labels=labels,
    ).loss
    task.must_fit(pipeline.model)
    with torch.no_grad():
        ours = task.loss(pipeline.model, batch).total / batch.tokens
    assert float(ours) == pytest.approx(float(loss.detach()), abs=1e-6)


def _item(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.stack([torch.randint(5, 20, (length,)), torch.zeros(length, dtype=torch.long)], -1).int()
    labels = torch.randint(0, 4, (length,)).int()
    labels[::3] = NO_LABEL
    return ids, labels


def test_words_are_measured_by_accuracy_and_entities_by_strict_f1() -> None:
    wanted = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    found = [["B-PER", "I-PER", "O", "I-LOC"], ["B-LOC", "B-LOC"]]
    scores = word_metrics(wanted, found, "iob2")
    assert scores["accuracy"] == pytest.approx(100 * 4 / 6)
    # Found: PER, LOC, LOC, of which PER and one LOC are right; I-LOC alone is no entity. Wanted: PER, LOC, LOC.
    assert scores["precision"] == pytest.approx(100 * 2 / 3)
    assert scores["recall"] == pytest.approx(100 * 2 / 3)
    assert scores["f1"] == pytest.approx(100 * 2 / 3)
    assert scores["f1 of PER"] == 100
    assert scores["f1 of LOC"] == pytest.approx(50)
    assert (scores["entities"], scores["words"], scores["sentences"]) == (3, 6, 2)
    assert "f1" not in word_metrics(wanted, found, None)
    assert word_metrics([["S-X", "B-X", "E-X"]], [["S-X", "B-X", "I-X"]], "iobes")["recall"] == 50


def test_the_scheme_is_seen_or_said(tmp_path: Path) -> None:
    given = examples(tmp_path / "a.conll", TEXT)
    assert Tag().informed(given).spells == "iob2"
    assert Tag(scheme="none").informed(given).spells is None
    assert Tag(labels=("NOUN", "VERB")).spells is None
    assert Tag(labels=("B-X", "E-X", "O", "S-X")).spells == "iobes"
    older = examples(tmp_path / "b.conll", "a\tI-PER\nb\tI-PER\nc\tB-PER\nd\tO\ne\tI-LOC\n")
    with pytest.raises(InputError, match="2 of 3 entities begin with I-, as in IOB1"):
        Tag().informed(older)
    assert Tag(scheme="none").informed(older).labels == ("B-PER", "I-LOC", "I-PER", "O")


def test_what_is_no_label_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="20 different labels of 20 words, such as 'w0': these are words"):
        Tag().informed(examples(tmp_path / "a.conll", "".join(f"a w{number}\n" for number in range(20))))
    with pytest.raises(InputError, match="all words have the label 'O'"):
        Tag().informed(examples(tmp_path / "b.conll", "a O\nb O\nc O\n"))
    with pytest.raises(ConfigError, match="names of the labels are not known yet"):
        Tag().head()
    with pytest.raises(ConfigError, match="asks a model by its head 'tagged'"):
        Tag(labels=("a", "b")).must_fit(Encoder.Config(vocabulary=9, width=8, depth=1).build())
    model = Encoder.Config(vocabulary=9, width=8, depth=1, heads=Tagged.Config(labels=2)).build()
    Tag(labels=("a", "b")).must_fit(model)


def test_labels_that_training_does_not_have_count_as_wrong_and_are_told(tmp_path: Path) -> None:
    run = trained("tag", tmp_path / "run").run
    test = tmp_path / "test.conll"
    test.write_text("Anna\tB-PER\nmet\tO\nX\tB-NEW\n.\tO\n")
    found = heed.eval(run.path, data=test, quiet=True)
    assert found["words with unknown labels"] == 1
    assert found["accuracy"] <= 75
    task, data = run.recipe.task, Files(train=str(test), held_out=0).split("train", ("words", "labels"))
    assert "1 word with labels that are not in the training data ('B-NEW')" in task.corpus(data, run.tokenizer).report()
    test.write_text("Anna\tA\nmet\tB\n.\tO\n")
    with pytest.raises(
        InputError, match=r"most words have labels that the model was not trained on: 'A' \(1\), 'B' \(1\)"
    ):
        heed.eval(run.path, data=test, quiet=True)
    with pytest.raises(InputError, match="nothing is generated to evaluate this"):
        task.evaluate(Run.open(run.path).pipeline(), data, GenerationConfig())


def test_smoothing_is_for_training_alone(tmp_path: Path) -> None:
    run = trained("tag", tmp_path / "run").run
    task, model = run.recipe.task, run.model()
    items = task.corpus(run.recipe.data.split("train", task.columns), run.tokenizer).once()
    smooth = task.model_copy(update={"smoothing": 0.3})
    batch: Batch = task.batch(items)
    with torch.no_grad():
        plain = float(task.loss(model.eval(), batch).total)
        assert float(smooth.loss(model, batch).total) == plain
        assert float(smooth.loss(model.train(), batch).total) != pytest.approx(plain)


@pytest.mark.skipif(not DATA.is_dir(), reason="the treebank is not here; HEED_DATA may name a folder that has tag/")
def test_a_real_treebank_is_aligned(tmp_path: Path) -> None:
    """Every word of 2,077 sentences has its label, whatever the tokenizer."""
    given = Files(test=str(DATA / "ud_ewt.test.tsv.gz")).split("test", Tag().columns)
    task = Tag(longest=64).informed(given)
    assert len(task.labels or ()) == 17
    for kind in (Bpe(size=500), Char()):
        tokenizer = task.equip(kind.train(task.texts(example)[0] for example in given))
        items = task.corpus(given, tokenizer).once()
        assert sum(int((labels != NO_LABEL).sum()) for _, labels in items) == 25_094
