"""Performer against its equation written as loops, near the softmax that it stands for, and at the edge of numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import Attention, Performer
from heed.parts.attention import linear as kernelised
from heed.parts.attention.linear import CHUNK, Sums
from heed.parts.attention.random_features import FeatureMapConfig, FlooredKernel, ReluKernel, SoftmaxKernel, orthogonal
from heed.parts.look import look
from heed.parts.masks import Causal, Whole
from tests.mixers.growth import grows

WIDTH = 24


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**options: Any) -> Performer:
    torch.manual_seed(1)
    return Performer.Config(**options).build(WIDTH).double().eval()


def feature(kernel: FeatureMapConfig, x: Tensor, direction: Tensor, shift: Tensor | float) -> Tensor:
    """One feature of one vector, but for the root of their number."""
    along = direction @ x
    if isinstance(kernel, ReluKernel):
        return along.clamp(min=0) + kernel.eps
    floor = kernel.eps if isinstance(kernel, FlooredKernel) else 0.0
    return (along - x @ x / 2 - shift).exp() + floor


def by_hand(mixer: Performer, kernel: FeatureMapConfig, x: Tensor, causal: bool) -> Tensor:
    size, groups, tokens = mixer.head_size, mixer.heads // mixer.kv_heads, len(x)
    q, k = ((linear(x) * mixer.scale**0.5).split(size, 1) for linear in (mixer.query, mixer.key))
    v, omega, heads = mixer.value(x).split(size, 1), mixer.directions, []
    for h in range(mixer.heads):
        g = h // groups
        floored = isinstance(kernel, FlooredKernel)
        most = (k[g] @ omega.T).max() if floored else 0.0
        rows = []
        for i in range(tokens):
            own = (omega @ q[h][i]).max() if floored else 0.0
            above, below = torch.zeros(size, dtype=x.dtype), torch.zeros((), dtype=x.dtype)
            for j in range(i + 1 if causal else tokens):
                weight = sum(feature(kernel, q[h][i], w, own) * feature(kernel, k[g][j], w, most) for w in omega)
                above, below = above + weight * v[g][j], below + weight
            rows.append(above / below)
        heads.append(torch.stack(rows))
    made: Tensor = mixer.out(torch.cat(heads, 1))
    return made


@pytest.mark.parametrize("kernel", [SoftmaxKernel(), ReluKernel(), FlooredKernel()], ids=repr)
@pytest.mark.parametrize("causal", [True, False])
def test_performer_is_its_equation(kernel: FeatureMapConfig, causal: bool) -> None:
    if causal and kernel.at_once:
        with pytest.raises(ConfigError, match="the floored kernel needs all keys at once; set causal = false"):
            Performer.Config(kernel=kernel)
        return
    mixer, x = built(kernel=kernel, causal=causal, features=7, kv_heads=2), draw(2, 5, WIDTH)
    y, _ = mixer(x, Where.run(2, 5))
    for row in range(2):
        assert torch.allclose(y[row], by_hand(mixer, kernel, x[row], causal), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kernel", [SoftmaxKernel(), ReluKernel(), FlooredKernel()], ids=repr)
def test_padding_changes_nothing_however_large_it_is(kernel: FeatureMapConfig) -> None:
    """The floored kernel takes its keys relative to the largest of a row: of its tokens, not of its padding."""
    mixer, x = built(kernel=kernel, causal=False, features=7), draw(2, 6, WIDTH)
    x[1, 4:] = 50 * x[1, 4:]
    y, _ = mixer(x, Where.ragged([6, 4]))
    assert torch.allclose(y[1, :4], mixer(x[1:, :4], Where.run(1, 4))[0][0], rtol=0, atol=1e-13)


def test_the_floor_of_a_row_is_that_of_its_tokens() -> None:
    """The largest product of a row's keys is taken off before the floor is added: padding must not set it."""
    kernel, projection, key = FlooredKernel(), orthogonal(7, 6, seed=1), draw(2, 5, 1, 6)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    loud = key.clone()
    loud[1, 3:] = 30 * projection[0]
    assert torch.equal(kernel.keys(loud, projection, real)[real], kernel.keys(key, projection, real)[real])
    alone = kernel.keys(key[1:, :3], projection, real[1:, :3])
    assert torch.allclose(kernel.keys(loud, projection, real)[1, :3], alone[0], rtol=0, atol=1e-13)


