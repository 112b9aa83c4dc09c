"""Disentangled attention against its equation, and the vectors of relative positions that all layers share."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import CannotStream, ConfigError
from heed.core.laws import LAWS, Case
from heed.mixers import Attention, Disentangled
from heed.mixers.disentangled import RelativeEmbeddings
from heed.models import Embedded, Encoder
from heed.models.convolved import Convolved
from heed.parts.layers.norms import LayerNorm
from heed.parts.look import look
from heed.parts.masks import Whole
from heed.parts.residual.wiring import PostNorm

WIDTH, HEADS, SIZE, TOKENS = 12, 3, 4, 7


def drawn(module: torch.nn.Module) -> None:
    """Weights large enough that every term counts."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=parameter.dtype) * 0.5)


def mixer_of(**options: object) -> Disentangled:
    config = Disentangled.Config.load({"heads": HEADS, **options})
    mixer = config.build(WIDTH).double()
    drawn(mixer)
    return mixer


def slot(gap: int, distance: int, buckets: int | None) -> int:
    """The paper's δ, in whole words."""
    span = buckets or distance
    if buckets is not None and abs(gap) > buckets // 2:
        half = buckets // 2
        share = math.log(abs(gap) / half) / math.log((distance - 1) / half)
        gap = int(math.copysign(half + math.ceil(share * (half - 1)), gap))
    return min(max(gap + span, 0), 2 * span - 1)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("to_position", "from_position"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("buckets", [None, 6])
def test_it_is_its_equation(shared: bool, to_position: bool, from_position: bool, buckets: int | None) -> None:
    distance = 5 if buckets is None else 9
    mixer = mixer_of(
        position={"distance": distance, **({} if buckets is None else {"buckets": buckets})},
        content_to_position=to_position,
        position_to_content=from_position,
        shared=shared,
    )
    x = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)
    place = torch.arange(TOKENS) * 2 + 3  # positions, not columns, are what counts
    y, _ = mixer(x, Where(torch.arange(TOKENS)[None], place[None]))
    q, k, v = (layer(x[0]).view(TOKENS, HEADS, SIZE) for layer in (mixer.query, mixer.key, mixer.value))
    table = mixer.position.table
    into = (mixer.key if mixer.position_key is None else mixer.position_key)(table).view(-1, HEADS, SIZE)
    out = (mixer.query if mixer.position_query is None else mixer.position_query)(table).view(-1, HEADS, SIZE)
    scale = math.sqrt((1 + to_position + from_position) * SIZE)
    for i in range(TOKENS):
        heads: list[Tensor] = []
        for h in range(HEADS):
            scores = []
            for j in range(i + 1):
                at = slot(int(place[i] - place[j]), distance, buckets)
                terms = [
                    q[i, h] @ k[j, h],
                    to_position * (q[i, h] @ into[at, h]),
                    from_position * (k[j, h] @ out[at, h]),
                ]
                scores.append(torch.stack(terms).sum() / scale)
            weight = torch.stack(scores).softmax(0)
            heads.append((weight[:, None] * v[: i + 1, h]).sum(0))
        assert torch.allclose(y[0, i], mixer.out(torch.cat(heads)), rtol=0, atol=1e-12)


def test_buckets_are_exact_near_odd_and_end_at_the_last() -> None:
    code = RelativeEmbeddings.Config(distance=512, buckets=256).build(4)
    here = torch.arange(-2000, 2001)
    where, seen = Where.run(1, 1), Where(torch.arange(4001)[None], -here[None])
    slots = code.slots(where, seen)[0, 0] - 256
    gap = here
    near = gap.abs() <= 128
    assert torch.equal(slots[near], gap[near])
    assert bool((slots.diff() >= 0).all())
    far = gap.abs() < 511
    assert torch.equal(slots[far], -slots.flip(0)[far])
    assert (int(slots[0]), int(slots[-1])) == (-256, 255)
    assert int(slots[gap == 511]) == 255


def test_distances_beyond_the_table_are_cut_off() -> None:
    code = RelativeEmbeddings.Config(distance=3).build(4)
    slots = code.slots(Where.run(1, 9), Where.run(1, 9))[0]
    assert slots[0].tolist() == [3, 2, 1, 0, 0, 0, 0, 0, 0]
    assert slots[8].tolist() == [5, 5, 5, 5, 5, 5, 5, 4, 3]


