"""Permutation language modelling: who is predicted from whom, and that nothing but the seed decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from heed.core.errors import ConfigError, InputError
from heed.decode import Beam
from heed.models import Decoder, XLNet, XLNetEncoder
from heed.parts.outputs.loss import NO_LABEL
from heed.pipelines import GenerationConfig
from heed.tasks import Batch, Permute
from heed.tasks.permute import targets
from heed.text import Byte, Tokenizer
from tests.tasks.test_tasks import Some

TEXTS = Some(("the quick brown fox jumps over the lazy dog",), ("hello world",), ("x",))


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Byte().train(["x"])


def model_of(tokenizer: Tokenizer, **changes: Any) -> XLNet:
    torch.manual_seed(0)
    return XLNet.Config(width=16, depth=2, **changes).sized(tokenizer.size).build().double().eval()


def test_an_order_is_part_of_its_item_and_follows_from_round_and_seed(tokenizer: Tokenizer) -> None:
    corpus = Permute(context=8).corpus(TEXTS, tokenizer)

    def plain(number: int, seed: int) -> list[Any]:
        return [[part.tolist() for part in item] for item in corpus.round(number, seed)]

    assert plain(2, 7) == plain(2, 7)
    orders = [[order for _, order in plain(number, seed)] for number, seed in ((0, 0), (1, 0), (0, 1))]
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]
    whole = [[order for order in some if len(order) == 9] for some in orders]  # windows that only the draw tells apart
    assert all(order not in whole[0] for some in whole[1:] for order in some)
    for tokens, order in corpus.once():
        assert sorted(order.tolist()) == list(range(len(tokens)))
    assert [order.tolist() for _, order in corpus.once()] == [order.tolist() for _, order in corpus.once()]


@pytest.mark.parametrize(
    ("length", "share", "known"), [(9, 3, 6), (9, 6, 8), (9, 1, 1), (2, 6, 1), (2, 1, 1), (12, 5, 10)]
)
def test_so_many_are_predicted(length: int, share: int, known: int) -> None:
    assert Permute(share=share).known(length) == known


def test_the_last_of_the_order_are_predicted(tokenizer: Tokenizer) -> None:
    task = Permute(context=8, share=3)
    items = task.corpus(TEXTS, tokenizer).once()
    assert len({len(tokens) for tokens, _ in items}) > 1  # some row is padded
    batch = task.batch(items)
    asked, labels = targets(batch)
    assert batch.tokens == int((labels != NO_LABEL).sum()) == int((batch.labels != NO_LABEL).sum())
    for row, (tokens, order) in enumerate(items):
        last = {
            int(rank): int(token) for rank, token in zip(order, tokens, strict=True) if rank >= task.known(len(order))
        }
        found = asked.order[row] >= 0
        assert dict(zip(asked.order[row, found].tolist(), labels[row, found].tolist(), strict=True)) == last
        places = {int(rank): place for place, rank in enumerate(order)}
        assert asked.position[row, found].tolist() == [places[rank] for rank in asked.order[row, found].tolist()]
        assert batch.inputs.where.order[row, : len(tokens)].tolist() == order.tolist()
        assert bool((batch.inputs.where.order[row, len(tokens) :] == -1).all())


def test_tokens_that_are_given_may_all_see_one_another(tokenizer: Tokenizer) -> None:
    task = Permute(context=8, share=3, mutual=True)
    items = task.corpus(TEXTS, tokenizer).once()
    order = task.batch(items).inputs.where.order
    for row, (_, drawn) in enumerate(items):
        known = task.known(len(drawn))
        wanted = np.where(drawn < known, 0, drawn - known + 1)
        assert order[row, : len(drawn)].tolist() == wanted.tolist()


@pytest.mark.parametrize("mutual", [False, True])
@torch.no_grad()
def test_a_prediction_knows_just_what_was_revealed_before(mutual: bool, tokenizer: Tokenizer) -> None:
    task, model = Permute(context=12, share=2, mutual=mutual), model_of(tokenizer)
    batch = task.batch(task.corpus(TEXTS, tokenizer).once()[:2])
    asked, labels = targets(batch)

    def scores(tokens: torch.Tensor) -> torch.Tensor:
        stream, head = model.asked(tokens, batch.inputs.where, asked)
        return head(stream)

    before, order = scores(batch.inputs.tokens), batch.inputs.where.order
    for column in range(order.shape[1]):
        other = batch.inputs.tokens.clone()
        other[:, column] = (other[:, column] + 1) % tokenizer.size
        changed = (scores(other) - before).abs().amax(-1) > 1e-12
        assert torch.equal(changed, (asked.order > order[:, column : column + 1]) & (labels != NO_LABEL))


def test_a_batch_loses_what_its_rows_lose_alone_and_every_weight_learns(tokenizer: Tokenizer) -> None:
    task, model = Permute(context=8, share=3), model_of(tokenizer)
    items = task.corpus(TEXTS, tokenizer).once()
    batch = task.batch(items)
    together = task.loss(model, batch)
    alone = sum(float(task.loss(model, task.batch([item])).nats) for item in items)
    assert float(together.nats) == pytest.approx(alone, rel=1e-12)
    together.total.backward()
    still = [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert still == []
    assert float(task.loss(model, batch.silent()).nats) == 0.0


def test_models_that_cannot_are_refused(tokenizer: Tokenizer) -> None:
    task = Permute()
    task.must_fit(model_of(tokenizer))
    others = Decoder.Config(vocabulary=9, width=16, depth=1), XLNetEncoder.Config(vocabulary=9, width=16, depth=1)
    for config in others:
        with pytest.raises(
            ConfigError, match=f"which {config.build().__class__.__name__} cannot; use model.kind=xlnet"
        ):
            task.must_fit(config.build())
    with pytest.raises(ConfigError, match="use model.kind=xlnet"):
        task.loss(others[0].build(), Batch.shifted([np.array([1, 2], np.int32)]))
    with pytest.raises(ConfigError):
        Permute(share=0)


def test_in_use(tokenizer: Tokenizer) -> None:
    task = Permute(context=8)
    pipeline = task.pipeline(model_of(tokenizer).float(), tokenizer)
    assert pipeline.generate("hello", GenerationConfig(max_new_tokens=3)) == pipeline.generate(
        "hello", GenerationConfig(max_new_tokens=3)
    )
    scores = task.evaluate(pipeline, TEXTS)
    assert set(scores) == {"loss", "perplexity", "tokens", "bits_per_byte", "bytes", "reading_loss"}
    assert float(scores["perplexity"]) == pytest.approx(float(np.exp(float(scores["loss"]))))
    assert scores["bytes"] == sum(len(text) for (text,) in TEXTS)
    with pytest.raises(InputError, match="evaluated without generating text"):
        task.evaluate(pipeline, TEXTS, GenerationConfig(strategy=Beam()))
