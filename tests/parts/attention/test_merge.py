"""Pieces merged are the softmax over their union, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.parts.attention.attend import written_out
from heed.parts.attention.merge import Piece, merged
from heed.parts.attention.sdpa import How, Pairs

WAYS = {"fused": How(None, 0.3), "capped": How(None, 0.3, cap=0.7)}


def tensors(*shape: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(3)]


def same(x: Tensor) -> Tensor:
    return x


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_two_halves_of_the_keys_are_all_keys(how: How) -> None:
    query, key, value = tensors(2, 9, 3, 4)
    visible = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(1)) > 0.5
    visible[0, :, 4] = False  # sees nothing at all
    visible[1, :, 2, :5] = False  # sees nothing in the first half
    halves = (slice(0, 5), slice(5, 9))
    pieces = [Piece(key[:, part], value[:, part], same, same, Pairs(visible[..., part])) for part in halves]
    y = merged(query, pieces, how)
    truth, _ = written_out(query, key, value, visible, scale=how.scale, cap=how.cap)
    torch.testing.assert_close(y, truth, rtol=0, atol=1e-14)
    target = torch.randn_like(y)
    got, wanted = (torch.autograd.grad((x * target).sum(), (query, key, value)) for x in (y, truth))
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_piece_may_hold_some_queries_only(how: How) -> None:
    query, key, value = tensors(1, 8, 2, 4)

    def take(x: Tensor) -> Tensor:
        return x[:, 1::2]

    def put(x: Tensor) -> Tensor:
        whole = x.new_zeros(x.shape[0], 8, *x.shape[2:])
        whole[:, 1::2] = x
        return whole

    triangle = Pairs(triangle=True)
    y = merged(query, [Piece(key, value, same, same, triangle), Piece(key[:, :3], value[:, :3], take, put)], how)
    order = torch.arange(8)
    twice = torch.cat((order[:, None] >= order, (order % 2 == 1)[:, None].expand(-1, 3)), 1)
    keys, values = (torch.cat((x, x[:, :3]), 1) for x in (key, value))
    truth, _ = written_out(query, keys, values, twice[None, None], scale=how.scale, cap=how.cap)
    torch.testing.assert_close(y, truth, rtol=0, atol=1e-14)
    got, wanted = (torch.autograd.grad(x.square().sum(), (query, key, value)) for x in (y, truth))
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-14)


def test_dropped_weights_keep_their_mean() -> None:
    query, key, value = tensors(1, 4, 1, 4)
    many = [x.detach().expand(2000, -1, -1, -1) for x in (query, key, value)]
    pieces = [Piece(many[1][:, part], many[2][:, part], same, same) for part in (slice(0, 2), slice(2, 4))]
    y = merged(many[0], pieces, How(None, 0.3, dropout=0.2))
    truth, _ = written_out(query, key, value, scale=0.3)
    spread = float(y.std(0).max()) / 2000**0.5
    assert spread > 0
    torch.testing.assert_close(y.mean(0, keepdim=True), truth.detach(), rtol=0, atol=5 * spread)
