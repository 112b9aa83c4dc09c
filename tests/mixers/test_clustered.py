"""Clustered attention: against its equations as loops, and never farther from full attention when improved."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import CannotStream, ConfigError
from heed.mixers import Attention, Clustered
from heed.mixers.clustered import grouped
from heed.parts.attention.lsh import drawn
from heed.parts.look import look
from heed.parts.masks import Whole

WIDTH = 12
DOUBLE = torch.float64


def made(tokens: int, **options: Any) -> tuple[Clustered, Tensor, Tensor, Tensor]:
    """A mixer of two heads, its input, its weights and what it gives."""
    torch.manual_seed(0)
    mixer = Clustered.Config(heads=2, **options).build(WIDTH).double().eval()
    x = torch.randn(1, tokens, WIDTH, dtype=DOUBLE)
    with look(mixer) as seen:
        y = mixer(x, Where.run(1, tokens))[0]
    return mixer, x, seen["weights"][0][0], y


def members(mixer: Clustered, x: Tensor) -> Tensor:
    query = mixer.queries(x).transpose(1, 2)
    plane = drawn(mixer.seed, 6, mixer.bits)
    return grouped(query, torch.ones(1, x.shape[1], dtype=torch.bool), plane, mixer.clusters, mixer.iterations)[0]


def loops(sign: list[list[int]], clusters: int, iterations: int) -> list[int]:
    """K-means on signs in plain words."""
    tokens = len(sign)
    centre = [list(sign[c * tokens // clusters]) for c in range(clusters)]

    def nearest(bits: list[int]) -> int:
        apart = [sum(a != b for a, b in zip(bits, other, strict=True)) for other in centre]
        return apart.index(min(apart))

    for _ in range(iterations):
        member = [nearest(bits) for bits in sign]
        for c in range(clusters):
            for bit in range(len(sign[0])):
                votes = sum(sign[i][bit] for i in range(tokens) if member[i] == c)
                centre[c][bit] = centre[c][bit] if votes == 0 else 1 if votes > 0 else -1
    return [nearest(bits) for bits in sign]


def test_clusters_are_those_of_k_means_on_signs() -> None:
    mixer, x, _, _ = made(17, clusters=4, bits=5, iterations=3)
    query = mixer.queries(x)[0]
    for head in range(2):
        sign = (query[:, head] @ drawn(0, 6, 5).double() > 0).int() * 2 - 1
        assert members(mixer, x)[head].tolist() == loops(sign.tolist(), 4, 3)


@pytest.mark.parametrize("top", [0, 3])
def test_it_is_its_equation(top: int) -> None:
    mixer, x, weight, y = made(13, clusters=3, top=top)
    query, key, value = mixer.queries(x)[0], mixer.keys(x)[0], mixer.values(x)[0]
    member = members(mixer, x)
    assert len(set(member[0].tolist())) > 1
    mixed = []
    for i in range(13):
        heads = []
        for h in range(2):
            alike = [j for j in range(13) if member[h, j] == member[h, i]]
            shared = (key[:, h] @ query[alike, h].mean(0) / 6**0.5).softmax(0)
            best = shared.topk(top).indices
            mass = shared[best].sum()
            own = shared.clone()
            own[best] = mass * (key[best, h] @ query[i, h] / 6**0.5).softmax(0)
            assert torch.allclose(weight[h, i], own, rtol=0, atol=1e-12)
            heads.append(own @ value[:, h])
        mixed.append(torch.cat(heads))
    assert torch.allclose(y[0], mixer.out(torch.stack(mixed)), rtol=0, atol=1e-12)


def test_improved_is_never_farther_from_full_attention() -> None:
    """Proposition 2 of the paper, for every query and every top."""
    _, _, plain, _ = made(40, clusters=5, top=0)
    mixer, x, _, _ = made(40, clusters=5, top=0)
    query, key = mixer.queries(x)[0], mixer.keys(x)[0]
    full = (torch.einsum("ihd,jhd->hij", query, key) / 6**0.5).softmax(-1)
    before = (plain - full).abs().sum(-1)
    assert before.max() > 0.1
    for top in (1, 2, 4, 8, 16, 39, 40):
        after = (made(40, clusters=5, top=top)[2] - full).abs().sum(-1)
        assert bool((after <= before + 1e-12).all())
        before = after if top == 40 else before
    assert before.max() < 1e-12  # all keys are at the top


def test_enough_clusters_are_full_attention() -> None:
    mixer, x, _, y = made(9, clusters=9, top=0, bits=60)
    assert sorted(members(mixer, x)[0].tolist()) == list(range(9))
    full = Attention.Config(heads=2, mask=Whole()).build(WIDTH).double()
    full.load_state_dict(mixer.state_dict())
    assert torch.allclose(y, full(x, Where.run(1, 9))[0], rtol=0, atol=1e-12)


def test_gradients_flow_through_the_means() -> None:
    for top in (0, 2):
        mixer = Clustered.Config(heads=2, clusters=2, top=top).build(WIDTH).double()
        x = torch.randn(1, 7, WIDTH, dtype=DOUBLE)
        mixer(x, Where.run(1, 7))[0].square().sum().backward()
        assert mixer.query.weight.grad is not None
        assert mixer.query.weight.grad.abs().max() > 1e-6


def test_the_seed_tells_the_clusters() -> None:
    one, x, _, _ = made(30, clusters=4, bits=6)
    assert torch.equal(members(one, x), members(one, x))
    assert not torch.equal(members(one, x), members(made(30, clusters=4, bits=6, seed=1)[0], x))


def test_it_refuses_a_state_and_bad_sizes() -> None:
    with pytest.raises(CannotStream):
        Clustered.Config().build(WIDTH).start(1)
    for wrong in ({"clusters": 0}, {"bits": 0}, {"iterations": 0}, {"top": -1}):
        with pytest.raises(ConfigError):
            Clustered.Config.load(wrong)


@pytest.mark.parametrize("top", [0, 2])
def test_padding_has_no_part_in_any_cluster(top: int) -> None:
    """A cluster's query is the mean of its tokens; the zeros of padding would flatten its attention."""
    torch.manual_seed(0)
    mixer = Clustered.Config(heads=2, clusters=3, top=top).build(WIDTH).double().eval()
    x = torch.randn(2, 9, WIDTH, dtype=DOUBLE)
    x[1, 5:] = 100.0
    y, _ = mixer(x, Where.ragged([9, 5]))
    assert torch.allclose(y[1, :5], mixer(x[1:, :5], Where.run(1, 5))[0][0], rtol=0, atol=1e-13)
