"""RWKV and Mamba as whole models, what they remember; and blocks whose feed-forward remembers or is not there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case, Law
from heed.core.spec import price
from heed.core.state import nbytes
from heed.mixers import Attention, Mamba, Rwkv
from heed.models import RWKV, Decoder, Embedded, MambaDecoder, Retro, XLNet
from heed.parts.feedforward import Absent, ChannelMix, FeedForward
from heed.parts.layers.norms import LayerNorm
from heed.parts.residual.wiring import PreNorm, Rescaled

PLANS = [RWKV(width=24, depth=2, hidden=10), MambaDecoder(width=24, depth=3, state=4)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: str(plan.kind))
def test_law_holds(law: Law, plan: RWKV | MambaDecoder) -> None:
    torch.manual_seed(0)
    finding = law(Embedded(plan.sized(13).build()), Case.make(24, rows=2))
    assert finding.holds, finding


def test_what_rwkv_is_made_of() -> None:
    model = RWKV(width=16, depth=3).sized(29).build()
    assert isinstance(model.embeddings.norm, nn.LayerNorm)
    assert isinstance(model.stack.ends.final, nn.LayerNorm)
    assert model.head.weight is not model.embeddings.table.weight
    layers = model.stack.layers
    assert all(isinstance(layer.mixer, Rwkv) and isinstance(layer.feedforward, ChannelMix) for layer in layers)
    assert [config.layer for config in model.config.mixer] == [0, 1, 2]  # type: ignore[union-attr]
    assert price(model.spec(), 10**6) == 3 * 5 * 16 * 4  # five vectors per layer, whatever the length


def test_what_mamba_is_made_of() -> None:
    model = MambaDecoder(width=16, depth=3, state=4, kernel=3).sized(29).build()
    assert model.head.weight is model.embeddings.table.weight
    for layer in model.stack.layers:
        assert isinstance(layer.mixer, Mamba)
        assert layer.parts == (layer.mixer,)
        assert len(layer.wiring.norms) == 1
    assert price(model.spec(), 10**6) == 3 * (2 + 4) * 32 * 4


@torch.no_grad()
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: str(plan.kind))
def test_a_long_prompt_costs_no_memory(plan: RWKV | MambaDecoder) -> None:
    model = plan.sized(13).build()
    held = set()
    for tokens in (1, 2000):
        _, state = model(torch.randint(13, (1, tokens)), Where.run(1, tokens), model.start(1))
        held.add(nbytes(state))
    assert held == {price(model.spec(), 2000)}


@torch.no_grad()
def test_a_stream_is_halved_and_only_norms_notice() -> None:
    """With norms that have no eps it is as if nothing were halved; between blocks the stream is smaller."""
    torch.manual_seed(0)
    norm = LayerNorm(eps=1e-30)
    config = Decoder.Config(vocabulary=13, width=24, depth=5, norm=norm, wiring=PreNorm())
    halved = config.model_copy(update={"wiring": Rescaled(every=2, eps=1e-30)})
    plain, other = config.build().double(), halved.build().double()
    other.load_state_dict(plain.state_dict())
    x, where = torch.randn(1, 7, 24, dtype=torch.float64), Where.run(1, 7)
    assert torch.allclose(plain.mix(x, where)[0], other.mix(x, where)[0], rtol=0, atol=1e-12)
    one = two = x
    for number, (a, b) in enumerate(zip(plain.stack.layers, other.stack.layers, strict=True)):
        one, two = a(one, where)[0], b(two, where)[0]
        assert torch.allclose(one / 2 ** ((number + 1) // 2), two, rtol=0, atol=1e-12)


def test_a_stream_that_is_never_halved_is_a_plain_one() -> None:
    config = Decoder.Config(vocabulary=13, width=24, depth=2, norm=LayerNorm(eps=0.1), wiring=Rescaled())
    model = config.build()
    assert isinstance(model.stack.ends.final, nn.LayerNorm)
    assert model.stack.ends.final.eps == 1e-5
    assert type(model.stack.layers[1].wiring) is type(
        config.model_copy(update={"wiring": PreNorm()}).build().stack.layers[1].wiring
    )


def test_a_feedforward_may_remember_or_be_absent_in_any_model() -> None:
    config = Decoder.Config(
        vocabulary=13,
        width=24,
        depth=3,
        mixer=(Attention.Config(),),
        feedforward=(ChannelMix.Config(), Absent.Config(), FeedForward.Config()),
    )
    model = config.build()
    assert [len(layer.parts) for layer in model.stack.layers] == [2, 1, 2]
    assert price(model.spec(), 10) == 3 * 10 * (2 * 24 * 4 + 16) + 24 * 4
    assert Decoder.Config.load(config.dump()) == config


def test_models_that_need_a_feedforward_say_so() -> None:
    with pytest.raises(ConfigError, match="must look at one token alone"):
        XLNet.Config(vocabulary=13, width=24, depth=1, feedforward=ChannelMix.Config()).build()
    with pytest.raises(ConfigError, match="a layer that looks at neighbours needs a feed-forward"):
        Retro.Config(vocabulary=13, width=24, depth=1, feedforward=Absent.Config())
