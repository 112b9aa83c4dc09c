"""From examples to batches, losses and scores."""

from __future__ import annotations

from collections import Counter
from math import log

import numpy as np
import pytest
import torch

from heed.core.errors import ConfigError, InputError
from heed.data import Dates, Example, Examples
from heed.decode import Beam, Sample
from heed.models import Decoder, Encoder, Plan, Transformer
from heed.parts.outputs.loss import NO_LABEL, Loss
from heed.pipelines import GenerationConfig
from heed.pipelines.base import AnyModel
from heed.tasks import Batch, Causal, Corpus, Feed, Place, Translate, bucketed
from heed.tasks.base import Item
from heed.tasks.feed import evenly
from heed.tasks.labels.classify import Classify
from heed.tasks.labels.match import Match
from heed.tasks.labels.span import SpanTask
from heed.tasks.labels.tag import Tag
from heed.tasks.metrics import agreement, corpus_cross_entropy
from heed.text import Byte, Char, Tokenizer


class Some(Examples):
    """Examples that a test names."""

    def __init__(self, *examples: Example) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> Example:
        return self._examples[index]

    def report(self) -> str:
        return f"{len(self)} examples"


PAIRS = Some(*((f"{'x' * (n % 7 + 1)}{n}", f"{n}{'y' * (n % 5)}") for n in range(40)))


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Char().train(text for pair in PAIRS for text in pair)


@pytest.mark.parametrize("task", [Translate(), Causal(context=9)])
def test_a_batch_loses_what_its_rows_lose_alone(task: Translate | Causal, tokenizer: Tokenizer) -> None:
    translates = isinstance(task, Translate)
    plan: Plan = Transformer(width=16, heads=2) if translates else Decoder.Config(width=16, depth=1)
    model = plan.sized(tokenizer.size).build().double().eval()
    examples = PAIRS if translates else Some(*((source,) for source, _ in PAIRS))
    items = task.corpus(examples, tokenizer).once()[:6]
    batch = task.batch(items)
    with torch.no_grad():
        together = task.loss(model, batch).total
        alone = sum(task.loss(model, task.batch([item])).total for item in items)
        silent = task.loss(model, batch.silent()).total
    assert float(together) == pytest.approx(float(alone), rel=1e-12)
    assert batch.tokens == sum(task.batch([item]).tokens for item in items)
    assert float(silent) == 0.0


def test_what_is_smoothed_in_training_is_not_in_evaluation(tokenizer: Tokenizer) -> None:
    """Losses of different smoothings could not be compared, nor could perplexities."""
    model = Transformer(width=16, heads=2, dropout=0.0).sized(tokenizer.size).build().double()
    plain, smooth = Translate(smoothing=0.0), Translate(smoothing=0.4)
    batch = plain.batch(plain.corpus(PAIRS, tokenizer).once()[:6])
    with torch.no_grad():
        used = [float(task.loss(model.eval(), batch).total) for task in (plain, smooth)]
        learnt = [float(task.loss(model.train(), batch).total) for task in (plain, smooth)]
        told = [float(task.loss(model.train(), batch).nats) for task in (plain, smooth)]
    assert used[0] == used[1] == pytest.approx(learnt[0], rel=1e-12)
    assert learnt[1] != pytest.approx(learnt[0], rel=1e-3)
    assert told == pytest.approx(used, rel=1e-12)  # what is reported is without, too


def test_each_token_predicts_the_next() -> None:
    batch = Batch.shifted([np.array([5, 6, 7, 8], np.int32), np.array([9, 4], np.int32)])
    assert batch.inputs.tokens[0].tolist() == [5, 6, 7]
    assert batch.labels.tolist() == [[6, 7, 8], [4, NO_LABEL, NO_LABEL]]
    assert batch.inputs.where.order.tolist() == [[0, 1, 2], [0, -1, -1]]
    assert batch.tokens == 4
    assert batch.silent().tokens == 0  # else other processes' losses would be divided by it
    assert bool((batch.silent().labels == NO_LABEL).all())


def test_a_pair_stands_between_its_marks(tokenizer: Tokenizer) -> None:
    ((source, target), *_) = Translate().corpus(Some(("x1", "2y")), tokenizer).once()
    begin, end = tokenizer.need("begin"), tokenizer.need("end")
    assert source.tolist() == [*tokenizer.encode("x1"), end]
    assert target.tolist() == [begin, *tokenizer.encode("2y"), end]


