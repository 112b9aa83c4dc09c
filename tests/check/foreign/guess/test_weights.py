"""Functions whose weights are arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.check import check
from heed.check.foreign.guess.weights import Held, held, shapes_of
from heed.check.foreign.sizes import Sizes


def one_head(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    query, key = x @ w_q, x @ w_k
    return torch.softmax(query @ key.mT / key.shape[-1] ** 0.5, -1) @ (x @ w_v)


def packed(x: Tensor, w_qkv: Tensor, b_qkv: Tensor, w_out: Tensor, n_heads: int, mask: Tensor | None = None) -> Tensor:
    query, key, value = (x @ w_qkv + b_qkv).unflatten(-1, (3, n_heads, -1)).permute(2, 0, 3, 1, 4)
    score = query @ key.mT / key.shape[-1] ** 0.5
    score = score if mask is None else score.masked_fill(~mask, float("-inf"))
    return (score.softmax(-1) @ value).transpose(1, 2).flatten(2) @ w_out


def over_queries(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> Tensor:
    query, key = x @ wq, x @ wk
    return torch.softmax(query @ key.mT / key.shape[-1] ** 0.5, 1) @ (x @ wv)


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return gain * (x - mean) / (variance + eps).sqrt() + bias


def norm_over_tokens(x: Tensor, gamma: Tensor) -> Tensor:
    return gamma * x / (x.square().mean(1, keepdim=True) + 1e-6).sqrt()


def ffn(x: Tensor, w_up: Tensor, b_up: Tensor, w_down: Tensor, b_down: Tensor) -> Tensor:
    return torch.relu(x @ w_up + b_up) @ w_down + b_down


def gathered(x: Tensor, places: Tensor) -> Tensor:
    return x[:, places]


@pytest.mark.parametrize("function", [one_head, packed, layer_norm, ffn], ids=lambda one: one.__name__)
def test_right_ones_are_left_alone(function: Callable[..., Any]) -> None:
    assert check(function).ok


@pytest.mark.parametrize(("function", "slug"), [(over_queries, "softmax-axis"), (norm_over_tokens, "norm-axes")])
def test_wrong_ones_are_found(function: Callable[..., Any], slug: str) -> None:
    assert check(function).slugs == [slug]


def test_the_rest_is_what_is_left_to_be_given() -> None:
    found = held(packed)
    assert isinstance(found, Held)
    assert list(inspect.signature(found.call).parameters) == ["x", "n_heads", "mask"]
    assert {name: tuple(weight.shape) for name, weight in found.weights.items()} == {
        "w_qkv": (24, 72),
        "b_qkv": (72,),
        "w_out": (24, 24),
    }
    x = torch.randn(3, 7, 24, dtype=torch.float64)
    assert torch.equal(found.call(x=x, n_heads=4), packed(x, **found.weights, n_heads=4))


def test_what_takes_no_weights_is_none_of_them() -> None:
    assert held(gathered) is None
    assert held(torch.nn.Linear(2, 2)) is None
    assert shapes_of("places", Sizes()) == []
