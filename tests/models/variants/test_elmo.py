"""ELMo: two directions, one table, one head; what each token predicts; the weighted mix of all layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.spec import price
from heed.mixers import Attention, Infini, Lstm
from heed.models import Elmo, ElmoEncoder
from heed.models.variants.elmo import depths
from heed.parts.masks import Whole, Window
from heed.parts.outputs.heads import Tagged
from heed.parts.recurrence.reverse import Reversed
from heed.parts.residual.wiring import ResiDual
from heed.pipelines.base import Padded
from heed.show.progress import Silent
from heed.tasks import Batch, Causal
from heed.train import train
from tests.train.support import language_model, metrics

CONFIG = Elmo.Config(vocabulary=11, width=12, depth=2, mixer=Attention.Config(heads=2))
ENCODER = ElmoEncoder.Config(vocabulary=11, width=12, depth=2, mixer=Attention.Config(heads=2))
TOKENS = torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(0))
EXACT = 1e-13


def test_the_loss_is_that_of_both_directions() -> None:
    """-Σ_t log p(x_t | x_<t) - Σ_t log p(x_t | x_>t), token by token, each from its own part of the text alone."""
    torch.manual_seed(0)
    model = CONFIG.build().double().train()
    rows = [TOKENS[0].int().numpy(), TOKENS[1, :4].int().numpy()]
    batch = Batch.shifted(rows)
    loss = Causal().loss(model, batch)
    forward = backward = 0.0
    for row in rows:
        text = torch.from_numpy(row).long()
        inputs = text[:-1]
        for t in range(len(inputs)):
            before, _ = model(inputs[None, : t + 1], Where.run(1, t + 1))
            forward -= float(before[0, -1].log_softmax(-1)[text[t + 1]].detach())
            if t:
                rest = inputs[t:].flip(0)[
                    None
                ]  # a language model of the reversed text: it has seen x_t and what follows
                x = model.embeddings.embed(rest, Where.run(1, len(inputs) - t))
                stream, _ = model.backward(x, Where.run(1, len(inputs) - t))
                backward -= float(model.head(stream)[0, -1].log_softmax(-1)[text[t - 1]].detach())
    assert float(loss.nats) == pytest.approx(forward, rel=1e-12)
    assert float(loss.total.detach()) == pytest.approx(forward + backward, rel=1e-12)
    assert float(Causal().loss(model.eval(), batch).total.detach()) == pytest.approx(forward, rel=1e-12)


def test_one_table_and_one_head_serve_both_directions() -> None:
    model = CONFIG.build().train()
    batch = Batch(Padded.of([TOKENS[0].int().numpy()]), TOKENS[:1].roll(-1, 1), None, 6)
    Causal().loss(model, batch).total.backward()
    assert all(weight.grad is not None and bool((weight.grad != 0).any()) for weight in model.backward.parameters())
    assert model.head.weight is model.embeddings.table.weight
    silent = Causal().loss(model, batch.silent())
    assert not bool(silent.total)  # a process without rows takes part with nothing


def encoding() -> ElmoEncoder:
    torch.manual_seed(0)
    encoder = ENCODER.build().double().eval()
    with torch.no_grad():
        encoder.share.copy_(torch.randn(3))
        encoder.gain.fill_(0.7)
    return encoder


def test_a_reading_is_the_weighted_mix_of_all_layers() -> None:
    """γ Σ_l s_l [forward_l ; backward_l] (Peters et al. 2018, eq. 1), the backward half from the reversed text."""
    encoder, where = encoding(), Where.run(2, 6)
    x = encoder.embeddings(TOKENS, where)
    share = encoder.share.softmax(0)
    ahead, back = depths(encoder.stack, x, where), depths(encoder.backward, x.flip(1), where)
    wanted = torch.zeros(2, 6, 24, dtype=torch.float64)
    for layer in range(3):
        for t in range(6):
            wanted[:, t] += share[layer] * torch.cat((ahead[layer][:, t], back[layer][:, 5 - t]), -1)
    made, _ = encoder(TOKENS, where)
    assert float((made - 0.7 * wanted).detach().abs().max()) < EXACT


def test_ragged_rows_are_turned_each_by_itself() -> None:
    encoder = encoding()
    made, _ = encoder(TOKENS, Where.ragged([6, 4]))
    assert float((made[1, :4] - encoder(TOKENS[1:, :4], Where.run(1, 4))[0][0]).detach().abs().max()) < EXACT
    turn = Reversed.of(Where.ragged([6, 4], start=3))
    assert turn.where.order.tolist() == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, -1, -1]]
    assert torch.equal(turn(turn(TOKENS)), TOKENS)
    assert turn(TOKENS)[1].tolist() == [*TOKENS[1, :4].flip(0).tolist(), *TOKENS[1, 4:].tolist()]


def test_a_reader_takes_the_weights_of_a_language_model() -> None:
    torch.manual_seed(0)
    model = CONFIG.build().eval()
    asked = ENCODER.model_copy(update={"heads": (Tagged.Config(labels=3),)})
    encoder = ElmoEncoder.of(model, asked).eval()
    where = Where.run(2, 6)
    for name in ("embeddings.table.weight", "stack.blocks.1.mixer.key.weight", "backward.blocks.0.mixer.out.bias"):
        assert torch.equal(encoder.state_dict()[name], model.state_dict()[name])
    assert encoder.heads["tagged"](encoder(TOKENS, where)[0], where).shape == (2, 6, 3)


@torch.no_grad()
def test_by_default_each_direction_is_an_lstm() -> None:
    """Peters et al. 2018, sec. 3.1. What it remembers does not grow; both halves read a text as torch's cell does."""
    torch.manual_seed(0)
    model = Elmo.Config(vocabulary=11, width=12, depth=2).build().double().eval()
    assert price(model.spec(), 1) == price(model.spec(), 10**6) == 2 * 2 * 12 * 8
    encoder = ElmoEncoder.of(model, ElmoEncoder.Config(vocabulary=11, width=12, depth=2)).double().eval()
    for stack in (model.stack, model.backward, encoder.stack, encoder.backward):
        assert all(isinstance(block.mixer, Lstm) for block in stack.layers)
    made, where = encoder(TOKENS, Where.ragged([6, 4]))[0], Where.run(1, 4)
    x, share = encoder.embeddings(TOKENS[1:, :4], where), encoder.share.softmax(0)
    ahead, back = depths(model.stack, x, where), depths(model.backward, x.flip(1), where)
    pairs = zip(share, ahead, back, strict=True)
    wanted = sum(part * torch.cat((one, other.flip(1)), -1) for part, one, other in pairs)
    assert float((made[1, :4] - wanted[0]).abs().max()) < EXACT


