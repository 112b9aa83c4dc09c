"""Denoising: exact counts of span corruption, the distribution of infilling, and that nothing is lost."""

from __future__ import annotations

from collections import Counter
from math import ceil, exp
from typing import Any

import numpy as np
import pytest
import torch

from heed.core.errors import ConfigError, InputError
from heed.models import T5, Encoder, Transformer
from heed.pipelines import GenerationConfig
from heed.tasks import Denoise
from heed.tasks.pretrain.documents import Documents, sentences
from heed.tasks.pretrain.noise import Infilling, SpanCorruption
from heed.text import Byte, Tokenizer
from tests.tasks.pretrain.material import examples, texts, tokenizer, within
from tests.tasks.test_tasks import Some

FEW = Some(("The quick brown fox jumps over the lazy dog. It sleeps.",), ("Hello world. It is I.",))
NONE = np.zeros(0, np.int32)


def test_lengths_are_those_of_the_paper() -> None:
    """T5 pre-trains on 512 tokens: 568 of text, of which 85 are left out in 28 spans, so that targets have 114."""
    noise = SpanCorruption()
    assert noise.room(512) == 568
    out, spans = noise.counts(568)
    assert (568 - out + spans + 1, out + spans + 1) == (512, 114)
    assert len(noise.special(512)) == spans
    assert noise.counts(12) == (2, 1)  # 1.8 tokens
    for context in (8, 30, 128, 200):
        room = noise.room(context)
        assert (
            len(noise.corrupted(np.arange(room, dtype=np.int32), NONE, range(900, 1000), rng()).source) + 1 <= context
        )
        more = noise.counts(room + 1)
        assert room + 1 - more[0] + more[1] + 1 > context


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("length", [2, 3, 7, 20, 113, 568])
def test_what_is_left_out_stands_behind_its_sentinel(length: int) -> None:
    """Sentinels come in order, a text begins with something that stays, and source and target together are the text."""
    noise, tokens, special = SpanCorruption(), np.arange(length, dtype=np.int32), list(range(1000, 1100))
    for seed in range(20):
        source, target = noise.corrupted(tokens, NONE, special, rng(seed))
        out, spans = noise.counts(length)
        assert source[0] == 0
        assert target[0] == 1000
        assert [token for token in source if token >= 1000] == special[:spans]
        assert [token for token in target if token >= 1000] == special[:spans]
        assert len(target) == out + spans
        gaps = np.split(target, np.flatnonzero(target >= 1000)[1:])
        filled = [part for token in source for part in (gaps[token - 1000][1:] if token >= 1000 else [token])]
        assert filled == tokens.tolist()
        assert all(len(gap) > 1 for gap in gaps)


