"""Decayed recurrences: parallel = chunked = recurrent, values and gradients, at any length and for any decay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import InputError
from heed.parts.recurrence.decay import CHUNK, GROUP, chunked, entering, must_rise, weights, written_out

ROWS, HEADS, SIZE, VALUES = 2, 3, 4, 5
LONG = 20_000
LENGTHS = (1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7)
Five = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(
    tokens: int, fade: str, *, groups: int = 1, past: bool = True, sizes: tuple[int, int, int] | None = None
) -> Five:
    """Queries, keys, values, log decays and a matrix to begin with."""
    heads, size, values = sizes or (HEADS, SIZE, VALUES)
    rows = 1 if sizes else ROWS
    fades = {
        "none": None,
        "head": -draw(1, 1, heads, seed=4).abs() / 30,
        "token": -draw(rows, tokens, heads, seed=4).abs().pow(3) / 8,
    }
    begin = draw(rows, heads, size, values, seed=5) if past else None
    key, value = draw(rows, tokens, heads, size, seed=2), draw(rows, tokens, heads, values, seed=3)
    return draw(rows, tokens, groups * heads, size, seed=1), key, value, fades[fade], begin


def recurrent(
    query: Tensor, key: Tensor, value: Tensor, fade: Tensor | None, past: Tensor | None
) -> tuple[Tensor, Tensor]:
    """S_t = a_t S_{t-1} + k_t v_tᵀ, y_t = q_t S_t: a loop over tokens."""
    rows, tokens, heads, size = key.shape
    state = torch.zeros(rows, heads, size, value.shape[-1], dtype=key.dtype) if past is None else past
    decay = torch.ones(1, tokens, heads).to(key) if fade is None else fade.exp().expand(-1, tokens, -1)
    read, asked = [], query.unflatten(2, (heads, -1))
    for q, k, v, a in zip(*(x.unbind(1) for x in (asked, key, value, decay)), strict=True):
        state = a[..., None, None] * state + k[..., None] * v[:, :, None]
        read.append((q @ state).flatten(1, 2))
    return torch.stack(read, 1), state


def with_gradients(form: Any, five: Five) -> list[Tensor]:
    """Outputs, the last state, and the gradients towards everything that went in."""
    live = [None if x is None else x.clone().requires_grad_() for x in five]
    y, state = form(*live)
    target = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    slopes = torch.autograd.grad((y * target).sum() + state.square().sum(), [x for x in live if x is not None])
    return [y.detach(), state.detach(), *slopes]


def gap(some: list[Tensor], other: list[Tensor]) -> float:
    """Relative to the largest number of each."""
    pairs = zip((x.detach() for x in some), (x.detach() for x in other), strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("fade", ["none", "head", "token"])
@pytest.mark.parametrize("tokens", LENGTHS)
def test_three_forms_are_one(tokens: int, fade: str, groups: int, past: bool) -> None:
    five = made(tokens, fade, groups=groups, past=past)
    wanted = with_gradients(recurrent, five)
    assert gap(with_gradients(written_out, five), wanted) < 1e-12
    assert gap(with_gradients(chunked, five), wanted) < 1e-12


def by_steps(five: Five, target: Tensor) -> list[Tensor]:
    """One row and head: outputs, last state and slopes of (y · target).sum(), each by a loop, the slopes' backwards."""
    q, k, v, w = (x[0, :, 0].numpy() for x in (*five[:3], target))
    a = np.ones(LONG) if five[3] is None else five[3].expand(1, LONG, 1)[0, :, 0].exp().numpy()
    assert five[4] is not None
    states, slopes = [five[4][0, 0].numpy()], []
    for t in range(LONG):
        states.append(a[t] * states[-1] + np.outer(k[t], v[t]))
    slope = np.zeros_like(states[0])
    for t in range(LONG - 1, -1, -1):
        slope = slope + np.outer(q[t], w[t])
        slopes.append((states[t + 1] @ w[t], slope @ v[t], k[t] @ slope, a[t] * (slope * states[t]).sum()))
        slope = a[t] * slope
    read = np.stack([q[t] @ states[t + 1] for t in range(LONG)])
    back = [torch.from_numpy(np.stack(x[::-1])) for x in zip(*slopes, strict=True)]
    log = back.pop()[None, :, None]
    fades = [] if five[3] is None else [log if five[3].shape[1] > 1 else log.sum(1, keepdim=True)]
    made = [torch.from_numpy(read)[None, :, None], torch.from_numpy(states[-1])[None, None]]
    return [*made, *(x[None, :, None] for x in back), *fades, torch.from_numpy(slope)[None, None]]


