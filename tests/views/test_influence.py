"""Influence of mixers: probes beside all unit vectors, zeros where a token cannot see, models read layer by layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.cases import Case
from heed.core.config import kind_of
from heed.core.contract import MixerConfig
from heed.core.errors import InputError
from heed.mixers import MIXERS, Attention, Lstm
from heed.models import Decoder
from heed.parts.masks import Window
from heed.pipelines.attentions import Inspected
from heed.views import influence_of
from heed.views.influence import correlation, influences_of

WIDTH, TOKENS = 24, 12
FLAT = 0.3  # spread of an influence, in units of its mean, below which all tokens count alike (Fourier)
CONFIGS = {kind_of(config): config.samples()[0] for config in MIXERS}


def case(tokens: int = TOKENS) -> Case:
    return Case.make(WIDTH, rows=1, tokens=tokens, source=tokens)


def jacobian(config: MixerConfig, made: Case) -> Tensor:
    """Norms of the blocks, by torch's own Jacobian. [T, T]"""
    torch.manual_seed(0)
    mixer, where = config.build(WIDTH).double().eval(), made.where(0, made.x.shape[1])
    blocks: Tensor = torch.autograd.functional.jacobian(lambda x: mixer(x, where)[0], made.x)
    return blocks[0, :, :, 0].square().sum((1, 3)).sqrt().float()


def asked(config: MixerConfig, made: Case, *, exact: bool = False) -> Tensor:
    torch.manual_seed(0)
    return influence_of(config.build(WIDTH).double().eval(), made.x, made.where(0, made.x.shape[1]), exact=exact)


@pytest.mark.parametrize("kind", CONFIGS)
def test_probes_are_near_the_exact_influence_which_is_that_of_the_jacobian(kind: str) -> None:
    made, config = case(), CONFIGS[kind]
    wanted, exact, probes = jacobian(config, made), asked(config, made, exact=True), asked(config, made)
    torch.testing.assert_close(exact, wanted, rtol=1e-5, atol=1e-7)
    assert bool(wanted.any())
    if float(exact.std() / exact.mean()) > FLAT:
        assert correlation(probes, exact) >= 0.95
    else:  # nothing stands out, so that a correlation would be that of noise
        assert float((probes - exact).norm() / exact.norm()) < 0.2
    if config.build(WIDTH).streams:
        for found in (exact, probes):
            assert not found.triu(1).any()  # exactly


def test_a_window_is_seen_as_one() -> None:
    found = asked(Attention.Config(heads=2, mask=Window(back=3)), case())
    assert bool((found.tril().triu(-3) > 0)[torch.ones(TOKENS, TOKENS).tril().triu(-3) > 0].all())
    assert not found.tril(-4).any()


def test_more_probes_come_nearer_and_the_seed_decides() -> None:
    made, config = case(), CONFIGS["lstm"]
    torch.manual_seed(0)
    mixer, where = config.build(WIDTH).double().eval(), made.where(0, TOKENS)
    exact = influence_of(mixer, made.x, where, exact=True)
    errors = [float((influence_of(mixer, made.x, where, probes=n) - exact).norm()) for n in (1, 64)]
    assert errors[1] < errors[0]
    assert torch.equal(influence_of(mixer, made.x, where, seed=3), influence_of(mixer, made.x, where, seed=3))
    with pytest.raises(InputError, match="at least one probe"):
        influence_of(mixer, made.x, where, probes=0)


def test_batches_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, config = case(), CONFIGS["attention"]
    whole = asked(config, made)
    monkeypatch.setattr("heed.views.influence.AT_ONCE", 1)  # a row at a time
    torch.testing.assert_close(asked(config, made), whole)


def test_every_layer_of_a_model_is_asked_about_the_stream_that_it_gets() -> None:
    mixers = (Lstm.Config(), Attention.Config(heads=2))
    model = Decoder.Config(vocabulary=7, width=8, depth=3, mixer=mixers).build().eval()
    reading = Inspected(torch.tensor([[1, 2, 3, 4]]), ("a", "b", "c", "d"))
    found = influences_of(model, reading, exact=True)
    assert [(layer.part, layer.number, layer.rows) for layer in found] == [
        ("influence", n, tuple("abcd")) for n in range(3)
    ]
    assert all(layer.weights.shape == (1, 4, 4) and not layer.weights.triu(1).any() for layer in found)
    (last,) = influences_of(model, reading, layer=2, exact=True)
    assert torch.equal(last.weights, found[2].weights)
    assert not torch.equal(found[0].weights, found[2].weights)
    with pytest.raises(InputError, match="no layer 3; layers are counted from 0 to 2"):
        influences_of(model, reading, layer=3)
