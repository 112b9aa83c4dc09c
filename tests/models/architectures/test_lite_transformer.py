"""Lite Transformer as a plan: what stands in which half of the channels, kernels by layer, and that it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Law
from heed.mixers import Attention, Branches, Cross, DynamicConv, LightConv
from heed.models import Embedded, Encoder, LiteTransformer, Seq2seq, familiar
from heed.models.architectures.lite_transformer import lsra
from heed.parts.feedforward import FeedForward
from heed.parts.masks import Causal, Whole
from heed.parts.residual.wiring import PostNorm, PreNorm
from heed.runs import Recipe, find
from heed.show.progress import Silent
from heed.train import train
from tests.train.support import metrics, recipe

SMALL: dict[str, Any] = {"width": 24, "depth": 2, "heads": 2, "kernels": (3, 5), "dropout": 0.0}


def branches(config: Seq2seq.Config) -> tuple[list[Any], list[Any]]:
    """The mixers of every layer of both sides: pairs of one that looks far and one that slides."""
    encoder, decoder = (
        [mixer.branches for mixer in side.mixer if isinstance(mixer, Branches.Config)]
        for side in (config.encoder, config.decoder)
    )
    return encoder, decoder


def test_it_is_what_the_paper_says() -> None:
    """Wu et al. 2020, sec. 4 and 5.1: attention and a convolution on half of the channels each, no bottleneck."""
    config = LiteTransformer(width=32, depth=3, heads=4).sized(29)
    model = config.build()
    for stack in (model.encoder.stack, model.decoder.stack):
        for layer in stack.layers:
            assert isinstance(layer.mixer, Branches)
            assert layer.mixer.channels == (16, 16)
            far, near = layer.mixer.parts
            assert isinstance(far, Attention)
            assert isinstance(near, DynamicConv)
            assert isinstance(layer.feedforward, FeedForward)
            assert layer.feedforward.get_parameter("up.weight").shape == (32, 32)  # as wide as the stream
    assert isinstance(model.encoder, Encoder)
    assert model.encoder.embeddings.table.weight is model.decoder.embeddings.table.weight is model.decoder.head.weight
    assert isinstance(config.decoder.cross, Cross.Config)
    assert config.encoder.wiring == config.decoder.wiring == PostNorm()


def test_kernels_grow_layer_by_layer_and_the_last_one_stays() -> None:
    for side in branches(LiteTransformer(depth=6).sized(9)):
        assert [near.kernel for _, near in side] == [3, 7, 15, 31, 31, 31]
    for side in branches(LiteTransformer(depth=2, kernels=(5,), convolution="light").sized(9)):
        assert [(type(near), near.kernel) for _, near in side] == [(LightConv.Config, 5)] * 2


def test_one_side_looks_both_ways_the_other_back() -> None:
    encoder, decoder = branches(LiteTransformer(weight_dropout=0.2).sized(9))
    assert {(far.mask, near.causal) for far, near in encoder} == {(Whole(), False)}
    assert {(far.mask, near.causal) for far, near in decoder} == {(Causal(), True)}
    assert {part.dropout for pair in (*encoder, *decoder) for part in pair} == {0.2}
    model = LiteTransformer(**SMALL).sized(9).build()
    assert model.decoder.streams
    assert not model.encoder.streams
    assert model.encoder.reach.ahead is None


@torch.no_grad()
def test_halves_do_not_meet_in_a_mixer() -> None:
    """y = [attention(x[:d/2]) ; convolution(x[d/2:])]: a channel of one half changes nothing in the other."""
    torch.manual_seed(0)
    mixer = lsra(2, 3, causal=True).build(12).double().eval()
    x, where = torch.randn(2, 9, 12, dtype=torch.float64), Where.run(2, 9)
    y, _ = mixer(x, where)
    far, near = mixer.parts
    assert torch.equal(y[..., :6], far(x[..., :6], where)[0])
    assert torch.equal(y[..., 6:], near(x[..., 6:], where)[0])
    other = x.clone()
    other[..., 6:] += 1
    assert torch.equal(mixer(other, where)[0][..., :6], y[..., :6])


def test_attention_of_half_the_channels_has_a_quarter_of_the_weights() -> None:
    mixer, whole = lsra(2, 3, causal=False, convolution="light").build(32), Attention.Config(heads=2).build(32)
    count = [sum(p.numel() for p in part.parameters() if p.dim() > 1) for part in (mixer.parts[0], whole)]
    assert 4 * count[0] == count[1]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("more", [{}, {"convolution": "light", "wiring": PreNorm(), "hidden": 10}], ids=str)
def test_laws(more: dict[str, Any], law: Law) -> None:
    torch.manual_seed(0)
    model = LiteTransformer(**(SMALL | more)).sized(13).build().double()
    for part in (model, model.encoder):
        finding = law(Embedded(part), familiar(part))  # type: ignore[arg-type]  # it reads tokens
        assert finding.holds, finding


def test_a_recipe_names_it() -> None:
    """A recipe with another kind of model keeps nothing of the one before."""
    settings = ["model.kind=lite_transformer", "model.width=64", "model.kernels=[3, 9]", "model.convolution=light"]
    read = Recipe.read(find("dates"), settings)
    assert read.model == LiteTransformer(width=64, kernels=(3, 9), convolution="light")
    assert Recipe.load(read.dump()) == read


def test_it_learns_from_a_recipe(tmp_path: Path) -> None:
    model = ("model.kind=lite_transformer", "model.width=16", "model.depth=1", "model.heads=2", "model.kernels=[3]")
    read = recipe(*model, "model.dropout=0.0", "training.steps=30", "training.optimizer.lr=5e-3")
    train(read, tmp_path / "run", Silent())
    losses = [loss for _, loss in metrics(tmp_path / "run", "valid_loss")]
    assert losses[-1] < 0.8 * losses[0]


def test_mistakes_are_told() -> None:
    with pytest.raises(ConfigError, match="kernls is unknown; did you mean kernels"):
        LiteTransformer(kernls=(3,))  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="convolution is 'lite'; it must be 'dynamic' or 'light'"):
        LiteTransformer(convolution="lite")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="kernels is .*at least 1 item"):
        LiteTransformer(kernels=())
    with pytest.raises(ConfigError, match="model.kind is 'lite_transfomer'; did you mean lite_transformer"):
        Recipe.read(find("dates"), ["model.kind=lite_transfomer"])
    with pytest.raises(ConfigError, match="25 is odd; use a width of 24 or 26"):
        LiteTransformer(width=25).sized(9).build()
    with pytest.raises(ConfigError, match="width 12 does not divide into 5 heads"):
        LiteTransformer(width=24, heads=5).sized(9).build()