@pytest.mark.parametrize(("source", "target", "cost"), [(5, 2, 5), (2, 5, 4), (3, 4, 3)])
def test_the_longer_side_of_a_pair_is_its_cost(source: int, target: int, cost: int) -> None:
    """Sides are padded to the longest of a batch; of a target the last token is only predicted."""
    assert Translate().cost((np.zeros(source, np.int32), np.zeros(target, np.int32))) == cost


def test_either_side_may_be_too_long(tokenizer: Tokenizer) -> None:
    """`longest` counts the end token."""
    pairs = Some(("xxx", "yyy"), ("xxxx", "y"), ("x", "yyyy"), ("x", "y"))
    corpus = Translate(longest=4).corpus(pairs, tokenizer)
    assert corpus.fits == [True, False, False, True]
    assert max(len(source) for source, _ in corpus.once()) == 4


def test_windows_predict_every_token_once() -> None:
    texts = Some(("hello world",), ("",), ("a longer text that needs several windows",))
    tokenizer = Byte().train(["x"])
    corpus = Causal(context=8).corpus(texts, tokenizer)
    assert corpus.bytes == sum(len(text) for (text,) in texts)
    assert len(corpus.tokens) == corpus.bytes + 3  # an end token before each
    predicted = np.concatenate([window[1:] for (window,) in corpus.once()])
    assert predicted.tolist() == corpus.tokens[1:].tolist()
    rounds = [corpus.round(number, seed=1) for number in range(3)]
    assert [w.tolist() for (w,) in rounds[0]] == [w.tolist() for (w,) in corpus.round(0, seed=1)]
    assert [w.tolist() for (w,) in rounds[0]] != [w.tolist() for (w,) in rounds[1]]
    cuts = [frozenset(tuple(w.tolist()) for (w,) in windows) for windows in rounds]
    assert len(set(cuts)) == 3  # not the same windows in another order: contexts differ from round to round


def test_a_text_shorter_than_a_window() -> None:
    corpus = Causal(context=50).corpus(Some(("hi",)), Byte().train(["x"]))
    assert [len(window) for (window,) in corpus.once()] == [3]
    assert [len(window) for (window,) in corpus.round(4, seed=0)] == [3]


def test_pairs_that_are_too_long_are_counted(tokenizer: Tokenizer) -> None:
    corpus = Translate(longest=7).corpus(PAIRS, tokenizer)
    kept = [pair for pair in PAIRS if max(map(len, pair)) < 7]
    assert len(corpus.once()) == len(kept)
    assert f"{len(kept)} pairs, {len(PAIRS) - len(kept)} left out: longer than 7 tokens" in corpus.report()
    with pytest.raises(InputError, match="nothing is left to learn from: 0 pairs, 40 left out"):
        Translate(longest=2).corpus(PAIRS, tokenizer)


def test_batches_keep_the_budget_and_every_item(tokenizer: Tokenizer) -> None:
    task = Translate()
    items = task.corpus(PAIRS, tokenizer).once()
    batches = bucketed(items, task.cost, 40)
    assert Counter(id(item) for batch in batches for item in batch) == Counter(map(id, items))
    assert all(len(batch) * max(map(task.cost, batch)) <= 40 for batch in batches)
    assert len(bucketed(items, task.cost, 1)) == len(items)  # an item beyond the budget goes alone


def test_even_batches_hold_as_many_items_each() -> None:
    """So a short text counts as a long one does; a batch that would be far too large is cut."""
    draw = np.random.default_rng(0)
    items: list[Item] = [(np.zeros(size, np.int32),) for size in draw.integers(1, 40, 200)]
    batches = evenly(items, lambda item: len(item[0]), 160)
    count = round(160 * 200 / sum(len(item[0]) for item in items))
    assert count > 5
    assert Counter(id(item) for batch in batches for item in batch) == Counter(map(id, items))
    assert {len(batch) for batch in batches[:-1]} == {count}
    lengths = [len(item[0]) for batch in batches for item in batch]
    assert lengths == sorted(lengths)
    long: list[Item] = [(np.zeros(1, np.int32),)] * 90 + [(np.zeros(600, np.int32),)] * 10
    assert max(sum(len(item[0]) for item in batch) for batch in evenly(long, lambda item: len(item[0]), 100)) <= 800
    assert evenly([], lambda item: 1, 10) == []


