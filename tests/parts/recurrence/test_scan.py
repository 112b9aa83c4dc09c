"""A scan is the loop that it stands for: values, gradients, rounding, and how it takes a long sequence to pieces."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.parts.recurrence import scan as scans
from heed.parts.recurrence.scan import Memory, after, before, crests, looped, pieces, recomputed, scan
from heed.parts.recurrence.token_shift import continued
from tests.mixers.growth import held

DOUBLES = (torch.float64, torch.complex128)


def drawn(tokens: int, dtype: torch.dtype = torch.float64, rows: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Decays of magnitude below 1, one for all of the middle axis; updates; a state to begin with."""
    draw = torch.Generator().manual_seed(tokens)
    update, start = (torch.randn(rows, *n, 4, 3, dtype=dtype, generator=draw) for n in ((tokens,), ()))
    decay = torch.rand(rows, tokens, 1, 3, dtype=torch.float64, generator=draw).to(dtype)
    if dtype.is_complex:
        decay = decay * torch.exp(1j * torch.randn(decay.shape, dtype=torch.float64, generator=draw))
    return decay, update, start


def slopes(states: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    target = torch.randn(states.shape, dtype=states.dtype, generator=torch.Generator().manual_seed(1))
    product = states * target
    return torch.autograd.grad((product.real if product.is_complex() else product).sum(), inputs)


@pytest.mark.parametrize("dtype", DOUBLES, ids=str)
@pytest.mark.parametrize("tokens", [1, 2, 3, 6, 7, 8, 33, 300])
def test_it_is_the_loop(tokens: int, dtype: torch.dtype) -> None:
    inputs = tuple(tensor.requires_grad_() for tensor in drawn(tokens, dtype))
    fast, slow = scan(*inputs), looped(*inputs)
    for made, wanted in zip((fast, *slopes(fast, inputs)), (slow, *slopes(slow, inputs)), strict=True):
        assert made.shape == wanted.shape
        assert (made - wanted).abs().max() <= 1e-13 * max(1.0, wanted.abs().max().item())


def test_second_derivatives_are_right() -> None:
    inputs = tuple(tensor[..., :1, :2].clone().requires_grad_() for tensor in drawn(4, rows=1))
    assert torch.autograd.gradcheck(scan, inputs)
    assert torch.autograd.gradgradcheck(scan, inputs)


LONG = 20_000
RATES = torch.tensor([1.0, 1 - 1e-6, 0.999, 0.9, 0.5, 1e-3, 1e-30, 0.0], dtype=torch.float64)


@torch.no_grad()
def test_twenty_thousand_tokens() -> None:
    """From decays that forget nothing to those that underflow at once: float64, and float32 within its bound."""
    update = torch.randn(1, LONG, len(RATES), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    decay, start = RATES.expand_as(update), torch.ones(1, len(RATES), dtype=torch.float64)
    exact = looped(decay, update, start)
    assert (scan(decay, update, start) - exact).abs().max() <= 1e-10
    single = [tensor.float() for tensor in (decay, update, start)]
    exact = looped(*(tensor.double() for tensor in single))  # of the numbers that float32 has
    magnitude = looped(single[0].double(), single[1].double().abs(), single[2].double())
    gap = (scan(*single).double() - exact).abs()
    assert bool((gap <= 4 * (math.log2(LONG) + 1) * 2**-24 * magnitude).all())
    assert bool((gap > 0).any())


def test_gradients_over_a_long_text_are_finite_and_right() -> None:
    """Backwards it is the same recurrence: compared with the loop at 3,000 tokens, and finite at 20,000."""
    for tokens in (3000, LONG):
        update = torch.randn(1, tokens, len(RATES), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        decay = RATES.repeat(1, tokens, 1)
        inputs = (decay.requires_grad_(), update.requires_grad_(), torch.ones(1, len(RATES)).double().requires_grad_())
        found = slopes(scan(*inputs), inputs)
        assert all(bool(slope.isfinite().all()) for slope in found)
        if tokens < LONG:
            for made, wanted in zip(found, slopes(looped(*inputs), inputs), strict=True):
                assert (made - wanted).abs().max() <= 1e-10 * max(1.0, wanted.abs().max().item())


def test_tokens_are_not_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = 0, torch.addcmul

    def counted(*given: Any, **named: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return real(*given, **named)

    monkeypatch.setattr(torch, "addcmul", counted)
    scan(*drawn(1024))
    assert 0 < calls <= 3 * 11  # at each of eleven levels: the first token, pairs, and those between


@pytest.mark.parametrize("tokens", [1, 2, 5, 8, 31])
def test_crests_are_fading_maxima(tokens: int) -> None:
    draw = torch.Generator().manual_seed(0)
    key = 9 * torch.randn(2, tokens, 3, dtype=torch.float64, generator=draw)
    fade, level = -torch.rand(3, dtype=torch.float64, generator=draw), torch.full((2, 3), -1e38, dtype=torch.float64)
    made = crests(key, fade, level)
    for token in range(tokens):
        level = torch.maximum(level + fade, key[:, token])
        assert torch.allclose(made[:, token], level, rtol=0, atol=1e-13)


def test_what_stands_before_and_after() -> None:
    states, start = torch.arange(1.0, 7.0).view(2, 3, 1), torch.tensor([[-1.0], [-2.0]])
    assert before(states, start).squeeze(-1).tolist() == [[-1, 1, 2], [-2, 4, 5]]
    assert after(states, start, None).tolist() == [[3], [6]]
    assert after(states, start, torch.tensor([0, 2])).tolist() == [[-1], [5]]


def summed(state: Memory, count: Tensor | None, x: Tensor) -> tuple[Tensor, Memory]:
    states = scan(torch.full_like(x, 0.9), x, state[0])
    return states.square(), (after(states, state[0], count),)


@pytest.mark.parametrize("step", [summed, recomputed(summed)], ids=["held", "recomputed"])
@pytest.mark.parametrize("lengths", [[37, 37], [37, 5], [16, 32], [37, 0], [17, 33]])
def test_pieces_are_the_whole(step: Any, lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "PIECE", 1)  # then pieces have as few tokens as they may
    where = Where.ragged(lengths, width=37)
    x = torch.randn(2, 37, 3, dtype=torch.float64).requires_grad_()
    start = torch.randn(2, 3, dtype=torch.float64).requires_grad_()
    y, (kept,) = pieces(step, (start,), (x,), where, 6)
    whole, (wanted,) = summed((start,), where.real.sum(1), x)
    assert torch.allclose(y[where.real], whole[where.real], rtol=0, atol=1e-13)
    assert torch.allclose(kept, wanted, rtol=0, atol=1e-13)
    found, right = (
        torch.autograd.grad(z[where.real].sum() + s.sum(), (x, start)) for z, s in ((y, kept), (whole, wanted))
    )
    assert all(torch.allclose(a, b, rtol=0, atol=1e-13) for a, b in zip(found, right, strict=True))


def test_recomputed_pieces_can_be_differentiated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also towards what all pieces share."""
    monkeypatch.setattr(scans, "PIECE", 1)
    monkeypatch.setattr(scans, "LEAST", 2)

    def faded(state: Memory, count: Tensor | None, x: Tensor, fade: Tensor) -> tuple[Tensor, Memory]:
        states = scan(fade.expand_as(x), x, state[0])
        return states.square(), (after(states, state[0], count),)

    def whole(x: Tensor, fade: Tensor) -> Tensor:
        y, _ = pieces(recomputed(faded), (torch.ones(1, 2).double(),), (x,), Where.run(1, 5), 2, (fade,))
        return y

    x = torch.randn(1, 5, 2, dtype=torch.float64, requires_grad=True)
    fade = torch.rand(2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(whole, (x, fade))
    assert torch.autograd.gradgradcheck(whole, (x, fade))


def test_recomputed_pieces_hold_only_what_goes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "PIECE", 1)
    x, sizes = torch.randn(1, 320, 5, requires_grad=True), list[int]()
    for step in (recomputed(summed), summed):
        begin = partial(pieces, step, (torch.zeros(1, 5),), (x,), Where.run(1, 320), 5)
        sizes.append(sum(held(begin)))
    assert sizes[0] == 320 * 5 + 20 * 5 < sizes[1] / 2  # inputs, and the state before each of 20 pieces


def test_a_tail_is_the_last_tokens_of_each_row() -> None:
    x = torch.arange(1.0, 9.0).view(2, 4, 1)
    tail = torch.tensor([[[-2.0], [-1.0]], [[-4.0], [-3.0]]])
    both, kept = continued(x, Where.run(2, 4), tail)
    assert both.squeeze(-1).tolist() == [[-2, -1, 1, 2, 3, 4], [-4, -3, 5, 6, 7, 8]]
    assert kept.squeeze(-1).tolist() == [[3, 4], [7, 8]]
    _, kept = continued(x, Where.ragged([1, 0], width=4), tail)
    assert kept.squeeze(-1).tolist() == [[-1, 1], [-4, -3]]
