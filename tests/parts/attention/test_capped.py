"""Capped scores, and keys and values of unequal widths: what the fused kernel cannot do by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heed.core.cases import gradients_of
from heed.core.contract import Where
from heed.core.stamps import Stamps
from heed.mixers.attention import SAMPLE_MASKS
from heed.parts.attention import sdpa as fused
from heed.parts.attention.attend import attend, written_out
from heed.parts.masks import Causal, Mask, Window

EXACT = 1e-12


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def equal(fast: Tensor, slow: Tensor, inputs: list[Tensor]) -> None:
    """Values and gradients."""
    target = torch.linspace(-1, 1, slow.numel(), dtype=slow.dtype).view_as(slow)
    for a, b in zip(
        [fast, *gradients_of((fast * target).sum(), inputs)],
        [slow, *gradients_of((slow * target).sum(), inputs)],
        strict=True,
    ):
        assert float((a - b).detach().abs().max()) <= EXACT * max(1.0, float(b.detach().abs().max()))


def test_the_equation_as_loops() -> None:
    query, key, value = draw(2, 3, 4, 5), draw(2, 6, 2, 5), draw(2, 6, 2, 7)
    mask, bias = torch.rand(2, 4, 3, 6) > 0.4, draw(2, 4, 3, 6)
    mask[..., 0] = True
    y, _ = written_out(query, key, value, mask, bias=bias, scale=3.0, cap=0.7)
    for b, h, t in ((b, h, t) for b in range(2) for h in range(4) for t in range(3)):
        raw = {n: 3.0 * float((query[b, t, h] @ key[b, n, h // 2]).detach()) for n in range(6) if mask[b, h, t, n]}
        power = {n: math.exp(0.7 * math.tanh(s / 0.7) + float(bias[b, h, t, n].detach())) for n, s in raw.items()}
        wanted = sum(p / sum(power.values()) * value[b, n, h // 2] for n, p in power.items())
        assert torch.allclose(y[b, t, h], torch.as_tensor(wanted), rtol=0, atol=1e-14)
    equal(attend(query, key, value, mask, bias=bias, scale=3.0, cap=0.7), y, [query, key, value, bias])


@settings(max_examples=40, deadline=None)
@given(
    mask=st.sampled_from([Causal(), *(mask for mask in SAMPLE_MASKS if "Blocks" not in repr(mask))]),
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    heads=st.sampled_from([(4, 4), (4, 2), (2, 1)]),
    held=st.sampled_from([1, 200, 1 << 22]),
    biased=st.booleans(),
)
def test_any_mask_any_rows_any_heads(
    mask: Mask, lengths: list[int], heads: tuple[int, int], held: int, biased: bool
) -> None:
    """With `held` scores at once, so that what is small here goes the way of what is large."""
    width = max(*lengths, 1)
    where = Where.ragged(lengths, width=width)
    query, key, value = (draw(len(lengths), width, count, 6) for count in (heads[0], heads[1], heads[1]))
    sight = mask(where, where)
    bias = (lambda q, k, a, b: (a.position[:, None, :, None] - b.position[:, None, None, :]) * 0.1) if biased else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "HELD", held)
        fast = attend(query, key, value, sight, bias=bias, scale=2.0, cap=0.8)
        slow, _ = written_out(query, key, value, sight, bias=bias, scale=2.0, cap=0.8)
        equal(fast, slow, [query, key, value])


def test_never_more_scores_than_must_be_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not over a long text, and not over a window, whose scores are as many as the window is wide."""
    most, total = 0, 0

    def spy(query: Tensor, key: Tensor, *rest: Any) -> Tensor:
        nonlocal most, total
        scores = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[1]
        most, total = max(most, scores), total + scores
        return original(query, key, *rest)

    original: Callable[..., Tensor] = fused._plain
    monkeypatch.setattr(fused, "_plain", spy)
    monkeypatch.setattr(fused, "HELD", 1 << 14)
    tokens, heads = 1024, 4
    query, key = draw(1, tokens, heads, 8), draw(1, tokens, 2, 8)
    where = Where.run(1, tokens)
    with torch.no_grad():
        for mask in (Causal(), Window(back=100)):
            most = total = 0
            y = attend(query, key, key, mask(where, where), cap=2.0)
            assert most <= 16 * heads * tokens  # sixteen queries are the least
            assert torch.allclose(y, written_out(query, key, key, mask, cap=2.0)[0], rtol=0, atol=EXACT)
    assert total <= tokens * heads * (100 + 2 * fused.BLOCK + 64)  # the window's
    most = total = 0
    loss = attend(query, key, key, Causal()(where, where), cap=2.0).sum()
    forward = total
    loss.backward()
    assert total == 2 * forward  # computed again, not kept
    assert total <= 2 * heads * tokens * (tokens + 16) / 2 * 1.1  # and half of them, in the triangle


def test_who_sees_nothing_gets_zeros_and_finite_gradients() -> None:
    def term(query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        return torch.zeros(1, 1, where.shape[1], seen.shape[1], dtype=torch.float64)

    where = Where.ragged([4, 0])
    for bias in (None, term):
        tensors = query, key, value = [draw(2, 4, 2, 3) for _ in range(3)]
        y = attend(query, key, value, Causal()(where, where), bias=bias, cap=1.0)
        assert bool((y[1] == 0).all())
        y.square().sum().backward()
        assert all(t.grad is not None and bool(t.grad.isfinite().all()) for t in tensors)


@pytest.mark.parametrize("heads", [2, 1])
def test_a_token_before_which_there_is_none_gets_zeros(heads: int) -> None:
    """Not padding, which is blanked in any case: the first token of a mask that hides the token itself."""
    where, mask = Where.run(2, 4), Causal() - Window(back=0)
    query, key, value = draw(2, 4, 2, 3), draw(2, 4, heads, 3), draw(2, 4, heads, 3)
    y = attend(query, key, value, mask(where, where), cap=1.0)
    assert bool((y[:, 0] == 0).all())
    equal(y, written_out(query, key, value, mask(where, where), cap=1.0)[0], [query, key, value])


def test_dropout_falls_on_capped_weights_too() -> None:
    query = draw(1, 6, 2, 4)
    assert not torch.equal(attend(query, query, query, cap=1.0, dropout=0.5), attend(query, query, query, cap=1.0))


@pytest.mark.parametrize(("size", "value_size"), [(6, 4), (4, 6), (6, 1)])
@pytest.mark.parametrize("mask", [Causal(), Window(back=5)])
def test_values_may_be_narrower_or_wider_than_keys(size: int, value_size: int, mask: Mask) -> None:
    where = Where.run(2, 200)
    query, key, value = draw(2, 200, 4, size), draw(2, 200, 2, size), draw(2, 200, 2, value_size)
    fast, slow = attend(query, key, value, mask(where, where)), written_out(query, key, value, mask)[0]
    equal(fast, slow, [query, key, value])