def test_where_a_text_has_one_label_batches_are_even() -> None:
    assert [kind.even for kind in (Classify, Match, SpanTask)] == [True] * 3
    assert [kind.even for kind in (Causal, Translate, Tag)] == [False] * 3
    feed = Feed(Same(), lambda item: len(item[0]), 13, 0, even=True)
    assert {len(next(feed)) for _ in range(feed.batches)} == {2}


class Same(Corpus):
    """Rounds that are all alike, so that what differs is the feed's."""

    def round(self, number: int, seed: int) -> list[Item]:
        return [(np.full(1 + place, place, np.int32),) for place in range(12)]

    def once(self) -> list[Item]:
        return self.round(0, 0)

    def report(self) -> str:
        return "the same"


def orders(seed: int, rounds: int = 4) -> list[list[int]]:
    """The first tokens of the batches of each round, one item in each."""
    feed = Feed(Same(), lambda item: len(item[0]), 1, seed)
    found: list[list[int]] = [[] for _ in range(rounds)]
    while feed.place.round < rounds - 1 or feed.place.batch < feed.batches:
        (item,) = next(feed)
        found[feed.place.round].append(int(item[0][0]))
    return found


def test_each_round_has_all_batches_in_an_order_of_its_own() -> None:
    """Bucketed by length, batches would come from short to long, and in every epoch alike."""
    found = orders(seed=3)
    assert [sorted(some) for some in found] == [list(range(12))] * 4
    assert len({tuple(some) for some in [*found, *orders(seed=4), list(range(12))]}) == 9
    assert orders(seed=3) == found


def test_pairs_are_shuffled_anew_in_each_round(tokenizer: Tokenizer) -> None:
    corpus = Translate().corpus(PAIRS, tokenizer)
    rounds = [[id(item) for item in corpus.round(number, seed)] for number, seed in ((0, 0), (1, 0), (0, 1))]
    assert len({tuple(some) for some in rounds}) == 3
    assert len({frozenset(some) for some in rounds}) == 1
    endless = Dates(round=32).split("train", ("source", "target"))
    dates = Translate().corpus(endless, Char().train(text for pair in endless for text in pair))
    one, two = ([source.tolist() for source, _ in dates.round(number, 0)] for number in range(2))
    assert len(one) == len(two) == 32
    assert sum(text in two for text in one) < 4  # an endless source goes on


@pytest.mark.parametrize("endless", [True, False])
def test_a_feed_goes_on_from_any_place(endless: bool, tokenizer: Tokenizer) -> None:
    examples = Dates(round=32).split("train", ("source", "target")) if endless else PAIRS
    letters = Char().train(text for pair in examples for text in pair) if endless else tokenizer
    task = Translate()
    corpus = task.corpus(examples, letters)

    def feed(place: Place | None = None) -> Feed:
        return Feed(corpus, task.cost, 60, 3, place)

    def plain(batch: list[Item]) -> list[list[list[int]]]:
        return [[part.tolist() for part in item] for item in batch]

    one = feed()
    batches, places = [], []
    for _ in range(40):
        places.append(one.place)
        batches.append(plain(next(one)))
    assert places[-1].round > 0
    for start in (1, 7, 25, 39):
        other = feed(places[start])
        assert [plain(next(other)) for _ in range(40 - start)] == batches[start:]


def test_scores_of_a_language_model(tokenizer: Tokenizer) -> None:
    """Bits per byte count what the text needs, whatever the tokens are: here, all are equally likely."""
    model = Decoder.Config(width=8, depth=1).sized(tokenizer.size).build()
    torch.nn.init.zeros_(model.embeddings.table.weight)
    texts = Some(("x1x2x3y",), ("xxxxé",))
    task = Causal(context=4)
    scores = task.evaluate(task.pipeline(model, tokenizer), texts)
    assert scores["loss"] == pytest.approx(log(tokenizer.size), rel=1e-6)
    assert scores["perplexity"] == pytest.approx(tokenizer.size, rel=1e-6)
    assert scores["tokens"] == 13  # the end token between the texts is predicted too
    assert scores["bits_per_byte"] == pytest.approx(13 * log(tokenizer.size) / log(2) / 13, rel=1e-6)


