"""`attend` equals the equation written as loops; its fast forms equal the written-out one, values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import heed
from heed.core.contract import Where
from heed.core.errors import InputError
from heed.core.stamps import Stamps
from heed.mixers.attention import SAMPLE_MASKS
from heed.parts.attention import sdpa as fused
from heed.parts.attention.attend import attend, masked_softmax, written_out
from heed.parts.masks import Causal, Mask, Sight, Whole, Window
from heed.parts.scores import SCORES
from heed.verify.statements import ATTEND, pooled


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def test_the_equation_as_loops() -> None:
    query, key, value = draw(2, 3, 4, 5), draw(2, 6, 2, 5), draw(2, 6, 2, 7)
    mask, bias = torch.rand(2, 4, 3, 6) > 0.4, draw(2, 4, 3, 6)
    mask[..., 0] = True
    y, weights = written_out(query, key, value, mask, bias=bias, scale=0.3)
    for b in range(2):
        for h in range(4):
            for t in range(3):
                seen = [n for n in range(6) if mask[b, h, t, n]]
                score = {n: 0.3 * float(query[b, t, h] @ key[b, n, h // 2]) + float(bias[b, h, t, n]) for n in seen}
                total = sum(math.exp(s) for s in score.values())
                wanted = sum(math.exp(s) / total * value[b, n, h // 2] for n, s in score.items())
                assert torch.allclose(y[b, t, h], torch.as_tensor(wanted), rtol=0, atol=1e-14)
                assert abs(float(weights[b, h, t].sum()) - 1) < 1e-14


@pytest.mark.parametrize("statement", ATTEND)
def test_fast_forms_are_the_written_out_one(statement: str) -> None:
    for finding in ATTEND[statement]():
        assert finding.holds, finding


def test_scores_pool_to_a_mean_or_to_nothing() -> None:
    for finding in pooled(SCORES):
        assert finding.holds, finding


@settings(max_examples=60, deadline=None)
@given(
    mask=st.sampled_from([*SAMPLE_MASKS, Causal()]),
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    heads=st.sampled_from([(4, 4), (4, 2), (6, 2), (2, 1)]),
    start=st.integers(0, 4),
)
def test_any_ragged_rows_any_heads(mask: Mask, lengths: list[int], heads: tuple[int, int], start: int) -> None:
    width = max(*lengths, start, 1)
    seen = Where.ragged(lengths, width=width)
    where = seen.cut(min(start, width - 1), width)
    query, key = draw(len(lengths), where.shape[1], heads[0], 6), draw(len(lengths), width, heads[1], 6)
    sight = mask(where, seen)
    fast, slow = attend(query, key, key, sight), written_out(query, key, key, sight)[0]
    assert torch.allclose(fast, slow, rtol=0, atol=1e-13)


@pytest.mark.parametrize("back", [0, 1, 31, 32, 63, 100])
@pytest.mark.parametrize("tokens", [257, 400])
def test_windows_never_build_an_n_by_n_mask(back: int, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0

    def spy(self: Sight, heads: int) -> Tensor:
        nonlocal largest
        pairs = original(self, heads)
        largest = max(largest, pairs.numel())
        return pairs

    original = Sight.pairs
    monkeypatch.setattr(Sight, "pairs", spy)
    where = Where.run(1, tokens)
    q = draw(1, tokens, 2, 4)
    y = attend(q, q, q, Window(back=back)(where, where))
    assert largest <= (tokens + 128) * (2 * back + 2 * 128)
    monkeypatch.undo()
    assert torch.allclose(y, written_out(q, q, q, Window(back=back))[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("mask", [Window(back=20), Window(back=40, ahead=33)], ids=repr)
def test_passes_without_gradients_are_the_equation(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is learnt, the blocks are smaller, and only some of them are computed at once."""
    q, k, v = draw(2, 300, 4, 6), draw(2, 300, 2, 6), draw(2, 300, 2, 5)
    where = Where.ragged([300, 201])
    monkeypatch.setattr(fused, "PASS", 2 * 64 * 4 * 5)  # 64 queries of all rows and heads
    with torch.no_grad():
        y = attend(q, k, v, mask(where, where))
    assert torch.allclose(y, where.blank(written_out(q, k, v, mask(where, where))[0]), rtol=0, atol=1e-13)


