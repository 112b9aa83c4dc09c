"""Replaced tokens: what is hidden and drawn, what is told apart, and that the discriminator is what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from heed.core.errors import ConfigError, InputError
from heed.models import Electra, Encoder
from heed.parts.outputs.loss import NO_LABEL
from heed.pipelines import GenerationConfig
from heed.tasks import ReplacedTokens
from heed.tasks.pretrain.electra import sampled
from heed.text import Byte, Tokenizer
from tests.tasks.pretrain.material import examples, tokenizer, within
from tests.tasks.test_tasks import Some

FEW = Some(("The quick brown fox jumps over the lazy dog.",), ("Hello world.",), ("x y z",))
TASK = ReplacedTokens(context=24)


@pytest.fixture
def known() -> Tokenizer:
    return TASK.equip(Byte().train(["x"]))


def model_of(known: Tokenizer, **changes: Any) -> Any:
    torch.manual_seed(0)
    plan = Electra(width=16, depth=1, heads=4, generator=0.5, dropout=0.0, **changes)
    model = plan.sized(known.size).headed(TASK.head()).build().double().eval()
    TASK.must_fit(model)
    return model


def test_masks_over_many_tokens() -> None:
    """All hidden tokens are masked, 15 % of each text, rounded; every real token is a label of the discriminator."""
    task = ReplacedTokens()
    known = task.equip(tokenizer())
    items = task.corpus(examples(), known).round(0, 0)
    batch = task.batch(items)
    own = np.array([int((order >= 0).sum()) for _, order, *_ in items])
    asked = batch.labels != NO_LABEL
    assert known.mask is not None
    assert own.sum() > 100_000
    assert (asked.sum(1).numpy() == np.maximum(1, np.round(0.15 * own))).all()
    assert bool((batch.inputs.tokens[..., 0][asked] == known.mask).all())
    assert batch.asides == sum(len(item[0]) for item in items)


def test_tokens_are_drawn_as_often_as_is_predicted() -> None:
    """By the numbers that items bring, over 100,000 of them."""
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0]).expand(120_000, 4)
    number = np.random.default_rng(5).integers(np.iinfo(np.int32).max, size=120_000, dtype=np.int32)
    drawn = sampled(logits, torch.from_numpy(number) / float(np.iinfo(np.int32).max))
    for token, share in enumerate(logits[0].double().softmax(0).tolist()):
        assert within(float((drawn == token).double().mean()), share, 120_000)
    edge = sampled(logits[:2], torch.tensor([0.0, 1.0]))
    assert edge.tolist() == [0, 3]
    assert sampled(logits[:0], torch.zeros(0)).tolist() == []


def test_a_right_guess_of_the_generator_is_not_replaced(known: Tokenizer) -> None:
    """Hidden tokens that come back as they were are labelled as all others (Clark et al. 2020, section 2)."""
    model, batch = model_of(known), TASK.batch(TASK.corpus(FEW, known).once())
    assert batch.beside is not None
    logits, wrong = TASK.detected(model, batch, batch.beside.clamp(min=0))
    real = batch.beside != NO_LABEL
    assert float(wrong.detach()) == pytest.approx(float(torch.nn.functional.softplus(logits[real]).sum().detach()))


def test_the_loss_is_that_of_the_paper(known: Tokenizer) -> None:
    """-log p of hidden tokens, and 50 times how badly every token is told to be replaced or not."""
    model, batch = model_of(known), TASK.batch(TASK.corpus(FEW, known).once())
    assert known.mask is not None
    assert batch.beside is not None
    loss = TASK.loss(model, batch)
    _, fake = TASK.generated(model, batch)
    where, real, asked = batch.inputs.where, batch.inputs.where.order >= 0, batch.labels != NO_LABEL
    with torch.no_grad():
        ids = batch.inputs.tokens
        seen = model.generator.encode(ids[..., :2], where)
        logits = model.generator.heads["masked"](seen.parts[0], seen)
        nats = F.cross_entropy(logits[asked], batch.labels[asked], reduction="sum")
        read = model.discriminator.encode(torch.stack([fake, ids[..., 1]], -1), where)
        told = model.discriminator.heads["replaced"](read.parts[0], read)[real]
        wrong = F.binary_cross_entropy_with_logits(told, (fake != batch.beside)[real].double(), reduction="sum")
    assert float(loss.nats) == pytest.approx(float(nats), rel=1e-12)
    assert loss.beside is not None
    assert loss.beside.item() == pytest.approx(50 * float(wrong), rel=1e-12)
    assert bool((fake[~asked & real] == batch.beside[~asked & real]).all())  # only hidden tokens are replaced
    assert bool((fake[asked] != known.mask).any())


def test_a_batch_loses_what_its_rows_lose_alone_and_every_weight_learns(known: Tokenizer) -> None:
    """What the generator puts in depends on its text alone, however texts are put together."""
    model, items = model_of(known), TASK.corpus(FEW, known).once()
    batch = TASK.batch(items)
    together, alone = TASK.loss(model, batch), [TASK.loss(model, TASK.batch([item])) for item in items]
    assert float(together.nats) == pytest.approx(sum(float(one.nats) for one in alone), rel=1e-12)
    assert together.beside is not None
    assert together.beside.item() == pytest.approx(sum(one.beside.item() for one in alone if one.beside is not None))
    (together.total + together.beside).backward()
    still = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert still == []
    nothing = TASK.loss(model, batch.silent())
    assert not nothing.total.any()
    assert nothing.beside is not None
    assert not nothing.beside.any()


def test_the_discriminator_teaches_the_generator_nothing_but_by_embeddings(known: Tokenizer) -> None:
    model, batch = model_of(known), TASK.batch(TASK.corpus(FEW, known).once())
    beside = TASK.loss(model, batch).beside
    assert beside is not None
    beside.backward()
    shared = {id(weight) for weight in model.discriminator.parameters()}
    assert all(id(weight) in shared or weight.grad is None for weight in model.generator.parameters())
    embeddings = model.generator.embeddings, model.discriminator.embeddings
    assert len({id(one.table.weight) for one in embeddings}) == len({id(one.segment) for one in embeddings}) == 1


def test_who_calls_every_token_replaced_finds_all_that_are(known: Tokenizer) -> None:
    model = model_of(known).float()
    for name, weight in model.discriminator.heads["replaced"].named_parameters():
        weight.data.fill_(10.0 if name == "scores.bias" else 0.0)
    found = TASK.evaluate(TASK.pipeline(model, known), FEW)
    assert found["found"] == 100
    assert 0 < float(found["replaced"]) < 100
    assert found["accuracy"] == found["replaced"]


def test_in_use(known: Tokenizer) -> None:
    pipeline = TASK.pipeline(model_of(known).float(), known)
    assert pipeline.embed("hello").shape == (16,)
    found = TASK.evaluate(pipeline, FEW)
    assert found == TASK.evaluate(pipeline, FEW)
    whole = float(found["generator_loss"]) + 50 * float(found["discriminator_loss"])
    assert float(found["loss"]) == pytest.approx(whole)
    assert 0 < float(found["replaced"]) < 20
    with pytest.raises(InputError, match="nothing is generated"):
        TASK.evaluate(pipeline, FEW, GenerationConfig())


def test_models_that_do_not_fit(known: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="Encoder has none; use model.kind=electra.*learns by task.kind=masked"):
        TASK.must_fit(Encoder.Config(vocabulary=9, width=16, depth=1).build())
    with pytest.raises(ConfigError, match="the model has places for 20"):
        TASK.must_fit(Electra(width=16, depth=1, length=20, vocabulary=9).build())
