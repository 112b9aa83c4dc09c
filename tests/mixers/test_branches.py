"""Branches: each mixer gets its channels and nothing else; reach, memory and refusals follow from the parts."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Given, Reach, Where
from heed.core.errors import CannotStream, ConfigError
from heed.core.laws import LAWS, Case
from heed.core.spec import price
from heed.core.state import Seen
from heed.mixers import Attention, Branches, Convolution, Cross, DynamicConv, Infini, LightConv
from heed.models import Decoder
from heed.parts.look import look
from heed.parts.masks import Whole, Window

WIDTH = 24
LSRA = Branches.Config(mixers=(Attention.Config(heads=2), DynamicConv.Config(kernel=5)), channels=(8, 16))


@torch.no_grad()
def test_outputs_stand_side_by_side() -> None:
    mixer = LSRA.build(WIDTH).double()
    x, where = torch.randn(2, 7, WIDTH, dtype=torch.float64), Where.run(2, 7)
    y, _ = mixer(x, where)
    far, near = mixer.parts
    assert torch.equal(y[..., :8], far(x[..., :8], where)[0])
    assert torch.equal(y[..., 8:], near(x[..., 8:], where)[0])


def test_reach_and_memory_follow_from_the_parts() -> None:
    config = Branches.Config(mixers=(Attention.Config(heads=2, mask=Window(back=3)), Convolution.Config(kernel=6)))
    mixer = config.build(WIDTH)
    assert mixer.reach == Reach(5, 0)
    assert price(mixer.spec(), 100) == sum(price(part.spec(), 100) for part in mixer.parts)
    assert price(mixer.spec(), 100) == 3 * (2 * 12 * 4 + 16) + 5 * (12 * 4 + 16)
    assert LSRA.build(WIDTH).reach == Reach(None, 0)


def test_one_that_looks_ahead_stops_all() -> None:
    mixer = Branches.Config(mixers=(Attention.Config(heads=2), LightConv.Config(causal=False))).build(WIDTH)
    assert mixer.spec() == ()
    with pytest.raises(CannotStream, match="Branches looks 1 tokens ahead"):
        mixer.start(1)


@torch.no_grad()
def test_a_source_is_cut_like_the_stream() -> None:
    mixer = Branches.Config(mixers=(Convolution.Config(), Cross.Config(heads=2)), channels=(8, 16)).build(WIDTH)
    source, x = torch.randn(2, 4, WIDTH), torch.randn(2, 3, WIDTH)
    stamps = Where.run(2, 4)
    y, _ = mixer(x, Where.run(2, 3).give(encoder_output=Seen.of(stamps, source)))
    _, cross = mixer.parts
    alone, _ = cross(x[..., 8:], Where.run(2, 3).give(encoder_output=Seen.of(stamps, source[..., 8:].contiguous())))
    assert torch.allclose(y[..., 8:], alone, rtol=0, atol=1e-6)  # the same sums; torch may take them in another order
    state = mixer.start(2, Given(encoder_output=Seen.of(stamps, source)))
    made, _ = mixer(x, Where.run(2, 3), state)
    assert torch.allclose(made, y, rtol=0, atol=1e-6)


def test_branches_may_branch_and_remember_matrices() -> None:
    inner = Branches.Config(mixers=(Infini.Config(heads=2, segment=3), LightConv.Config()))
    mixer = Branches.Config(mixers=(inner, Convolution.Config()), channels=(16, 8)).build(WIDTH)
    for law in LAWS:
        finding = law(mixer, Case.make(WIDTH, rows=2, tokens=7))
        assert finding.holds, finding


@torch.no_grad()
def test_each_branch_can_be_looked_at_in_a_model() -> None:
    model = Decoder.Config(vocabulary=11, width=WIDTH, depth=2, mixer=LSRA).build()
    with look(model, "*.mixers.0.weights", "*.mixers.1.kernels") as seen:
        model(torch.zeros(1, 5, dtype=torch.long), Where.run(1, 5))
    assert len(seen) == 4
    assert Decoder.Config.load(model.config.dump()) == model.config


def test_channels_must_make_up_the_stream() -> None:
    pair = (Attention.Config(heads=2), LightConv.Config())
    with pytest.raises(ConfigError, match="branches of 8 \\+ 8 = 16 channels do not make up a stream of 24"):
        Branches.Config(mixers=pair, channels=(8, 8)).build(WIDTH)
    with pytest.raises(ConfigError, match="2 mixers need as many channels, not 3"):
        Branches.Config(mixers=pair, channels=(8, 8, 8))
    with pytest.raises(ConfigError, match="width 25 does not divide into 2 equal branches; name their channels"):
        Branches.Config(mixers=pair).build(25)
    with pytest.raises(ConfigError, match="mixers.1.kind is 'lightcnv'; did you mean lightconv"):
        Branches.Config.load({"mixers": [{"kind": "attention"}, {"kind": "lightcnv"}]})
    with pytest.raises(ConfigError, match="mixers is missing"):
        Branches.Config.load({})
    one = Branches.Config(mixers=Attention.Config(mask=Whole()))
    assert one.build(WIDTH).channels == (WIDTH,)
