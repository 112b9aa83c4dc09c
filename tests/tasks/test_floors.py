"""Floors: simple predictors, each against what can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from heed.runs.floors import below
from heed.tasks import Classify, Match, SpanTask, Tag
from heed.tasks.floors import (
    cosine,
    frequent_tags,
    lead,
    linear_classes,
    most_frequent,
    named_in,
    nearest,
    nearest_sentences,
    windowed_tags,
)
from heed.tasks.metrics import Metrics
from tests.tasks.test_tasks import Some

TRAIN = [
    (["the", "old", "man"], ["D", "A", "N"]),
    (["man", "the", "boats"], ["V", "D", "N"]),
    (["the", "man"], ["D", "N"]),
]


def test_the_most_frequent_class() -> None:
    assert most_frequent(np.array([1, 2, 2]), 2).tolist() == [2, 2]
    assert most_frequent(np.array([[1, 0], [1, 1], [1, 0]]), 2).tolist() == [[True, False]] * 2


def test_a_linear_model_reads_words() -> None:
    texts = ["good film", "good play", "bad film", "bad play"] * 3
    classes = np.array([1, 1, 0, 0] * 3)
    assert linear_classes(texts, classes, ["a good one", "a bad one"]).tolist() == [1, 0]
    several = np.stack([classes, np.zeros_like(classes)], 1)  # nothing has the second class
    assert linear_classes(texts, several, ["a good one", "a bad one"]).tolist() == [[1, 0], [0, 0]]


def test_the_most_frequent_tag_of_a_word() -> None:
    """man: N twice, V once; unknown words get what words seen once have: A and N, of which A came first."""
    assert frequent_tags(TRAIN, [["man", "the"], ["whale"]]) == [["N", "D"], ["A"]]


def test_a_windowed_model_reads_neighbours() -> None:
    """What follows "to" is a verb, what follows "the" is a noun, whatever the word."""
    words = ["run", "walk", "cut", "play", "jump", "drink"]
    train = [(["to", word], ["T", "V"]) for word in words] + [(["the", word], ["D", "N"]) for word in words]
    assert windowed_tags(train * 3, [["to", "drink"], ["the", "drink"]]) == [["T", "V"], ["D", "N"]]
    assert windowed_tags([(["a"], ["X"])], [["b", "c"]]) == [["X", "X"]]


def test_cosine_is_one_for_equal_texts() -> None:
    found = cosine(["a b c", "d e f"], ["a b c", "a b c"], ["a b c", "x y z"])
    assert found[0] == pytest.approx(1.0)
    assert found[1] < 0.3


def test_the_first_sentence_leads() -> None:
    assert lead(" One is here. Two! ") == "One is here."
    assert lead("一句。二句。") == "一句。"
    assert lead("") == ""


def test_the_sentence_that_shares_most_rare_words_with_a_question() -> None:
    context = "The cat sat on the mat. In Rome the old king met Bob in 1871. The end."
    (found,) = nearest_sentences(["Who met the old king?"], [context])
    assert found == "In Rome the old king met Bob in 1871."
    assert named_in(found, "Who met the king in Rome?") == "1871"  # the longest that the question does not have
    assert named_in("it rained.", "What happened?") == "it rained."
    assert nearest_sentences(["x"], ["no end"]) == ["no end"]


def test_a_partner_is_found_by_characters() -> None:
    texts = ["a red house", "the sea", "tall trees"]
    assert nearest(texts, texts, ["the seas", "trees, tall", "red houses"]).tolist() == [2, 0, 1]


def test_words_of_chinese_are_characters() -> None:
    texts, classes = ["很好的酒店", "服务好", "很差的酒店", "服务差"] * 3, np.array([1, 1, 0, 0] * 3)
    assert linear_classes(texts, classes, ["好", "差"]).tolist() == [1, 0]


def test_every_task_about_texts_has_floors_of_its_main_metric() -> None:
    words = Some(*(("\x1e".join(words), "\x1e".join(tags)) for words, tags in TRAIN))
    tag = Tag().informed(words)
    assert tag.main == "accuracy"
    assert set(tag.floors(words, words)) == {"frequent tag", "windowed"}
    assert Tag(labels=("B-X", "I-X", "O")).main == "f1"
    asked = Some(("Who sat?", "Bob sat. It rained.", '[["Bob", 0]]'))
    pairs = Some(("a b", "a b", "1"), ("c d", "x y", "0"), ("e f g", "e f", "1"))
    for task, rows in ((tag, words), (Match().informed(pairs), pairs), (Match(how="contrast"), pairs)):
        assert all(task.main in metrics for metrics in task.floors(rows, rows).values()), task.kind
    assert SpanTask().main == "f1"
    assert asked


def test_a_model_below_its_floor_is_told_so() -> None:
    floors: dict[str, Metrics] = {"majority": {"accuracy": 50.0}, "linear": {"accuracy": 80.0}}
    told = below(Classify(), {"accuracy": 79.0}, floors)
    assert told is not None
    assert "no better than its floor: accuracy 79, against 80 by linear" in told
    assert below(Classify(), {"accuracy": 80.0}, floors) is not None, "as good is no better"
    assert below(Classify(), {"accuracy": 81.0}, floors) is None