OTHERS = (Attention.Config(heads=2, mask=Window(back=1)), Infini.Config(heads=2, segment=3), Lstm.Config(hidden=5))


@pytest.mark.parametrize("mixer", OTHERS, ids=lambda mixer: mixer.kind)
def test_any_mixer_will_do(mixer: Attention.Config | Infini.Config | Lstm.Config) -> None:
    model = CONFIG.model_copy(update={"mixer": (mixer,)}).build().double().train()
    batch = Batch.shifted([TOKENS[0].int().numpy()])
    loss = Causal().loss(model, batch).total
    assert bool(loss.isfinite())
    encoder = ENCODER.model_copy(update={"mixer": (mixer,)}).build()
    back = 2 if isinstance(mixer, Attention.Config) else None
    assert encoder.reach == (back, back)


def test_what_cannot_be() -> None:
    both = ENCODER.model_copy(update={"mixer": (Attention.Config(heads=2, mask=Whole()),)})
    with pytest.raises(ConfigError, match="each direction of an elmo_encoder looks back only"):
        both.build()
    with pytest.raises(ConfigError, match="choose a wiring like pre or post"):
        ENCODER.model_copy(update={"wiring": ResiDual()}).build()


def test_it_trains_and_writes(tmp_path: Path) -> None:
    recipe = language_model("model.kind=elmo", "model.width=16", "model.depth=1", "training.steps=12")
    train(recipe, tmp_path / "run", Silent())
    losses = [loss for _, loss in metrics(tmp_path / "run", "valid_loss")]
    assert losses[-1] < losses[0]
