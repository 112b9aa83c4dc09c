"""Questions about texts: SQuAD's json, jsonl in all its usual forms, paragraphs in a file of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heed.core.errors import InputError
from heed.data import Example, Files
from heed.data.questions import QUESTION, Wanted, answers_in

CONTEXT = "The Amazon is a river. It is long."


def read(*paths: Path, **settings: object) -> list[Example]:
    train = [str(path) for path in paths]
    return list(Files.load({"train": train, "held_out": 0, **settings}).split("train", QUESTION))


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_squad(tmp_path: Path) -> None:
    """Both versions; several annotators who say the same are one answer."""
    asked = [
        {"id": "1", "question": "What is long?", "answers": [{"text": "The Amazon", "answer_start": 0}] * 3},
        {"id": "2", "question": "Who?", "answers": [], "is_impossible": True},
        {"id": "3", "question": "Where?", "plausible_answers": [{"text": "x"}], "is_impossible": True},
    ]
    data = {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": asked}]}]}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps(data, indent=1))
    found = read(path)
    assert [row[:2] for row in found] == [("What is long?", CONTEXT), ("Who?", CONTEXT), ("Where?", CONTEXT)]
    assert [answers_in(row[2]) for row in found] == [[Wanted("The Amazon", 0)], [], []]


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([{"text": "river", "answer_start": 16}], [Wanted("river", 16)]),
        ({"text": ["river", "a river"], "answer_start": [16, 14]}, [Wanted("river", 16), Wanted("a river", 14)]),
        ({"text": [], "answer_start": []}, []),
        (["river", "a river", "river"], [Wanted("river", None), Wanted("a river", None)]),
        ("river", [Wanted("river", None)]),
        ([], []),
        (None, []),
    ],
)
def test_answers_come_in_many_forms(tmp_path: Path, answers: Any, wanted: list[Wanted]) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"question": "What?", "context": CONTEXT, "answers": answers})
    ((question, context, cell),) = read(path)
    assert (question, context, answers_in(cell)) == ("What?", CONTEXT, wanted)


def test_paragraphs_may_lie_in_another_file(tmp_path: Path) -> None:
    asked = jsonl(tmp_path / "a.questions.jsonl", {"para": "p#0", "question": "What?", "answers": ["river"]})
    told = jsonl(tmp_path / "b.paragraphs.jsonl", {"id": "p#0", "title": "t", "text": CONTEXT})
    assert [row[:2] for row in read(asked, told)] == [("What?", CONTEXT)]
    with pytest.raises(InputError, match=r"a\.questions\.jsonl:1: names the paragraph 'p#0', which no"):
        read(asked)


def test_other_names(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"q": "What?", "text": CONTEXT, "answer": "river"})
    assert read(path, columns=["q", "text", "answer"])[0][:2] == ("What?", CONTEXT)


def test_bad_rows_are_named(tmp_path: Path) -> None:
    whole = {"question": "What?", "context": CONTEXT, "answers": ["river"]}
    rows = [{**whole, "question": ""}, {"question": "What?", "context": CONTEXT}, {**whole, "answers": [3]}]
    rows += [
        {**whole, "answers": [{"text": "river", "answer_start": "x"}]},
        {**whole, "answers": {"text": ["a"], "answer_start": [1, 2]}},
    ]
    path = jsonl(tmp_path / "a.jsonl", *rows, whole)
    with pytest.raises(InputError) as error:
        read(path)
    told = ('"question" is empty', 'has no "answers"', "an answer is 3", '"answer_start" is x', "not as many")
    for line, words in enumerate(told, 1):
        assert f"{path}:{line}: {words}" in str(error.value) or words in str(error.value)
    assert len(read(path, bad_rows="skip")) == 1


def test_json_that_is_not_of_squad(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text, words in (
        ("{", "is not JSON"),
        ('{"a": 1}', 'has no list "data"'),
        ('{"data": [{}]}', 'has no list "paragraphs"'),
        ('{"data": [{"paragraphs": [{"context": "x", "qas": [{"question": 3}]}]}]}', "question 1"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read(path)
    with pytest.raises(InputError, match="is squad; needed is text, label"):
        Files(train=str(path)).split("train", ("text", "label"))
    with pytest.raises(InputError, match="is tsv; needed is question, context, answers, which squad, jsonl files hold"):
        read(jsonl(tmp_path / "a.tsv", "x"))