@pytest.mark.parametrize("fade", ["none", "head", "token"])
def test_three_forms_are_one_over_twenty_thousand_tokens(fade: str) -> None:
    """Loops over all tokens, forwards and backwards; and for some tokens the sum over all before them."""
    five = made(LONG, fade, sizes=(1, 2, 2))
    live = [None if x is None else x.clone().requires_grad_() for x in five]
    y, state = chunked(*live)  # type: ignore[arg-type]
    target = draw(1, LONG, 1, 2, seed=9)
    slopes = torch.autograd.grad((y * target).sum(), [x for x in live if x is not None])
    assert gap([y, state, *slopes], by_steps(five, target)) < 1e-10
    query, key, value, log, begin = five
    assert begin is not None
    level = torch.zeros(1, LONG, 1).double() if log is None else log.expand(1, LONG, 1).cumsum(1)
    for i in (0, 63, 64, 9_999, LONG - 1):
        weight = (level[0, i] - level[0, : i + 1]).exp() * (key[0, : i + 1, 0] @ query[0, i, 0])[:, None]
        wanted = (weight * value[0, : i + 1, 0]).sum(0) + level[0, i].exp() * (query[0, i, 0] @ begin[0, 0])
        assert torch.allclose(y[0, i, 0], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("fade", ["none", "head", "token"])
def test_float32_keeps_its_bound(fade: str) -> None:
    """512 · 2^-24 of the same over magnitudes (see the module); in truth a hundredth of that, root mean square."""
    exact = made(LONG, fade, sizes=(1, 64, 8))
    query, key, value, log, begin = ((None if x is None else x.float()) for x in exact)
    assert query is not None
    assert key is not None
    assert value is not None
    log = None if log is None else exact[3]  # decays are given exactly
    rounded = [x.double() for x in chunked(query, key, value, log, begin)]
    truth = [x.double() for x in (query, key, value)]
    past = None if begin is None else begin.double()
    wanted = chunked(truth[0], truth[1], truth[2], log, past)
    sizes = [x.abs() for x in truth]
    most = chunked(sizes[0], sizes[1], sizes[2], log, None if past is None else past.abs())
    for got, want, bound in zip(rounded, wanted, most, strict=True):
        assert ((got - want).abs() <= 512 * 2**-24 * bound).all()
        assert float((got - want).square().mean().sqrt()) <= 512 * 2**-24 * float(bound.square().mean().sqrt()) / 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_forgotten_at_once_spoils_nothing(dtype: torch.dtype) -> None:
    """Log decays of -10^4 beside ones of -0.01: their sums have few digits left in float32, their differences all."""
    query, key, value, _, begin = (None if x is None else x.to(dtype) for x in made(200, "none"))
    assert query is not None
    assert key is not None
    assert value is not None
    fade = torch.full((ROWS, 200, HEADS), -0.01, dtype=dtype)
    fade[:, ::23] = -1e4
    fade[:, 50:60] = 0.0
    fade.requires_grad_()
    y, state = chunked(query, key, value, fade, begin)
    (slope,) = torch.autograd.grad(y.square().sum() + state.square().sum(), fade)
    exact = [x.double() for x in (query, key, value)]
    log = fade.detach().double().requires_grad_()
    wanted, last = recurrent(exact[0], exact[1], exact[2], log, None if begin is None else begin.double())
    (truth,) = torch.autograd.grad(wanted.square().sum() + last.square().sum(), log)
    small = 1e-10 if dtype == torch.float64 else 3e-6  # float64 has 11 digits left behind a sum of 10^5
    assert gap([y.double(), state.double()], [wanted, last]) < small
    assert slope.isfinite().all()
    assert gap([slope.double()], [truth]) < 10 * small


@pytest.mark.parametrize("fade", [-1e-9, -0.5, -200.0])
def test_any_decay_at_any_length_stays_finite(fade: float) -> None:
    query, key, value, _, _ = made(5 * CHUNK * GROUP + 3, "none", sizes=(1, 2, 2))
    log = torch.full((1, 1, 1), fade, dtype=torch.float64)
    results = with_gradients(chunked, (query.float(), key.float(), value.float(), log, None))
    assert all(x.isfinite().all() for x in results)
    if fade == -200.0:  # only the token itself is left
        own = (query * key).sum(-1, keepdim=True) * value
        assert gap([results[0].double()], [own]) < 1e-6


@pytest.mark.parametrize("cut", [1, 5, CHUNK, CHUNK + 9])
@pytest.mark.parametrize("fade", ["none", "head", "token"])
def test_it_goes_on_from_where_it_stopped(fade: str, cut: int) -> None:
    query, key, value, log, begin = made(2 * CHUNK + 20, fade)
    whole, last = chunked(query, key, value, log, begin)
    some = log if log is None or log.shape[1] == 1 else log[:, :cut]
    rest = log if log is None or log.shape[1] == 1 else log[:, cut:]
    first, state = chunked(query[:, :cut], key[:, :cut], value[:, :cut], some, begin)
    later, state = chunked(query[:, cut:], key[:, cut:], value[:, cut:], rest, state)
    assert gap([torch.cat((first, later), 1), state], [whole, last]) < 1e-13


def test_a_token_without_key_and_decay_leaves_no_trace() -> None:
    query, key, value, log, begin = made(CHUNK + 30, "token")
    assert log is not None
    keep = torch.arange(CHUNK + 30) % 7 != 3
    real = keep[None, :, None]
    y, state = chunked(query, key * real[..., None], value, log * real, begin)
    wanted, last = chunked(query[:, keep], key[:, keep], value[:, keep], log[:, keep], begin)
    assert gap([y[:, keep], state], [wanted, last]) < 1e-13


def test_weights_are_what_is_taken_of_each_token() -> None:
    query, key, value, log, _ = made(9, "token", groups=2, past=False)
    taken = weights(query, key, log)
    assert taken.shape == (ROWS, 2 * HEADS, 9, 9)
    assert (taken.triu(1) == 0).all()
    read = torch.einsum("bhtn,bnhe->bthe", taken, value.repeat_interleave(2, 2))
    assert gap([read], [chunked(query, key, value, log)[0]]) < 1e-13


@pytest.mark.parametrize("steps", [1, GROUP - 1, GROUP, GROUP + 1, GROUP**2 + 3])
def test_entering_is_its_loop(steps: int) -> None:
    added, fade, past = draw(2, 3, steps, 4), -draw(2, 3, steps, seed=1).abs(), draw(2, 3, 4, seed=2)
    before, after = entering(added, fade, past)
    state = past
    for step in range(steps):
        assert torch.allclose(before[:, :, step], state, rtol=0, atol=1e-13)
        state = fade[:, :, step, None].exp() * state + added[:, :, step]
    assert torch.allclose(after, state, rtol=0, atol=1e-13)


def test_time_and_memory_are_linear_in_what_is_held() -> None:
    """At 8 times the length the largest tensor that is saved for the gradient is 8 times as large, not 64 times."""

    def largest(tokens: int) -> int:
        sizes: list[int] = []
        query, key, value, log, _ = made(tokens, "token", past=False)

        def noted(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(noted, lambda tensor: tensor):
            chunked(query.requires_grad_(), key, value, log)
        return max(sizes)

    assert largest(8 * 4 * CHUNK) == 8 * largest(4 * CHUNK)


def test_tokens_must_come_in_order() -> None:
    must_rise(Where.ragged([3, 1]), "this")
    order = torch.tensor([[0, 2, 5], [4, -1, -1]])
    must_rise(Where(order, order), "this")
    for falls in ([0, 2, 1], [0, 1, 1]):  # two tokens revealed at once would each come before the other
        order = torch.tensor([falls])
        with pytest.raises(InputError, match="this takes tokens as they come; their order must rise"):
            must_rise(Where(order, order), "this")
