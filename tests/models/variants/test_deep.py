"""The deep character Transformer: positions at every layer, and what it is asked while it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.models import DeepDecoder
from heed.models.variants.deep import Placed
from heed.parts.residual.wiring import PreNorm
from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.tasks import Causal
from heed.train import checkpoint, train
from tests.train.support import language_model, metrics, resumed, same_run
from tests.train.test_resume import stop_after

TINY = DeepDecoder.Config(vocabulary=11, width=16, depth=4, places=20)


def built(config: DeepDecoder.Config = TINY) -> DeepDecoder:
    torch.manual_seed(0)
    return config.build().double()


def placed(model: DeepDecoder) -> list[Placed]:
    return [cast(Placed, block) for block in model.stack.layers]


def streams(model: DeepDecoder, tokens: Tensor) -> list[Tensor]:
    """After every layer, from its parts: x + P_l, then attention and feed-forward, each with its norm after it."""
    x, made = model.embeddings.table(tokens), list[Tensor]()
    for block in placed(model):
        x = x + block.place.table[: tokens.shape[1]]
        for norm, part in zip(block.wiring.norms, block.parts, strict=True):
            x = norm(x + part(x, Where.run(*tokens.shape))[0])
        made.append(x)
    return made


def test_every_layer_has_positions_of_its_own() -> None:
    model, tokens = built().eval(), torch.randint(11, (2, 7))
    scores, _ = model(tokens, Where.run(2, 7))
    assert torch.allclose(scores, model.head(streams(model, tokens)[-1]), rtol=0, atol=1e-13)
    assert len({id(block.place.table) for block in placed(model)}) == 4


@pytest.mark.parametrize(
    ("progress", "layers"),
    [(0.0, [1, 2, 3, 4]), (0.124, [1, 2, 3, 4]), (0.125, [2, 3, 4]), (0.26, [3, 4]), (0.4, [4]), (0.5, [4]), (1, [4])],
)
def test_the_loss_is_its_equation(progress: float, layers: list[int]) -> None:
    """Layer l of 4 takes part until l/8 of the training is done; of the token after the next half the loss counts."""
    model, task = built().train(), Causal(context=8)
    rows = [torch.arange(9).numpy() % 11, (torch.arange(6).numpy() * 3) % 11]
    batch = replace(task.batch([(row.astype("int32"),) for row in rows]), progress=progress)
    loss = task.loss(model, batch)
    made, heads = streams(model, batch.inputs.tokens), list(model.asides)
    wanted, nats = torch.zeros(()).double(), torch.zeros(()).double()
    for layer in layers:
        for ahead in (1, 2):
            head = model.head if (layer, ahead) == (4, 1) else heads[2 * (layer - 1) + (2 - ahead)]
            for row, ids in enumerate(rows):
                for t in range(len(ids) - ahead):
                    one = cross_entropy(head(made[layer - 1][row, t]), torch.tensor(int(ids[t + ahead])))
                    wanted = wanted + one * (1 if ahead == 1 else 0.5)
                    nats = nats + one * (layer == 4 and ahead == 1)
    assert torch.allclose(loss.total, wanted, rtol=1e-12)
    assert torch.allclose(loss.nats, nats, rtol=1e-12)
    plain = task.loss(model.eval(), batch)
    assert torch.allclose(plain.total, nats, rtol=1e-12)  # in use, only the last layer's next token counts


def test_every_weight_has_a_gradient_whoever_takes_part() -> None:
    """Several processes wait for all of them."""
    model, task = built(TINY.model_copy(update={"wiring": PreNorm()})).train(), Causal()
    batch = replace(task.batch([(torch.arange(9).numpy().astype("int32"),)]), progress=0.9)
    task.loss(model, batch).total.backward()
    assert all(weight.grad is not None for weight in model.parameters())
    assert not model.asides[0].weight.grad.any()  # type: ignore[union-attr,operator]
    assert model.asides[6].weight.grad.any()  # type: ignore[union-attr,operator]


def test_there_is_no_place_beyond_the_last() -> None:
    model = built()
    assert model.longest == 20
    with pytest.raises(InputError, match="position 20 is outside 0 to 19"):
        model(torch.zeros(1, 21, dtype=torch.long), Where.run(1, 21))
    for wrong in ({"places": 0}, {"targets": 0}, {"target_weight": 0.0}):
        with pytest.raises(ConfigError, match="greater than 0"):
            DeepDecoder.Config(vocabulary=5, width=8, depth=1, **wrong)


def test_one_target_needs_fewer_heads() -> None:
    model = built(TINY.model_copy(update={"targets": 1}))
    assert len(model.asides) == 3
    asked = list(model.train().rehearse(torch.zeros(1, 5, dtype=torch.long), Where.run(1, 5), 0.0))
    assert [(aside.ahead, aside.weight) for aside in asked] == [(1, 1.0)] * 4
    assert asked[-1].head is model.head


DEEP = ("model.kind=deep", "model.width=16", "model.depth=2", "model.places=64", "training.accumulate=2")


def test_it_trains_and_goes_on_to_the_last_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the layers are dropped between the checkpoint and the end, as if it had never been stopped."""
    train(language_model(*DEEP), tmp_path / "whole", Silent())
    with monkeypatch.context() as patch:

        def full() -> None:
            raise OSError(28, "no space")

        stop_after(patch, len(checkpoint.PARTS) + 1, full)
        with pytest.raises(Exception, match="no space"):
            train(language_model(*DEEP), tmp_path / "cut", Silent())
    resumed(tmp_path / "cut")
    assert same_run(tmp_path / "whole", tmp_path / "cut")
    losses = [loss for _, loss in metrics(tmp_path / "whole", "loss")]
    assert max(losses) < 2 * 5.6  # nats of one next token over 256 bytes, not of all that is asked


def test_the_recipe_is_whole() -> None:
    recipe = Recipe.read(find("deep"))
    model = recipe.model.sized(65)
    assert isinstance(model, DeepDecoder.Config)
    assert model.build().longest == 256
