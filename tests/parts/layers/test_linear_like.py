"""Layers that stand where a linear one stood: the papers' equations, element by element; bits; gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heed.parts.layers.bitnet import (
    BinaryLinear,
    PackedTernaryLinear,
    TernaryLinear,
    pack_ternary,
    quantise_ternary,
    unpack_ternary,
)
from heed.parts.layers.linear import LinearLike, matrix_of
from heed.parts.layers.lora import LoraLinear

EXACT = 1e-12  # float64: sums of a dozen terms
draw = torch.Generator().manual_seed(0)


def layer(out: int = 6, inputs: int = 10, *, bias: bool = True) -> nn.Linear:
    return nn.Linear(inputs, out, bias=bias).double()


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def gap(one: Tensor, other: Tensor) -> float:
    return float((one - other).detach().abs().max())


def test_ternary_is_the_equation() -> None:
    """Ma et al. 2024, eq. 1 to 3, weight by weight and channel by channel."""
    made, x = layer().requires_grad_(False), numbers(2, 3, 10)
    mean = sum(abs(float(w)) for w in made.weight.flatten()) / made.weight.numel()
    wanted = torch.zeros(2, 3, 6, dtype=torch.float64)
    for row in range(2):
        for token in range(3):
            step = max(abs(float(c)) for c in x[row, token]) / 127
            channels = [min(127, max(-128, round(float(c) / step))) * step for c in x[row, token]]
            for out in range(6):
                weights = [min(1, max(-1, round(float(w) / mean))) * mean for w in made.weight[out]]
                total = sum(w * c for w, c in zip(weights, channels, strict=True))
                wanted[row, token, out] = total + float(made.bias[out])
    assert gap(TernaryLinear(made)(x), wanted) < EXACT


def test_binary_is_the_equation() -> None:
    """Wang et al. 2023, eq. 1 to 12: signs of centred weights, and channels of 8 bits after a norm."""
    made, x = layer().requires_grad_(False), numbers(4, 10)
    norm = nn.LayerNorm(10, elementwise_affine=False)
    centre = float(made.weight.mean())
    mean = float(made.weight.abs().mean())
    wanted = torch.zeros(4, 6, dtype=torch.float64)
    for token in range(4):
        centred = x[token] - x[token].mean()
        channels = centred / (centred.square().mean() + 1e-5).sqrt()
        largest = float(channels.abs().max())
        whole = [min(127, max(-127, round(float(c) * 128 / largest))) for c in channels]
        for out in range(6):
            signs = [1 if float(w) > centre else -1 for w in made.weight[out]]
            total = sum(s * c for s, c in zip(signs, whole, strict=True))
            wanted[token, out] = total * mean * largest / 128 + float(made.bias[out])
    assert gap(BinaryLinear(made, norm)(x), wanted) < EXACT


@pytest.mark.parametrize("kind", [TernaryLinear, BinaryLinear])
def test_gradients_pass_the_roundings(kind: Callable[[nn.Linear], LinearLike]) -> None:
    """As if y = x'W'ᵀ were made of x and W themselves: ∂y/∂x = W' and ∂y/∂W = x'."""
    made, x = layer(bias=False), numbers(5, 10).requires_grad_()
    edited = kind(made)
    gradient = numbers(5, 6)
    y = edited(x)
    y.backward(gradient)
    assert x.grad is not None
    assert gap(x.grad, gradient @ edited.matrix) < EXACT
    assert made.weight.grad is not None
    assert gap(made.weight.grad @ edited.matrix.T, gradient.T @ y) < EXACT  # x'W'ᵀ is y


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 11])
def test_four_weights_in_a_byte(rows: int) -> None:
    whole = torch.randint(-1, 2, (rows, 7), generator=draw)
    codes = pack_ternary(whole)
    assert (codes.dtype, tuple(codes.shape)) == (torch.uint8, (-(-rows // 4), 7))
    assert torch.equal(unpack_ternary(codes, rows).long(), whole)
    step = len(codes)
    for row in range(rows):  # weight r + f·R in bits 2f and 2f + 1 of row r
        assert torch.equal((codes[row % step].long() >> 2 * (row // step)) & 3, whole[row] + 1)


@pytest.mark.parametrize("out", [5, 8])
def test_packed_is_ternary_to_the_last_bit(out: int) -> None:
    made, x = nn.Linear(300, out), torch.randn(2, 9, 300, generator=draw)
    plain, small = TernaryLinear(made, nn.RMSNorm(300)), PackedTernaryLinear(made, nn.RMSNorm(300))
    with torch.no_grad():
        assert torch.equal(plain(x), small(x))
        assert torch.equal(plain(x), PackedTernaryLinear(plain)(x))
        assert torch.equal(plain.matrix, small.matrix)
    rows = -(-out // 4)
    assert small.codes.nbytes == rows * 300 == made.weight.nbytes * rows / out / 4


def test_whole_numbers_do_not_depend_on_the_batch() -> None:
    """Products of whole numbers are exact in float32: one token alone gives the bits that it has among many."""
    made = TernaryLinear(nn.Linear(1000, 64))
    x = torch.randn(40, 1000, generator=draw)
    with torch.no_grad():
        assert all(torch.equal(made(x)[row], made(x[row : row + 1])[0]) for row in range(40))


def test_low_rank_is_the_equation_and_begins_with_nothing() -> None:
    made, x = layer(), numbers(4, 10)
    edited = LoraLinear(made, rank=3, scale=0.5)
    assert torch.equal(edited(x), made(x))
    with torch.no_grad():
        edited.b.copy_(numbers(6, 3))
    assert gap(edited(x), x @ (made.weight + 0.5 * edited.b @ edited.a).T + made.bias) < EXACT
    assert gap(edited.matrix, made.weight + 0.5 * edited.b @ edited.a) == 0.0
    assert edited.bias is made.bias
    assert {name for name, _ in edited.named_parameters()} == {"a", "b", "base.weight", "base.bias"}


def test_low_rank_drops_only_what_it_reads_and_only_in_training() -> None:
    edited = LoraLinear(layer(bias=False), rank=2, scale=1.0, dropout=0.5)
    x = numbers(3, 10)
    assert torch.equal(edited(x), edited.base(x))  # b is zero: whatever is dropped
    with torch.no_grad():
        edited.b.fill_(1.0)
    assert not torch.equal(edited(x), edited(x))
    assert torch.equal(edited.eval()(x), edited(x))


def test_the_matrix_of_any_layer() -> None:
    """What a layer makes of the unit vectors, which 8 bits hold exactly."""
    made, unit = layer(bias=False), torch.eye(10, dtype=torch.float64)
    for edited in (made, TernaryLinear(made), PackedTernaryLinear(made), LoraLinear(TernaryLinear(made), 2, 1.0)):
        assert gap(matrix_of(edited), edited(unit).T) < EXACT
    for edited in (PackedTernaryLinear(made), LoraLinear(made, 2, 1.0)):
        assert (edited.weight.shape, edited.weight.dtype) == (made.weight.shape, torch.float64)
        assert bool(edited.weight.isnan().all())  # to compute with it is noticed


def test_a_weight_at_the_mean_counts_as_negative() -> None:
    """sign(0) = -1 (Wang et al. 2023, eq. 2): so it is stored in one bit."""
    made = layer(1, 4, bias=False)
    with torch.no_grad():
        made.weight.copy_(torch.tensor([[-1.0, 1.0, 0.0, 0.0]]))
    assert BinaryLinear(made).matrix.tolist() == [[-0.5, 0.5, -0.5, -0.5]]


@pytest.mark.parametrize("value", [0.0, 1e-30])
def test_layers_of_nothing(value: float) -> None:
    made = layer(bias=False)
    nn.init.constant_(made.weight, value)
    x = torch.zeros(2, 10, dtype=torch.float64)
    for edited in (TernaryLinear(made), PackedTernaryLinear(made), BinaryLinear(made)):
        assert bool(edited(x).isfinite().all())
    assert float(quantise_ternary(made.weight).scale) == 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_in_half_precision(dtype: torch.dtype) -> None:
    made, x = nn.Linear(16, 8).to(dtype), torch.randn(3, 16, generator=draw).to(dtype)
    for edited in (TernaryLinear(made), PackedTernaryLinear(made), BinaryLinear(made), LoraLinear(made, 2, 1.0)):
        assert edited(x).dtype == dtype
