"""Dilated attention against its equation written as loops; its forms, its gradient, its cost."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case
from heed.core.spec import price
from heed.core.state import Log, Seen
from heed.mixers import Dilated
from heed.parts.look import look
from heed.parts.masks import Whole, Window
from heed.parts.positions import Alibi, Rope
from tests.mixers.growth import grows

WIDTH, HEADS, SIZE = 15, 5, 3


def config(segments: tuple[int, ...], dilations: tuple[int, ...], **more: Any) -> Dilated.Config:
    return Dilated.Config(heads=HEADS, segments=segments, dilations=dilations, **more)


CONFIGS = (
    config((4, 8, 16), (1, 2, 4)),
    config((4, 6), (2, 3)),  # some heads skip some tokens in every pattern
    config((5, 7, 30), (2, 3, 7)),  # neither segments nor heads nor tokens divide
    config((3,), (5,)),
    config((4, 8), (1, 2), mask=Whole()),
    config((5, 9), (2, 4), mask=Whole()),
    config((5, 9), (2, 4), mask=Whole(), filled=True),
    config((4, 64), (1, 3), mask=Whole(), filled=True),
    config((4, 8), (1, 2), detached=True),
    config((5, 9), (2, 4), mask=Whole(), filled=True, detached=True),
)


def by_loops(mixer: Dilated, x: Tensor) -> Tensor:
    """One row, token by token, head by head and pattern by pattern: each a softmax, then their mean by its sums."""
    q, k, v = (linear(x) for linear in (mixer.query, mixer.key, mixer.value))
    tokens, made = len(x), []
    for i in range(tokens):
        heads = []
        for h in range(HEADS):
            one = slice(SIZE * h, SIZE * h + SIZE)
            found, sums = [], []
            for pattern in mixer.patterns:
                w, r = min(pattern.segment, tokens), pattern.dilation
                begin, offset = i // w * w, h // math.ceil(HEADS / r)
                if (i - begin) % r != offset:
                    continue
                last = i + 1 if mixer.causal else min(begin + w, tokens)
                keys = [j for j in range(begin, last) if (j - begin) % r == offset]
                score = torch.stack([q[i, one] @ k[j, one] / math.sqrt(SIZE) for j in keys])
                value = torch.stack([v[j, one] for j in keys])
                if mixer.filled:  # as many zeros as fill the segment up
                    zeros = math.ceil(w / r) - len(keys)
                    score = torch.cat((score, torch.zeros(zeros, dtype=x.dtype)))
                    value = torch.cat((value, torch.zeros(zeros, SIZE, dtype=x.dtype)))
                found.append(score.softmax(0) @ value)
                sums.append(score.logsumexp(0))
            if not found:
                heads.append(torch.zeros(SIZE, dtype=x.dtype))
                continue
            share = torch.stack(sums).softmax(0)
            heads.append((share.detach() if mixer.detached else share) @ torch.stack(found))
        made.append(mixer.out(torch.cat(heads)))
    return torch.stack(made)


@pytest.mark.parametrize("sample", CONFIGS, ids=repr)
def test_it_is_its_equation(sample: Dilated.Config) -> None:
    """Ragged rows, and the gradient of one of them."""
    mixer, lengths = sample.build(WIDTH).double(), [21, 1, 10]
    x = torch.randn(3, 21, WIDTH, dtype=torch.float64)
    y, _ = mixer(x, Where.ragged(lengths))
    for row, length in enumerate(lengths):
        assert torch.allclose(y[row, :length], by_loops(mixer, x[row, :length]), rtol=0, atol=1e-13)
    inputs = [x[0].clone().requires_grad_(), *mixer.parameters()]
    target = torch.randn(21, WIDTH, dtype=torch.float64)
    ours = torch.autograd.grad((mixer(inputs[0][None], Where.run(1, 21))[0][0] * target).sum(), inputs)
    theirs = torch.autograd.grad((by_loops(mixer, inputs[0]) * target).sum(), inputs)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


def test_detached_changes_the_gradient_alone() -> None:
    plain, cut = (config((4, 8), (1, 2), detached=flag).build(WIDTH).double() for flag in (False, True))
    cut.load_state_dict(plain.state_dict())
    x = torch.randn(1, 20, WIDTH, dtype=torch.float64, requires_grad=True)
    made = [mixer(x, Where.run(1, 20))[0] for mixer in (plain, cut)]
    assert torch.allclose(made[0], made[1], rtol=0, atol=1e-13)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in made]
    assert not torch.allclose(gradients[0], gradients[1], rtol=0, atol=1e-3)


@pytest.mark.parametrize("sample", CONFIGS, ids=repr)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_hold_over_many_segments(sample: Dilated.Config, law: Any) -> None:
    finding = law(sample.build(WIDTH), Case.make(WIDTH, rows=2, tokens=37))
    assert finding.holds, finding


@torch.no_grad()
def test_all_forms_are_one() -> None:
    """Many tokens in segments, few by a mask, and tokens in any column, with holes in their order."""
    mixer = config((4, 8, 16), (1, 2, 4), position=Rope.Config()).build(20).double()
    x = torch.randn(2, 48, 20, dtype=torch.float64)
    whole, _ = mixer(x, Where.run(2, 48))
    made: list[Tensor] = []
    state: Log | None = mixer.start(2)
    for begin, end in ((0, 30), (30, 31), (31, 46), (46, 48)):
        y, state = mixer(x[:, begin:end], Where.run(2, end - begin, start=begin), state)
        made.append(y)
    assert torch.allclose(torch.cat(made, 1), whole, rtol=0, atol=1e-13)
    shuffled = torch.stack([torch.randperm(48), torch.randperm(48)])
    mixed, _ = mixer(x.take_along_dim(shuffled[..., None], 1), Where(shuffled, shuffled))
    assert torch.allclose(mixed, whole.take_along_dim(shuffled[..., None], 1), rtol=0, atol=1e-13)

    gaps = torch.arange(48) * 2  # every second token is missing: what is left sees one another as the equation says
    thin, _ = mixer(x, Where(gaps.expand(2, -1), gaps.expand(2, -1)))
    times = mixer._times(Where.run(2, 96), Seen.of(Where.run(2, 96)))[:1, :, ::2, ::2]
    with look(mixer) as seen:
        mixer(x, Where(gaps.expand(2, -1), gaps.expand(2, -1)))
    assert torch.equal(seen["weights"][0][:1] > 0, times > 0)
    mean = torch.einsum("bhtn,bnhe->bthe", seen["weights"][0], mixer.values(x))
    assert torch.allclose(mixer.merge(mean), thin, rtol=0, atol=1e-13)


@torch.no_grad()
@pytest.mark.parametrize("sample", CONFIGS, ids=repr)
def test_weights_are_those_of_the_output(sample: Dilated.Config) -> None:
    mixer, x = sample.build(WIDTH).double(), torch.randn(2, 21, WIDTH, dtype=torch.float64)
    where = Where.ragged([21, 10])
    with look(mixer) as seen:
        y, _ = mixer(x, where)
    (weights,) = seen["weights"]
    assert weights.shape == (2, HEADS, 21, 21)
    assert float(weights.sum(-1).max()) <= 1 + 1e-12
    mixed = mixer.merge(torch.einsum("bhtn,bnhe->bthe", weights, mixer.values(x)))
    assert torch.allclose(mixed[where.real], y[where.real], rtol=0, atol=1e-13)


def test_a_row_remembers_its_longest_segment_at_most() -> None:
    mixer = config((4, 8, 16), (1, 2, 4)).build(WIDTH)
    assert mixer.reach == (12, 0)  # in the longest, every fourth of 16 tokens: 0 and 12
    assert price(mixer.spec(), 10**6) == 12 * (2 * HEADS * SIZE * 4 + 16)


def test_nothing_grows_with_the_square_of_the_length() -> None:
    assert grows(Dilated.Config(segments=(16, 64), dilations=(1, 4)), 512) <= 4.2


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 segments have 1 dilations"):
        config((4, 8), (1,))
    with pytest.raises(ConfigError, match="the mask is causal or whole"):
        config((4,), (1,), mask=Window(back=2))
    with pytest.raises(ConfigError, match="use a code that rotates"):
        config((4,), (1,), position=Alibi.Config())
    with pytest.raises(ConfigError, match="where causal attention does not look"):
        config((4,), (1,), filled=True)
    for segments, dilations in (((), ()), ((0,), (1,)), ((-4,), (1,)), ((4,), (0,)), ((4,), (-1,))):
        with pytest.raises(ConfigError):
            config(segments, dilations)