def test_without_a_word_about_position_it_is_plain_attention() -> None:
    mixer = mixer_of(position={"distance": 4}, bias=False)
    plain = Attention.Config(heads=HEADS, bias=False, scale=(3 * SIZE) ** -0.5).build(WIDTH).double()
    for name in ("query", "key", "value", "out"):
        plain.get_submodule(name).load_state_dict(mixer.get_submodule(name).state_dict())
    with torch.no_grad():
        mixer.position.table.zero_()
    x, where = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64), Where.run(2, TOKENS)
    assert torch.allclose(mixer(x, where)[0], plain(x, where)[0], rtol=0, atol=1e-13)


def test_looking_shows_the_weights_and_changes_nothing() -> None:
    mixer = mixer_of(position={"distance": 4}, mask={"kind": "whole"})
    x, where = torch.randn(2, TOKENS, WIDTH, dtype=torch.float64), Where.run(2, TOKENS)
    with look(mixer) as seen:
        y, _ = mixer(x, where)
    assert torch.equal(y, mixer(x, where)[0])
    (weights,) = seen["weights"]
    assert weights.shape == (2, HEADS, TOKENS, TOKENS)
    assert torch.allclose(weights.sum(-1), torch.ones((), dtype=torch.float64))


def encoder(**more: Any) -> Encoder:
    position = RelativeEmbeddings.Config(distance=9, buckets=4, norm=LayerNorm())
    mixer = Disentangled.Config(heads=HEADS, mask=Whole(), position=position)
    options: dict[str, Any] = {
        "vocabulary": 11,
        "width": WIDTH,
        "depth": 3,
        "mixer": mixer,
        "wiring": PostNorm(),
        "one_position": True,
    }
    return Encoder.Config(**options | more).build()


def test_all_layers_share_one_table() -> None:
    model = encoder()
    names = [name for name, _ in model.named_parameters() if "position" in name]
    assert names == [f"stack.blocks.0.mixer.position.{name}" for name in ("table", "norm.weight", "norm.bias")]
    apart = encoder(one_position=False)
    assert sum("position.table" in name for name, _ in apart.named_parameters()) == 3


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_a_convolution_beside_the_first_block_keeps_the_laws(kernel: int) -> None:
    model = encoder(convolution=Convolved.Config(kernel=kernel, groups=3, activation="gelu"))
    drawn(model)
    for law in LAWS:
        finding = law(Embedded(model), Case.make(WIDTH))
        assert finding.holds, finding


def test_a_convolution_beside_the_first_block_is_its_equation() -> None:
    model = encoder(convolution=Convolved.Config()).double().eval()
    drawn(model)
    first = model.stack.layers[0]
    assert isinstance(first, Convolved)
    x, where = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64), Where.run(1, TOKENS)
    plain, _ = super(Convolved, first).forward(x, where)
    weight, bias = first.convolution.weight, first.convolution.bias
    assert bias is not None
    for i in range(TOKENS):
        near = bias.clone()
        for step in (-1, 0, 1):
            if 0 <= i + step < TOKENS:
                near = near + weight[:, :, step + 1] @ x[0, i + step]
        assert torch.allclose(first(x, where)[0][0, i], first.norm(plain[0, i] + near.tanh()), rtol=0, atol=1e-13)
    assert not isinstance(model.stack.layers[1], Convolved)


def test_a_convolution_looks_ahead() -> None:
    causal = encoder(mixer=Attention.Config(heads=HEADS), one_position=False, convolution=Convolved.Config(kernel=5))
    assert causal.reach.ahead == 2
    with pytest.raises(CannotStream, match="2 tokens ahead"):
        causal.start(1)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="this is plain attention"):
        Disentangled.Config(content_to_position=False, position_to_content=False)
    with pytest.raises(ConfigError, match="8 buckets cannot tell distances up to 5 apart"):
        RelativeEmbeddings.Config(distance=5, buckets=8)
    with pytest.raises(ConfigError, match="use at least 2"):
        RelativeEmbeddings.Config(buckets=1)
    with pytest.raises(ConfigError, match="a kernel of 4 has no middle"):
        Convolved.Config(kernel=4)
    with pytest.raises(ConfigError, match="width 12 does not divide into 5 groups"):
        encoder(convolution=Convolved.Config(groups=5))
