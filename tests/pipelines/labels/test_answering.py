"""Answers by a part of a text: the best span over all windows, compared with live transformers."""

from __future__ import annotations

from itertools import product
from math import exp, inf
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from typer.testing import CliRunner

from heed.cli import app
from heed.core.errors import InputError
from heed.pipelines.labels.answering import Reading, best
from heed.text import Framed
from heed.text.alignment import Asking, Window
from tests.pipelines.small import BERT, opened

HF: Any = transformers
MODELS = {
    "bert": lambda: HF.BertForQuestionAnswering(HF.BertConfig(**BERT)),
    "electra": lambda: HF.ElectraForQuestionAnswering(HF.ElectraConfig(**BERT, embedding_size=16)),
    "roberta": lambda: HF.RobertaForQuestionAnswering(HF.RobertaConfig(**BERT, pad_token_id=0)),
}
QUESTION, CONTEXT = "on a mat", "the dog ran home and then it slept on a mat and the cat sat on it"


def reference(folder: Path, theirs: Any, reading: Reading) -> tuple[str, float]:
    """The best span, by loops over what transformers' tokenizer and model give."""
    tokenizer = HF.PreTrainedTokenizerFast.from_pretrained(folder)
    given = tokenizer(
        QUESTION,
        CONTEXT,
        truncation="only_second",
        max_length=reading.longest,
        stride=reading.stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    scores: dict[tuple[int, int], float] = {}
    for number, ids in enumerate(given["input_ids"]):
        with torch.no_grad():
            segments = torch.tensor([given["token_type_ids"][number]])
            out = theirs(input_ids=torch.tensor([ids]), token_type_ids=segments)
        inside = [place for place, text in enumerate(given.sequence_ids(number)) if text == 1]
        for i, j in product(inside, inside):
            if i <= j < i + reading.limit:
                span = given["offset_mapping"][number][i][0], given["offset_mapping"][number][j][1]
                score = float(out.start_logits[0, i].double() + out.end_logits[0, j].double())
                scores[span] = max(score, scores.get(span, -inf))
    begin, end = max(scores, key=scores.__getitem__)
    total = sum(exp(score) for score in scores.values())
    return CONTEXT[begin:end], exp(scores[begin, end]) / total


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("limit", [3, 30])
def test_checkpoints_answer_as_their_logits_say(name: str, limit: int, tmp_path: Path) -> None:
    torch.manual_seed(3)
    theirs, pipeline = opened(MODELS[name](), tmp_path)
    assert "answer" in pipeline.can
    pipeline.reading = Reading(longest=16, stride=3, question=8, limit=limit)  # type: ignore[attr-defined]
    text, probability = reference(tmp_path, theirs, pipeline.reading)  # type: ignore[attr-defined]
    found = pipeline.answer(QUESTION, CONTEXT)
    assert (found.text, CONTEXT[found.start : found.end]) == (text, text)
    assert found.probability == pytest.approx(probability, abs=1e-5)
    several = pipeline.answer([QUESTION, "the cat"], CONTEXT)
    assert several[0].text == text
    assert pipeline.answer([QUESTION], [CONTEXT])[0].probability == pytest.approx(found.probability)


def test_what_is_asked_wrongly_is_said(tmp_path: Path) -> None:
    _, pipeline = opened(MODELS["bert"](), tmp_path)
    with pytest.raises(InputError, match="2 questions and 1 contexts"):
        pipeline.answer(["the", "cat"], [CONTEXT])
    with pytest.raises(InputError, match="nothing in the context"):
        pipeline.answer("the", " ")
    with pytest.raises(InputError, match=r"--context FILE_OR_TEXT, in Python answer\(question, context\)"):
        pipeline.respond("the cat")
    _, masked = opened(HF.BertForMaskedLM(HF.BertConfig(**BERT)), tmp_path / "masked")
    with pytest.raises(InputError, match="cannot answer: it is an encoder without such a head"):
        masked.answer("the", CONTEXT)


def test_the_command_takes_a_text_or_a_file(tmp_path: Path) -> None:
    _, pipeline = opened(MODELS["bert"](), tmp_path / "model")
    wanted = pipeline.answer("the cat", CONTEXT)
    (tmp_path / "text.txt").write_text(CONTEXT)
    for given in (CONTEXT, str(tmp_path / "text.txt")):
        told = CliRunner().invoke(app, ["run", str(tmp_path / "model"), "the cat", "--context", given])
        assert told.stdout == f"{wanted.text}\t{wanted.probability:.1%}\n"
    (tmp_path / "text.txt").write_bytes(b"\xff")
    told = CliRunner().invoke(app, ["run", str(tmp_path / "model"), "x", "--context", str(tmp_path / "text.txt")])
    assert told.exit_code == 2


# --- the best span ---


def asking(*windows: tuple[int, int], first: int = 2, tokens: int = 6) -> Asking:
    """A context of so many tokens of one character each; windows begin at a token and have so many."""
    framed = Framed([], [])
    held = [Window(framed, first, begin, size) for begin, size in windows]
    return Asking(held, [(i, i + 1) for i in range(tokens)], False)


def logits(length: int, **peaks: float) -> Tensor:
    """Of where it begins (b3=...) and where it ends (e4=...); zero elsewhere."""
    found = torch.zeros(length, 2)
    for name, value in peaks.items():
        found[int(name[1:]), "be".index(name[0])] = value
    return found


def test_an_answer_does_not_end_before_it_begins_and_is_not_too_long() -> None:
    one = asking((0, 6))
    assert best(one, [logits(9, b6=5.0, e3=5.0)], Reading(limit=6)).tokens != (4, 1)
    assert best(one, [logits(9, b3=5.0, e6=5.0)], Reading(limit=6)).tokens == (1, 4)
    limited = best(one, [logits(9, b3=5.0, e6=4.0)], Reading(limit=3)).tokens
    assert limited is not None
    assert limited[1] - limited[0] < 3


def test_only_the_context_is_asked_and_no_blank_token() -> None:
    one = asking((0, 6))
    assert best(one, [logits(9, b1=9.0, e1=9.0, b4=1.0, e4=1.0, b8=9.0, e8=9.0)], Reading()).tokens == (2, 2)
    spaced = one._replace(spans=[(0, 1), (1, 2), (2, 2), (3, 4), (4, 5), (5, 6)])
    assert best(spaced, [logits(9, b4=9.0, e4=9.0, b5=1.0, e5=1.0)], Reading()).tokens == (3, 3)


def test_the_best_of_all_windows_counts_and_a_shared_span_once() -> None:
    two = asking((0, 4), (2, 4))
    found = best(two, [logits(7, b4=2.0, e4=2.0), logits(7, b2=3.0, e2=3.0)], Reading(limit=1))
    assert found.tokens == (2, 2)
    assert found.probability == pytest.approx(exp(6) / (exp(6) + 5))  # six tokens, of which two are in both


def test_no_answer_is_as_probable_as_the_least_of_the_windows_says() -> None:
    two, may = asking((0, 4), (2, 4)), Reading(limit=1, no_answer=True)
    sure, unsure = logits(7, b0=5.0, e0=5.0), logits(7, b0=1.0, e0=0.0, b3=2.0, e3=2.0)
    assert best(two, [sure, sure], may).tokens is None
    assert best(two, [sure, unsure], may).tokens == (3, 3)
    assert best(two, [sure, sure], Reading(limit=1)).tokens is not None
