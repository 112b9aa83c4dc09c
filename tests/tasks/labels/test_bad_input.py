"""Data that cannot be learnt from, or hardly: what a user is told; and what is read as unknown in training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from heed.cli import app
from heed.core.errors import ConfigError, HeedError
from heed.models import Bert
from heed.tasks import Classify, Match, SpanTask, Tag
from heed.tasks.labels.base import TokenDropout
from heed.text import Word
from tests.tasks.labels.words_and_answers import SMALL
from tests.tasks.pretrain.material import texts, tokenizer, within
from tests.tasks.test_tasks import Some

RUNNER = CliRunner()
QUICK = [part for setting in SMALL for part in ("--set", setting)]


def told(*arguments: str) -> str:
    """What a user reads."""
    found = RUNNER.invoke(app, list(arguments))
    return found.output + (str(found.exception) if isinstance(found.exception, HeedError) else "")


def written(path: Path, *rows: tuple[str, str]) -> str:
    path.write_text("".join(f"{one}\t{other}\n" for one, other in rows), encoding="utf-8")
    return str(path)


ROWS = [(f"a {'good' if n % 2 else 'bad'} text of {n} words", "yes" if n % 2 else "no") for n in range(40)]


def test_swapped_columns_are_told_with_the_setting_that_mends_them(tmp_path: Path) -> None:
    swapped = written(tmp_path / "swapped.tsv", *((label, text) for text, label in ROWS))
    found = told("train", "classify", "--data", swapped, "--out", str(tmp_path / "run"), *QUICK)
    assert "that is a text, not a class" in found
    assert "data.columns=[1, 0]" in found
    assert not (tmp_path / "run").exists()
    mended = ("--set", "data.columns=[1, 0]", "--quiet")
    assert "is ready" in told("train", "classify", "--data", swapped, "--out", str(tmp_path / "run"), *QUICK, *mended)


def test_labels_of_the_test_that_training_does_not_have_are_named(tmp_path: Path) -> None:
    train = written(tmp_path / "train.tsv", *ROWS)
    test = written(tmp_path / "test.tsv", ("a text", "yes"), ("another", "perhaps"), ("a third", "no"))
    out = str(tmp_path / "run")
    assert "is ready" in told("train", "classify", "--data", train, "--out", out, "--quiet", *QUICK)
    found = told("eval", out, "--data", test, "--quiet")
    assert "1 label that the model was not trained on: 'perhaps' (1); it knows no, yes" in " ".join(found.split())


def test_empty_documents_are_named_by_line_or_left_out_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "train.tsv", *ROWS[:20], ("  ", "yes"), *ROWS[20:])
    run = ("train", "classify", "--data", path, "--out", str(tmp_path / "run"), *QUICK)
    assert "train.tsv:21" in told(*run)
    found = told(*run, "--set", "data.bad_rows=skip")
    assert "1 bad row" in " ".join(found.split())
    assert "is ready" in found


def test_one_class_alone_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "one.tsv", *((text, "yes") for text, _ in ROWS))
    found = told("train", "classify", "--data", path, "--out", str(tmp_path / "run"), *QUICK)
    assert "all examples have the label 'yes'; needed are two classes" in " ".join(found.split())


def test_uneven_classes_are_told(tmp_path: Path) -> None:
    rows = Some(*((f"text {n}", "ham" if n % 20 else "spam") for n in range(100)))
    (uneven,) = Classify().informed(rows).noticed(rows)
    assert "95 % of the examples have the label 'ham'" in uneven
    assert "macro F1" in uneven
    rare = Some(*((f"text {n}", "abc"[min(2, n % 30)] if n else "d") for n in range(100)))
    assert any("'d'" in line and "fewer than 5 examples" in line for line in Classify().informed(rare).noticed(rare))
    even = Some(*((f"text {n}", "ab"[n % 2]) for n in range(100)))
    assert not Classify().informed(even).noticed(even)
    path = written(tmp_path / "train.tsv", *((f"text {n}", "ham" if n % 20 else "spam") for n in range(100)))
    found = told("train", "classify", "--data", path, "--out", str(tmp_path / "run"), *QUICK)
    assert "class imbalance" in " ".join(found.split())


@pytest.mark.parametrize("task", [Classify(labels=("a", "b")), Tag(labels=("a", "b")), SpanTask(), Match()])
def test_texts_beyond_the_places_of_a_model_are_refused_before_training(
    task: Classify | Tag | SpanTask | Match,
) -> None:
    plan = Bert(width=16, depth=1, heads=2, hidden=16, length=20)
    model = plan.sized(50).headed(task.head()).build()
    with pytest.raises(
        ConfigError, match=f"task.longest is {task.longest} tokens.* places for 20; set task.longest=20"
    ):
        task.must_fit(model)
    task.model_copy(update={"longest": 20}).must_fit(model)


def test_names_that_files_usually_have_are_known(tmp_path: Path) -> None:
    glue = tmp_path / "glue.tsv"
    glue.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    lines = tmp_path / "rows.jsonl"
    lines.write_text("\n".join(json.dumps({"review": text, "sentiment": label}) for text, label in ROWS))
    for path in (glue, lines):
        out = str(tmp_path / path.stem)
        assert "is ready" in told("train", "classify", "--data", str(path), "--out", out, "--quiet", *QUICK)


# --- word dropout ---


def test_so_many_tokens_are_read_as_unknown_and_never_the_frame() -> None:
    known = Classify().equip(tokenizer())
    task = Classify(labels=("a", "b"), longest=4000, drop=0.2)
    rows = Some(*((text, "ab"[n % 2]) for n, text in enumerate(texts())))
    corpus = task.corpus(rows, known)
    plain = {len(item[0]): item for item in corpus.once()}
    found = corpus.round(3, seed=1)
    count = hidden = 0
    for tokens, _ in found:
        before = next(item for item in corpus.once() if np.array_equal(item[0][:, 1], tokens[:, 1])
                      and ((item[0][:, 0] == tokens[:, 0]) | (tokens[:, 0] == known.unknown)).all())[0]  # fmt: skip
        changed = before[:, 0] != tokens[:, 0]
        assert not changed[[0, -1]].any()
        count, hidden = count + len(tokens) - 2, hidden + int(changed.sum())
    assert count > 100_000
    assert within(hidden / count, 0.2, count)
    again, other = corpus.round(3, seed=1), corpus.round(4, seed=1)
    assert all(np.array_equal(one[0], two[0]) for one, two in zip(found, again, strict=True))
    assert any(not np.array_equal(one[0], two[0]) for one, two in zip(found, other, strict=True))
    assert all((item[0] != known.unknown).all() for item in plain.values())  # evaluations read everything


def test_what_is_dropped_is_read_as_unknown() -> None:
    drop = TokenDropout.of(0.5, Classify().equip(Word(size=50).train(["a b c"])))
    assert drop.frame == (1, 2)
    assert drop.unknown == 3