def test_spans_over_many_tokens() -> None:
    """15 % are left out, in spans of three on average; every place but the first is left out about as often."""
    task = Denoise()
    known = task.equip(tokenizer())
    items = task.corpus(examples(), known).round(0, 0)
    special = {known.convert_tokens_to_ids(name) for name in task.noise.special(task.context)}
    spans = sum(int(np.isin(source, list(special)).sum()) for source, _ in items)
    out = sum(len(target) - 2 for _, target in items) - spans
    total = sum(len(source) - 1 for source, _ in items) - spans + out
    assert total == sum(len(known.encode(text)) for text in texts()) - _alone(task, known)
    assert total > 100_000
    assert out / total == pytest.approx(0.15, abs=0.002)  # rounded in each of some thousand windows
    assert out / spans == pytest.approx(3.0, abs=0.15)
    long = [source for source, _ in items if len(source) == task.context]
    left = np.zeros(4)
    noise, room = SpanCorruption(), task.noise.room(task.context)
    for seed in range(2000):
        source = noise.corrupted(np.arange(room, dtype=np.int32), NONE, range(1000, 1100), rng(seed)).source
        missing = np.setdiff1d(np.arange(room), source)
        left += [np.isin(place, missing) for place in (room // 4, room // 2, 3 * room // 4, 1)]
    share = noise.counts(room)[0] / room
    assert len(long) > 100
    assert all(within(one / 2000, share, 2000) for one in left[:3])


def _alone(task: Denoise, known: Tokenizer) -> int:
    """Tokens of windows of one token, of which nothing could be left out."""
    corpus = task.corpus(examples(), known)
    first = int(np.random.default_rng((0, 0, 4)).integers(corpus._room))
    return sum(end - begin for begin, end in corpus._documents.windows(corpus._room, first) if end - begin < 2)


def test_infilling_draws_lengths_from_a_poisson_distribution() -> None:
    """Just 30 % are covered; of all spans but the last, which is cut, e^-3 are empty and the mean is three."""
    noise, every, total, covered = Infilling(), list[int](), 0, 0
    for seed in range(1200):
        lengths = noise.lengths(100, rng(seed))
        assert lengths.sum() == ceil(0.3 * 100)
        total, covered = total + 100, covered + int(lengths.sum())
        every += lengths[:-1].tolist()
    assert total > 100_000
    assert covered / total == 0.3
    counts = Counter(every)
    # Drawn until 30 are covered, the last one left out: long spans are met as the last a little more often, so the
    # others are compared with what the same rule gives for numpy's distribution, drawn by itself.
    wanted, other = np.zeros(0, int), rng(10**6)
    while len(wanted) < 40_000:
        drawn = other.poisson(3.0, 60)
        wanted = np.append(wanted, drawn[: int(np.argmax(np.cumsum(drawn) >= 30))])
    for length in range(7):
        share = float((wanted == length).mean())
        assert within(counts[length] / len(every), share, len(every) // 2)  # both sides are drawn
    assert abs(counts[0] / len(every) - exp(-3)) < 0.01


def test_infilling_replaces_each_span_by_one_mask_and_mixes_sentences() -> None:
    noise = Infilling(sentences=False)
    tokens = np.arange(60, dtype=np.int32)
    places = Counter[int]()
    for seed in range(300):
        source, target = noise.corrupted(tokens, NONE, [99], rng(seed))
        lengths = noise.lengths(60, rng(seed))
        assert target.tolist() == tokens.tolist()
        assert (source == 99).sum() == len(lengths)
        kept = source[source != 99]
        assert len(kept) == 60 - 18
        assert sorted(kept.tolist()) == kept.tolist()
        assert len(source) <= 60
        places.update(set(range(60)) - set(kept.tolist()))
    assert min(places.values()) > 20  # every place is covered now and then, the first and the last too
    mixed = Infilling(rate=0.0)
    inner = np.array([10, 25, 40], np.int32)
    orders = Counter(tuple(mixed.corrupted(tokens, inner, [99], rng(seed)).source.tolist()) for seed in range(600))
    assert len(orders) == 24  # all orders of four sentences
    assert max(orders.values()) < 60
    parts = {tuple(part.tolist()) for part in np.split(tokens, inner)}
    for order in orders:
        cut = [place for place in range(1, 60) if order[place] != order[place - 1] + 1]
        merged = {tuple(part.tolist()) for part in np.split(np.array(order), cut)}
        assert sum(map(len, merged)) == 60
        assert all(any(part[: len(one)] == one for one in parts) for part in merged)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two? Three!", ["One.", " Two?", " Three!"]),
        ('He said "no." Then left.', ['He said "no."', " Then left."]),
        ("A heading\n\nText of 1.5 m here.\n", ["A heading", "\n\nText of 1.5 m here.\n"]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("no end", ["no end"]),
        ("", []),
    ],
)
def test_sentences(text: str, parts: list[str]) -> None:
    assert sentences(text) == parts
    assert "".join(sentences(text)) == text


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_tokens_of_sentences_are_those_of_the_text(kind: str) -> None:
    known, some = tokenizer(kind), ["One. Two words? Three!\n\nA heading\nand more. ", *texts()[:5]]
    cut, whole = Documents.of(some, known, cut=True), Documents.of(some, known)
    assert cut.tokens.tolist() == whole.tokens.tolist()
    assert len(cut.starts) > len(cut) == len(whole) == 6
    assert set(cut.bounds[:-1].tolist()) <= set(cut.starts.tolist())


def model_of(task: Denoise, plan: Any, known: Tokenizer) -> Any:
    torch.manual_seed(0)
    model = plan.sized(known.size).build().double().eval()
    task.must_fit(model)
    return model


CASES = {
    "spans": (Denoise(context=24), T5(width=16, depth=1, dropout=0.0)),
    "infill": (Denoise(context=24, noise=Infilling()), Transformer(width=16, depth=1, heads=2, dropout=0.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_loses_what_its_rows_lose_alone(name: str) -> None:
    task, plan = CASES[name]
    known = task.equip(Byte().train(["x"]))
    model, items = model_of(task, plan, known), task.corpus(FEW, known).once()
    batch = task.batch(items)
    assert len({len(source) for source, _ in items}) > 1  # some row is padded
    assert batch.tokens == sum(len(target) - 1 for _, target in items)
    alone = sum(float(task.loss(model, task.batch([item])).nats) for item in items)
    assert float(task.loss(model, batch).nats) == pytest.approx(alone, rel=1e-12)
    assert not task.loss(model, batch.silent()).total.any()


@pytest.mark.parametrize("name", CASES)
def test_rounds_differ_and_evaluations_do_not(name: str) -> None:
    task, plan = CASES[name]
    known = task.equip(Byte().train(["x"]))
    corpus = task.corpus(FEW, known)

    def plain(number: int, seed: int) -> list[Any]:
        return [[part.tolist() for part in item] for item in corpus.round(number, seed)]

    assert plain(1, 2) == plain(1, 2)
    assert plain(1, 2) != plain(2, 2)
    pipeline = task.pipeline(model_of(task, plan, known).float(), known)
    found = task.evaluate(pipeline, FEW)
    assert found == task.evaluate(pipeline, FEW)
    assert set(found) == {"loss", "perplexity", "tokens"}
    with pytest.raises(InputError, match="nothing is generated"):
        task.evaluate(pipeline, FEW, GenerationConfig(max_new_tokens=3))


def test_windows_begin_elsewhere_in_every_round() -> None:
    """A text begins with something that stays: the first token of its window."""
    task = Denoise(context=12)
    letters = Some(("abcdefghijklmnopqrstuvwxyz0123456789",))
    corpus = task.corpus(letters, task.equip(Byte().train(["x"])))
    begins = {int(source[0]) for number in range(30) for source, _ in corpus.round(number, 0)}
    assert len({int(source[0]) for source, _ in corpus.once()}) < 5
    assert len(begins) > 20


def test_gaps_that_a_text_spells_are_read_as_such_and_told_apart() -> None:
    task, plan = CASES["spans"]
    known = task.equip(Byte().train(["x"]))
    pipeline = task.pipeline(model_of(task, plan, known).float(), known)
    gap = known.convert_tokens_to_ids("<extra_id_0>")
    assert gap in pipeline._bare(["a <extra_id_0> b"])[0]
    (completion,) = pipeline.completions(["a <extra_id_0> b"], max_new_tokens=5)[0]
    assert isinstance(completion.text, str)


def test_what_does_not_fit_is_told() -> None:
    task = Denoise()
    known = Byte().train(["x"])
    with pytest.raises(ConfigError, match="Encoder does not: use model.kind=t5.*learns by task.kind=masked"):
        task.must_fit(Encoder.Config(vocabulary=9, width=16, depth=1).build())
    with pytest.raises(InputError, match="has no <extra_id_0>.*noise of kind infill"):
        task.corpus(FEW, known)
    with pytest.raises(InputError, match="nothing is left to learn from"):
        task.corpus(Some(("x",)), task.equip(known))