def test_a_computed_bias_is_computed_block_by_block() -> None:
    def term(query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        return (seen.position[:, None, None, :] - where.position[:, None, :, None]).double() * 0.1

    q = draw(2, 300, 2, 4)
    where = Where.ragged([300, 201])
    sight = Window(back=20)(where, where)
    near, slow = attend(q, q, q, sight, bias=term), written_out(q, q, q, sight, bias=term)[0]
    assert torch.allclose(near, slow, rtol=0, atol=1e-13)


def test_float32_is_as_good_as_its_rounding() -> None:
    """A softmax average of n values of size one in float32 is off by a few roundings (6e-8) of the scores and the sum;
    scores here are below 8, so their exponentials are off by at most 8 roundings, and so are the weights."""
    q, k, v = (draw(2, 256, 4, 32) for _ in range(3))
    exact = written_out(q, k, v, Causal())[0]
    single = attend(q.float(), k.float(), v.float(), Causal()).double()
    assert float((single - exact).abs().max()) < 32 * torch.finfo(torch.float32).eps


def test_no_gradient_is_poisoned_by_who_sees_nothing() -> None:
    where = Where.ragged([4, 0])
    for mask in (Causal(), Whole(), Window(back=1)):
        tensors = query, key, value = [draw(2, 4, 2, 3).requires_grad_() for _ in range(3)]
        y = attend(query, key, value, mask(where, where))
        assert bool((y[1] == 0).all())
        y.square().sum().backward()
        assert all(t.grad is not None and bool(t.grad.isfinite().all()) for t in tensors)


def test_masked_softmax_ignores_even_enormous_hidden_scores() -> None:
    score = torch.tensor([[-1e30, 1e30, 0.0], [1e30, 1e30, 1e30]], dtype=torch.float64)
    visible = torch.tensor([[True, False, True], [False, False, False]])
    assert masked_softmax(score, visible).tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_a_bare_mask_puts_the_queries_last() -> None:
    q, k = draw(1, 2, 2, 3), draw(1, 5, 2, 3)
    sight = Causal()(Where.run(1, 2, start=3), Where.run(1, 5))
    assert torch.equal(heed.attend(q, k, k, Causal()), attend(q, k, k, sight))


Q, K = torch.zeros(2, 3, 4, 5), torch.zeros(2, 6, 2, 5)
BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: attend(Q[0], K[0], K[0]), r"needs \[rows, tokens, heads, size\] three times"),
    (lambda: attend(Q, K, K[:, :5]), "do not fit: rows must be equal"),
    (lambda: attend(Q, K[..., :4], K[..., :4]), "query and key in size"),
    (lambda: attend(Q[:, :, :3], K, K), "3 query heads cannot share 2 key heads evenly"),
    (lambda: attend(Q, K, K, torch.ones(2, 4, 3, 6)), "must be boolean with True = visible, not torch.float32"),
    (
        lambda: attend(Q, K, K, torch.ones(3, 6, dtype=torch.bool)),
        r"mask has shape \(3, 6\); needed is .*\(2, 4, 3, 6\)",
    ),
    (lambda: attend(Q, K, K, torch.ones(2, 1, 3, 5, dtype=torch.bool)), r"mask has shape \(2, 1, 3, 5\)"),
    (lambda: attend(K, Q[:, :, :2], Q[:, :, :2], Causal()), "6 queries cannot be the last of 3 keys"),
    (lambda: attend(Q, K, K, Causal()(Where.run(2, 4), Where.run(2, 6))), r"about \(2, 4\) queries"),
    (lambda: attend(Q, K, K, bias=lambda q, k, a, b: q), "needs stamped tokens"),
    (lambda: attend(Q, K, K, bias=torch.ones(1, 1, 3, 6, dtype=torch.bool)), "must hold numbers, not torch.bool"),
    (lambda: attend(Q, K, K, bias=torch.ones(3, 6)), r"bias has shape \(3, 6\); needed is"),
]


@pytest.mark.parametrize(("call", "words"), BAD, ids=[words for _, words in BAD])
def test_what_does_not_fit_is_explained(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


def test_who_sees_nothing_has_weights_of_zero_and_spoils_no_gradient() -> None:
    """A softmax over nothing is 0/0; its gradient would be NaN, and with it that of all weights of a model."""
    score = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    visible = torch.ones(2, 3, 4, dtype=torch.bool)
    visible[0, 1], visible[1, 2, 1:] = False, False
    weight = masked_softmax(score, visible)
    (weight * torch.arange(4)).square().sum().backward()
    assert not weight[0, 1].any()
    assert weight[1, 2].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert torch.allclose(weight.sum(-1)[0, [0, 2]], torch.ones(2).double())
    assert score.grad is not None
    assert score.grad.isfinite().all()
    assert not score.grad[0, 1].any()
