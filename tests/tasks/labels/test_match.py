"""Matching: scores and their range, three ways to learn, losses against loops, and a whole run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import heed
from heed.core.contract import Mixer
from heed.core.errors import InputError
from heed.models import Encoder
from heed.parts.outputs.heads import pooled
from heed.pipelines.similarity import SimilarityPipeline
from heed.pipelines.streams import stream_of
from heed.tasks import Match
from heed.tasks.labels.match import FINE
from heed.tasks.labels.scores import spearman
from heed.text import Char, Tokenizer
from tests.tasks.test_tasks import Some

DOUBLE = torch.float64
PAIRS = Some(*((f"a{n} {'x' * (n % 5)}", f"b{n} {'x' * (n % 3)}", str(n % 6)) for n in range(24)))
HOW: list[Literal["apart", "together", "contrast"]] = ["apart", "together", "contrast"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Match().equip(Char().train(text for row in PAIRS for text in row[:2]))


def of(how: Literal["apart", "together", "contrast"]) -> Match:
    examples = Some(*(row[:2] for row in PAIRS)) if how == "contrast" else PAIRS
    return Match(how=how).informed(examples)


def examples_of(task: Match) -> Some:
    return Some(*(row[: len(task.columns)] for row in PAIRS))


def built(task: Match, tokenizer: Tokenizer) -> Mixer[Any]:
    return Encoder.Config(width=16, depth=1).sized(tokenizer.size).headed(task.head()).build().to(DOUBLE).eval()


def test_the_range_of_scores_is_told_by_the_data() -> None:
    assert of("apart").scale == (0.0, 5.0)
    assert Match(low=-1.0, high=1.0).informed(PAIRS).scale == (-1.0, 1.0)
    with pytest.raises(InputError, match=r"all pairs have the score 1; needed are different ones"):
        Match().informed(Some(("a", "b", "1"), ("c", "d", "1.0")))
    with pytest.raises(InputError, match=r"1 score that are no numbers, such as 'near'.*task\.pair=true"):
        Match().informed(Some(("a", "b", "near"), ("c", "d", "1")))


@pytest.mark.parametrize("how", ["apart", "together"])
def test_a_batch_loses_what_its_rows_lose_alone(how: Literal["apart", "together"], tokenizer: Tokenizer) -> None:
    task = of(how)
    model, items = built(task, tokenizer), task.corpus(PAIRS, tokenizer).once()[:7]
    with torch.no_grad():
        together = task.loss(model, task.batch(items)).total
        alone = sum(task.loss(model, task.batch([item])).total for item in items)
        silent = task.loss(model, task.batch(items).silent()).total
    assert float(together) == pytest.approx(float(alone), rel=1e-12)
    assert float(silent) == 0.0


def vectors(model: Mixer[Any], tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray[Any, Any]]:
    """The mean of the stream of each text, by itself."""
    from heed.core.contract import Where

    found = []
    for text in texts:
        ids = torch.tensor([tokenizer.framed(text).ids])
        seen = stream_of(model, ids, Where.run(1, ids.shape[1]))
        found.append(pooled("mean", seen.parts[0], seen)[0].detach().numpy())
    return found


def cos(u: np.ndarray[Any, Any], v: np.ndarray[Any, Any]) -> float:
    return float(u @ v / math.sqrt(float(u @ u) * float(v @ v)))


def test_scores_are_cosines_of_embeddings(tokenizer: Tokenizer) -> None:
    task = of("apart")
    model, rows = built(task, tokenizer), list(PAIRS)[:6]
    one, other = (vectors(model, tokenizer, [row[side] for row in rows]) for side in (0, 1))
    wanted = sum((cos(u, v) - int(row[2]) / 5) ** 2 for u, v, row in zip(one, other, rows, strict=True))
    got = task.loss(model, task.batch(task.corpus(Some(*rows), tokenizer).once())).nats
    assert float(got) == pytest.approx(wanted, rel=1e-5)  # scores are kept in 2^-20 of their range
    pipeline = task.pipeline(model, tokenizer)
    assert isinstance(pipeline, SimilarityPipeline)
    found = pipeline.similarity([(row[0], row[1]) for row in rows])
    assert found == pytest.approx([5 * cos(u, v) for u, v in zip(one, other, strict=True)], rel=1e-9)
    assert pipeline.similarity((rows[0][0], rows[0][1])) == pytest.approx(found[0], rel=1e-9)


def test_scores_need_not_begin_at_zero(tokenizer: Tokenizer) -> None:
    rows = Some(("a1 x", "b1", "1"), ("a2", "b2 xx", "2"))
    task = Match().informed(rows)
    assert [int(label) / FINE for *_, (label,) in task.corpus(rows, tokenizer).once()] == [0, 1]
    assert task._scores(list(rows), np.array([1.2, 1.8]))["accuracy"] == 100, "1.5 lies between"
    model, pairs = built(task, tokenizer), [(row[0], row[1]) for row in rows]
    one, other = (vectors(model, tokenizer, [row[side] for row in rows]) for side in (0, 1))
    found = task.pipeline(model, tokenizer).similarity(pairs)
    assert found == pytest.approx([1 + cos(u, v) for u, v in zip(one, other, strict=True)], rel=1e-9)


def test_both_texts_of_a_pair_cost_and_may_be_cut(tokenizer: Tokenizer) -> None:
    task = Match(longest=6).informed(PAIRS)
    corpus = task.corpus(Some(("a" * 20, "b" * 20, "1"), ("a", "b", "2")), tokenizer)
    assert "2 cut to 6 tokens" in corpus.report()
    item, short = corpus.once()
    assert task.cost(item) == 12
    assert task.cost(short) == len(short[0]) + len(short[1]) < 12


def test_contrast_is_a_softmax_over_the_batch_from_both_sides(tokenizer: Tokenizer) -> None:
    task = of("contrast")
    model, rows = built(task, tokenizer), [row[:2] for row in PAIRS][:5]
    one, other = (vectors(model, tokenizer, [row[side] for row in rows]) for side in (0, 1))
    near = [[cos(u, v) / 0.05 for v in other] for u in one]
    total = 0.0
    for i in range(5):
        across = math.log(sum(math.exp(near[i][j]) for j in range(5)))
        down = math.log(sum(math.exp(near[j][i]) for j in range(5)))
        total += (across + down) / 2 - near[i][i]
    got = task.loss(model, task.batch(task.corpus(Some(*rows), tokenizer).once())).nats
    assert float(got) == pytest.approx(total, rel=1e-10)
    assert float(task.loss(model, task.batch(task.corpus(Some(*rows), tokenizer).once()).silent()).nats) == 0.0


def test_spearman_is_the_correlation_of_ranks() -> None:
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([10.0, 20, 30, 1000])) == pytest.approx(100)
    assert spearman(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == pytest.approx(-100)
    assert spearman(np.array([1.0, 1, 2]), np.array([5.0, 6, 7])) == pytest.approx(100 * math.sqrt(3) / 2)  # a tie
    assert math.isnan(spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])))


@pytest.mark.parametrize("how", HOW)
def test_a_run_is_trained_evaluated_and_used(how: Literal["apart", "together", "contrast"], tmp_path: Path) -> None:
    task = of(how)
    data = tmp_path / "pairs.tsv"
    data.write_text("".join("\t".join(row) + "\n" for row in examples_of(task)), encoding="utf-8")
    small = {"model.width": 16, "model.depth": 1, "model.mixer.0.heads": 2, "model.feedforward.hidden": 32}
    settings = {**small, "tokenizer.size": 300, "training.evaluate": 2, "training.threads": 1, "task.how": how}
    heed.train("match", data=str(data), out=tmp_path / "run", steps=2, batch=512, settings=settings, quiet=True)
    found = heed.eval(tmp_path / "run", data=str(data), quiet=True)
    if how == "contrast":
        assert 0 <= found["accuracy"] <= 100
        assert found.floors["test"].keys() == {"cosine"}
    else:
        assert -100 <= found["spearman"] <= 100
        assert -100 <= float(found.floors["test"]["cosine"]["spearman"]) <= 100
    model = heed.load(tmp_path / "run")
    assert "similarity" in model.can
    assert set(model.respond("a1\tb1").data) == {"similarity"}
