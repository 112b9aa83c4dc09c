"""Questions answered by a part of a text: labels of windows, EM and F1, what is told and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from heed.core.errors import InputError
from heed.data import Files
from heed.tasks import SpanTask
from heed.tasks.labels.span_scores import answer_metrics, exact, f1, plain
from heed.text import Byte, Char, Word
from tests.pipelines.small import BERT, opened

CONTEXT = "It was cold in May. Anna stayed in Rome for 12 days. Then it rained in Rome again, and she left."


def examples(path: Path, *rows: dict[str, Any]) -> Any:
    path.write_text("\n".join(json.dumps({"question": "Where was she?", "context": CONTEXT} | row) for row in rows))
    return Files(train=str(path), held_out=0).split("train", SpanTask().columns)


def corpus(task: SpanTask, given: Any, kind: Any = None) -> tuple[Any, Any]:
    tokenizer = task.equip((kind or Char()).train([CONTEXT, "Where was she?"]))
    return task.corpus(given, tokenizer), tokenizer


@pytest.mark.parametrize("kind", [Char(), Byte(), Word()])
def test_the_answer_is_where_its_characters_are(tmp_path: Path, kind: Any) -> None:
    """In every window that holds it, and at the first token in those that do not."""
    second = CONTEXT.rindex("Rome")
    given = examples(tmp_path / "a.jsonl", {"answers": [{"text": "Rome", "answer_start": second}]})
    size = len(kind.train([CONTEXT]).encode("Where was she?"))
    found, tokenizer = corpus(SpanTask(longest=size + 30, stride=10, question=100), given, kind)
    held = 0
    for tokens, (begin, end) in found.once():
        ids = tokens[:, 0].tolist()
        if (begin, end) == (0, 0):
            continue
        held += 1
        assert tokenizer.decode(ids[begin : end + 1]) == "Rome"
        assert tokens[begin, 1] == 1
        assert "again" in tokenizer.decode(ids) or "rained" in tokenizer.decode(ids)  # the second of the two
    assert held >= 1
    if not isinstance(kind, Word):
        assert len(found.once()) > 2
        assert held < len(found.once())


def test_what_does_not_fit_is_counted_and_told(tmp_path: Path) -> None:
    given = examples(
        tmp_path / "a.jsonl",
        {"answers": [{"text": "Rome", "answer_start": CONTEXT.index("Rome") + 2}]},
        {"answers": ["Berlin"]},
        {"answers": []},
        {"answers": ["ome"]},
        {"answers": ["Berlin", "12 days"]},
        {"answers": ["cold"], "question": "was she " * 20},
    )
    found, tokenizer = corpus(SpanTask(longest=60, stride=5, question=8), given, Word())
    assert "6 questions in 5 windows" in found.report()
    for told in (
        "1 × answer that stands elsewhere than is said",
        "1 × answer that is not in its context, left out",
        "1 × question without an answer",
        "1 × answer that begins or ends within a token",
        "1 × long question cut to task.question tokens",
    ):
        assert told in found.report(), told
    texts = [tokenizer.decode(tokens[begin : end + 1, 0].tolist()) for tokens, (begin, end) in found.once() if end]
    assert texts == ["Rome", "Rome", "12 days", "cold"]
    assert [tuple(label) for _, label in found.once()][1] == (0, 0)
    whole, _ = corpus(
        SpanTask(longest=10, stride=1, question=2),
        examples(tmp_path / "b.jsonl", {"answers": ["Anna stayed in Rome for 12 days"]}),
        Word(),
    )
    assert "1 × answer that no window holds as a whole" in whole.report()
    with pytest.raises(InputError, match="nothing is left to learn from"):
        corpus(SpanTask(longest=60, stride=5), examples(tmp_path / "c.jsonl", {"answers": ["Berlin"]}))


def test_whether_there_may_be_no_answer_is_learnt_from_the_data(tmp_path: Path) -> None:
    some = examples(tmp_path / "a.jsonl", {"answers": ["Rome"]}, {"answers": []})
    every = examples(tmp_path / "b.jsonl", {"answers": ["Rome"]})
    assert SpanTask().informed(some).reading.no_answer
    assert not SpanTask().informed(every).reading.no_answer
    assert not SpanTask(no_answer=False).informed(some).reading.no_answer


def test_the_loss_is_theirs(tmp_path: Path) -> None:
    """On the same weights, ids and places: BertForQuestionAnswering's."""
    torch.manual_seed(0)
    theirs, pipeline = opened(transformers.BertForQuestionAnswering(transformers.BertConfig(**BERT)), tmp_path)
    task = SpanTask()
    tokens = torch.stack([torch.randint(5, 20, (4, 11)), (torch.arange(11) > 5).long().expand(4, 11)], -1).int()
    places = torch.tensor([[0, 0], [6, 8], [7, 7], [9, 10]]).int()
    batch = task.batch([(tokens[row].numpy(), places[row].numpy()) for row in range(4)])
    loss = theirs(
        input_ids=tokens[..., 0].long(),
        token_type_ids=tokens[..., 1].long(),
        start_positions=places[:, 0].long(),
        end_positions=places[:, 1].long(),
    ).loss
    with torch.no_grad():
        ours = task.loss(pipeline.model, batch).total / batch.tokens
    assert float(ours) == pytest.approx(float(loss.detach()), abs=1e-6)


# --- EM and F1 ---


def test_answers_are_compared_without_what_does_not_matter() -> None:
    assert plain("  The  quick, brown-ish FOX!") == "quick brownish fox"
    assert plain("An a the theatre") == "theatre"
    assert exact("the Amazon.", "Amazon") == 1
    assert exact("Amazons", "Amazon") == 0
    assert f1("the Amazon river", "Amazon") == pytest.approx(2 / 3)
    assert f1("a b b", "b b c") == pytest.approx(4 / 5)  # "a" is an article: b b against b b c
    assert f1("x x y", "x z") == pytest.approx(2 * 1 / 5)
    assert f1("", "the") == 1  # nothing is left of either
    assert f1("", "Amazon") == f1("Amazon", "") == 0


def test_the_best_reference_counts() -> None:
    scores = answer_metrics(["Amazon", "in Rome", ""], [["Nile", "the Amazon"], ["Rome", "Paris"], []])
    assert scores["exact"] == pytest.approx(100 * 2 / 3)
    assert scores["f1"] == pytest.approx(100 * (1 + 2 / 3 + 1) / 3)
    assert scores["f1 where there is an answer"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert scores["exact where there is none"] == 100
    assert scores["questions"] == 3
    alone = answer_metrics(["Amazon"], [["Nile"]])
    assert set(alone) == {"exact", "f1", "questions"}
    assert answer_metrics(["x"], [[]])["exact"] == 0
    assert answer_metrics(["", "y"], [["The", "y"], ["The", "y"]])["exact"] == 50  # what normalises to nothing is none