def test_looking_both_ways_it_does_not_matter_in_which_order_tokens_were_revealed() -> None:
    mixer, x = built(causal=False, features=7), draw(2, 5, WIDTH)
    order = torch.tensor([[3, 1, 4, 0, 2], [2, 0, 1, -1, -1]])
    permuted, _ = mixer(x, Where(order, order.clamp(min=0)))
    assert torch.allclose(permuted, mixer(x, Where.ragged([5, 3]))[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("causal", [True, False])
def test_many_features_come_near_to_softmax_attention(causal: bool) -> None:
    x, where = draw(1, 9, WIDTH), Where.run(1, 9)
    gaps = []
    for features in (64, 16384):
        mixer = built(features=features, causal=causal)
        plain = Attention.Config(mask=Causal() if causal else Whole()).build(WIDTH).double()
        plain.load_state_dict({name: p for name, p in mixer.state_dict().items() if name != "directions"})
        gaps.append(float((mixer(x, where)[0] - plain(x, where)[0]).detach().square().mean().sqrt()))
    assert gaps[1] < 0.004
    assert gaps[1] < gaps[0] / 4  # 16 = the root of 256, but for rare large features


def test_directions_are_at_right_angles_and_drawn_from_the_seed() -> None:
    omega = orthogonal(14, 6, seed=5)
    assert torch.equal(omega, orthogonal(14, 6, seed=5))
    assert not torch.equal(omega, orthogonal(14, 6, seed=6))
    for block in omega.split(6):
        products = block @ block.T
        assert torch.allclose(products, torch.diag(products.diagonal()), rtol=0, atol=1e-12)
    many = torch.cat([orthogonal(6, 6, seed) for seed in range(3000)])
    assert torch.allclose(many.T @ many / len(many), torch.eye(6, dtype=torch.float64), rtol=0, atol=0.05)
    assert abs(float(many.mean())) < 0.01
    assert abs(float(many.pow(4).mean()) - 3.0) < 0.1  # as of normal numbers


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_hold_over_several_chunks(law: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernelised, "CHUNK", 4)
    finding = law(built(features=5), Case.make(WIDTH, rows=2, tokens=11))
    assert finding.holds, finding


@pytest.mark.parametrize("first", [0, 5, 40, CHUNK + 3])
@pytest.mark.parametrize("depth", [500.0, 28.0, 22.0])
@pytest.mark.parametrize("causal", [True, False])
def test_keys_of_any_size_are_weighed(first: int, depth: float, causal: bool) -> None:
    """In float32 features of e^-500 beside ones of e^5 would vanish, and their quotients with them. Where later keys
    tower by e^66 to e^90, their product with a query of an early token is about as large as float32 can hold.
    """
    query, key, value = draw(1, 80, 1, 1, 6), draw(1, 80, 1, 6, seed=4), draw(1, 80, 1, 3, seed=5)
    key = key - depth * (torch.arange(80) < first)[None, :, None, None]
    query, key = 3 * query, 3 * key

    def run(dtype: torch.dtype) -> Tensor:
        q, k, v = (x.to(dtype).requires_grad_() for x in (query, key, value))
        y = kernelised.causal(q, k, v, Sums.none(k, v))[0] if causal else kernelised.both_ways(q, k, v)
        gradients = torch.autograd.grad(y.square().sum(), (q, k, v))
        return torch.cat([part.detach().flatten().double() for part in (y, *gradients)])

    score = torch.logsumexp(query[0, :, 0] + key[0, :, 0], -1)  # [80, 80]
    score = score if not causal else score.masked_fill(torch.ones(80, 80).triu(1).bool(), float("-inf"))
    wanted = score.softmax(-1) @ value[0, :, 0]
    exact, rounded = run(torch.float64), run(torch.float32)
    assert torch.allclose(exact[: wanted.numel()], wanted.flatten(), rtol=0, atol=1e-12)
    assert torch.allclose(rounded, exact, rtol=0, atol=2e-4 * float(exact.abs().max()))


def test_looking_shows_what_is_taken_of_each_token() -> None:
    mixer, x = built(features=7, kv_heads=2), draw(2, 6, WIDTH)
    with look(mixer) as seen:
        y, _ = mixer(x, Where.ragged([6, 4]))
    (weights,) = seen["weights"]
    assert weights.shape == (2, 4, 6, 6)
    value = mixer.values(x).repeat_interleave(2, 2)
    made = mixer.merge(torch.einsum("bhtn,bnhd->bthd", weights, value))
    assert torch.allclose(made[0], y[0], rtol=0, atol=1e-13)
    assert torch.allclose(made[1, :4], y[1, :4], rtol=0, atol=1e-13)


def test_looking_while_decoding_shows_the_share_of_this_call() -> None:
    mixer, x = built(features=7), draw(1, 6, WIDTH)
    with look(mixer) as seen:
        mixer(x, Where.run(1, 6))
        _, state = mixer(x[:, :4], Where.run(1, 4), mixer.start(1))
        mixer(x[:, 4:], Where.run(1, 2, start=4), state)
    whole, _, rest = seen["weights"]
    assert torch.allclose(rest, whole[:, :, 4:, 4:], rtol=0, atol=1e-14)


def test_it_remembers_as_much_after_a_million_tokens_as_after_one() -> None:
    mixer = Performer.Config(heads=4, kv_heads=2, features=10).build(WIDTH)
    assert price(mixer.spec(), 1) == price(mixer.spec(), 10**6) == 4 * 2 * 10 * (6 + 1 + 1)
    assert nbytes(mixer.start(3)) == 3 * price(mixer.spec(), 1)
    told = "kv_heads·features·head_size + kv_heads·features numbers, whatever the length"
    assert words(mixer.spec()) == f"{told}; kv_heads·features numbers, whatever the length"
    half = Performer.Config(features=10).build(WIDTH).to(torch.bfloat16)
    y, state = half(torch.randn(1, 2, WIDTH, dtype=torch.bfloat16), Where.run(1, 2), half.start(1))
    assert y.dtype == torch.bfloat16
    assert state is not None
    assert {t.dtype for cell in state for t in cell.tensors()} == {torch.float32}  # long sums in short numbers stall


@pytest.mark.parametrize("causal", [True, False])
def test_it_grows_with_the_length_and_no_faster(causal: bool) -> None:
    assert grows(Performer.Config(features=8, causal=causal)) < 4.5


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="never holds its weights, so none can be dropped"):
        Performer.Config(dropout=0.1)
    with pytest.raises(ConfigError, match="features"):
        Performer.Config(features=0)
    with pytest.raises(ConfigError, match="eps"):
        ReluKernel(eps=0.0)
    order = torch.tensor([[0, 2, 1]])
    with pytest.raises(InputError, match="their order must rise from column to column"):
        built()(draw(1, 3, WIDTH), Where(order, order))