def test_agreement() -> None:
    found = agreement(["the cat sat on the mat", "Yes"], ["the cat sat on the mat", "yes"], "kept")
    assert found["exact"] == 50
    assert float(found["bleu"]) > 70
    assert "case:mixed" in str(found["signature"])
    assert agreement(["YES"], ["yes"], "ignored")["exact"] == 100
    assert agreement(["cafe\u0301"], ["caf\u00e9"], "kept")["exact"] == 100  # one text, in two spellings of Unicode


def test_an_evaluation_holds_no_graphs(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    task, real, seen = Causal(context=4), Causal.loss, list[bool]()

    def loss(self: Causal, model: AnyModel, batch: Batch) -> Loss:
        seen.append(torch.is_grad_enabled())
        return real(self, model, batch)

    monkeypatch.setattr(Causal, "loss", loss)
    model = Decoder.Config(width=8, depth=1).sized(tokenizer.size).build()
    corpus_cross_entropy(task, model, task.corpus(Some(("x1x2x3y",)), tokenizer))
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("how", [Beam(beams=3), Sample(seed=5), Sample(temperature=0.5, top_k=3, seed=0)])
def test_texts_are_answered_as_they_would_be_alone(how: Beam | Sample, tokenizer: Tokenizer) -> None:
    torch.manual_seed(3)
    model = Transformer(width=16, depth=1, heads=2, hidden=8, dropout=0.0).sized(tokenizer.size).build().double()
    pipeline = Translate(longest=12).pipeline(model, tokenizer)
    texts = [source for source, _ in PAIRS][:5]
    together = pipeline.completions(texts, GenerationConfig(strategy=how))
    for number, text in enumerate(texts):
        assert (
            pipeline.completions([text], GenerationConfig(strategy=how), first=number)[0][0].text
            == together[number][0].text
        )
        assert "".join(pipeline.stream(text, GenerationConfig(strategy=how), first=number)) == together[number][0].text


def test_prefixes_and_stops(tokenizer: Tokenizer) -> None:
    model = Decoder.Config(width=16, depth=1).sized(tokenizer.size).build().double()
    pipeline = Causal(context=8).pipeline(model, tokenizer)
    ask = GenerationConfig(strategy=Sample(temperature=3.0, seed=0), max_new_tokens=30, prefix="x1y")
    text = pipeline.generate("x", ask)
    assert text.startswith("x1y")
    cut = pipeline.generate("x", ask.model_copy(update={"stop": (text[4:6],)}))
    assert cut == text[: text.index(text[4:6])]
    assert pipeline.generate("") is not None  # no text at all is a prompt too
    with pytest.raises(InputError, match="this model cannot translate: it is a language model"):
        pipeline.translate(["x"])


def test_what_does_not_fit_is_said(tokenizer: Tokenizer) -> None:
    model = Transformer(width=16, depth=1, heads=2, hidden=8).sized(tokenizer.size).build()
    pipeline = Translate(longest=5).pipeline(model, tokenizer)
    with pytest.raises(InputError, match="has 9 tokens, the model was trained on at most 4.*cut it into sentences"):
        pipeline.translate(["x", "xxxxxxxxx"])
    both_ways = Encoder.Config(width=8, depth=1).sized(tokenizer.size).build()
    with pytest.raises(ConfigError, match="must predict the next token from those before it, Encoder does not"):
        Causal().must_fit(both_ways)
    with pytest.raises(ConfigError, match="must encode a source, then decode looking back only; Encoder does not"):
        Translate().must_fit(both_ways)
    with pytest.raises(ConfigError, match="from those before it, Seq2seq does not"):
        Causal().must_fit(model)
    with pytest.raises(ConfigError, match="names a vocabulary of 7, the tokenizer has"):
        Decoder.Config(vocabulary=7, width=8, depth=1).sized(tokenizer.size)
    assert Batch.shifted([np.array([1, 2, 3], np.int32)]).tokens == 2
