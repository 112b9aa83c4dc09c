"""Every kernel gives what its written-out form gives: over odd sizes, large and small numbers, on any processor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from heed.kernels import grouped, int8, linear, prebuilt, two_bits, w8a8
from heed.kernels.abi import Weights
from heed.parts.layers.bitnet import pack_ternary, quantise_ternary, quantised_linear
from heed.parts.layers.quantised import Int8Linear, quantise_groups, quantise_rows

pytestmark = pytest.mark.usefixtures("compiler")

SIZES = [
    (1, 1, 1),
    (1, 7, 5),
    (2, 64, 4),
    (3, 33, 17),
    (5, 129, 66),
    (6, 96, 9),
    (13, 770, 50),
    (200, 40, 3),
    (50, 37, 70),
    (49, 1100, 33),
    (48, 4401, 5),
]  # M, K, N
MANY = 12  # tokens from which on floats are multiplied by panels


@pytest.fixture(autouse=True)
def _this_one(compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "library", lambda: compiled)


def _given(tokens: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(tokens + inputs + outputs)
    x = torch.randn(tokens, inputs, generator=draw) * torch.logspace(-6, 6, tokens)[:, None]
    return x, torch.randn(outputs, inputs, generator=draw), torch.randn(outputs, generator=draw)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("biased", [True, False])
def test_eight_bits_to_the_last_one(sizes: tuple[int, int, int], biased: bool) -> None:
    x, weight, bias = _given(*sizes)
    codes, scale = quantise_rows(weight)
    shift = bias if biased else None
    assert torch.equal(int8(x, codes, scale, shift), linear.int8_written_out(x, codes, scale, shift))


@pytest.mark.parametrize("sizes", SIZES)
def test_eight_by_eight_bits_to_the_last_one(sizes: tuple[int, int, int]) -> None:
    x, weight, bias = _given(*sizes)
    codes, scale = quantise_rows(weight)
    assert torch.equal(w8a8(x, codes, scale, bias), linear.w8a8_written_out(x, codes, scale, bias))


@pytest.mark.parametrize("sizes", SIZES)
def test_two_bits_to_the_last_one(sizes: tuple[int, int, int]) -> None:
    x, weight, bias = _given(*sizes)
    whole = quantise_ternary(weight)
    codes, scale = pack_ternary(whole.codes), whole.scale.reshape(1)
    mine = two_bits(x, codes, scale, bias, len(weight))
    assert torch.equal(mine, linear.two_bits_written_out(x, codes, scale, bias, len(weight)))
    assert torch.equal(mine, quantised_linear(x, whole, bias))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("sizes", [(1, 32, 1), (3, 64, 7), (6, 96, 5), (7, 1024, 9), (50, 96, 37), (13, 2080, 5)])
def test_groups_up_to_the_order_of_a_sum(sizes: tuple[int, int, int], bits: int) -> None:
    x, weight, bias = _given(*sizes)
    codes, scale = quantise_groups(weight, bits)
    mine, wanted = grouped(x, codes, scale, bias), linear.grouped_written_out(x, codes, scale, bias)
    # Each of K / 32 sums is rounded to float32 on its way: that many units of what is summed, at most.
    most = (x.abs() @ weight.abs().T + bias.abs()) * 2.0**-23 * (sizes[1] // 32 + 4)
    assert bool(((mine - wanted).abs() <= most).all())


@pytest.mark.parametrize("sizes", SIZES)
def test_float32_up_to_the_order_of_a_sum(sizes: tuple[int, int, int]) -> None:
    x, weight, bias = _given(*sizes)
    mine = linear.product(Weights.FLOAT32, x, weight, None, bias, len(weight))
    wanted = x.double() @ weight.double().T + bias.double()
    # A lane of eight or sixteen adds up so many terms; with many tokens there is one sum for all of them.
    units = 2 * (sizes[1] // 8 + 4) if sizes[0] < MANY else sizes[1] + 4
    most = (x.abs() @ weight.abs().T + bias.abs()).double() * 2.0**-24 * units
    assert bool(((mine.double() - wanted).abs() <= most).all())


@pytest.mark.parametrize("inputs", [1, 516, 517, 4096, 40_000, 66_311, 66_312])
def test_no_sum_overflows(inputs: int) -> None:
    """All weights and all channels at their largest: the sum is as large as it can be."""
    assert 127 * linear.reach(inputs) * inputs < 2**31
    codes, scale = torch.full((4, inputs), 127, dtype=torch.int8), torch.ones(4)
    codes[1] = -127
    x = torch.ones(2, inputs)
    x[1] = -1
    y = int8(x, codes, scale)
    assert torch.equal(y, linear.int8_written_out(x, codes, scale, None))
    assert bool((y[0, 0] > 0) & (y[0, 1] < 0) & (y[1, 0] < 0))
    for tokens in (1, 60):
        many = x.repeat(tokens, 1)
        assert torch.equal(w8a8(many, codes, scale), linear.w8a8_written_out(many, codes, scale, None))
    ones = pack_ternary(torch.ones(4, inputs))
    for sign in (1, -1):
        many = two_bits(torch.full((1, inputs), float(sign)), ones, torch.ones(1), None, 4)
        torch.testing.assert_close(many, torch.full((1, 4), float(sign * inputs)), rtol=1e-6, atol=0)


@pytest.mark.parametrize("tokens", [9, 70])
@pytest.mark.parametrize("kind", [int8, w8a8])
def test_a_token_alone_is_a_token_among_others(kind: Callable[..., Tensor], tokens: int) -> None:
    x, weight, bias = _given(tokens, 50, 11)
    codes, scale = quantise_rows(weight)
    together = kind(x, codes, scale, bias)
    assert torch.equal(together, torch.cat([kind(row[None], codes, scale, bias) for row in x]))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("sizes", [(1, 32), (11, 160), (37, 2080), (5, 4224)])
def test_a_token_of_groups_alone_is_one_among_others(sizes: tuple[int, int], bits: int) -> None:
    """Sums of groups are floats, added up in one order by rows and by panels: also where rows are cut into parts."""
    outputs, inputs = sizes
    x, weight, bias = _given(29, inputs, outputs)
    codes, scale = quantise_groups(weight, bits)
    together = grouped(x, codes, scale, bias)
    for tokens in (1, 2, 3, 7, 11, 12, 13):
        assert torch.equal(together[:tokens], grouped(x[:tokens], codes, scale, bias))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("tokens", [1, 5, 14])
def test_groups_at_their_ends_are_exact(bits: int, tokens: int) -> None:
    """The largest weights times the largest channels: nothing overflows, and with steps of 1 nothing is rounded."""
    lowest, highest = (-128, 127) if bits == 8 else (-8, 7)
    weights = torch.tensor([lowest, highest]).repeat(5, 1).T.reshape(10, 1).expand(10, 96).to(torch.int8)
    codes = weights.contiguous() if bits == 8 else ((weights[:, :48] + 8) * 17).to(torch.uint8).contiguous()
    scale = torch.ones(10, 3).half()
    x = torch.ones(tokens, 96)
    x[::2] = -1
    wanted = (x.double() @ weights.double().T).float()
    torch.testing.assert_close(grouped(x, codes, scale), wanted, rtol=2**-22, atol=0)


def test_zeros_and_nothing() -> None:
    codes, scale = quantise_rows(torch.zeros(3, 4))
    assert torch.equal(int8(torch.zeros(2, 4), codes, scale), torch.zeros(2, 3))
    assert int8(torch.zeros(0, 4), codes, scale).shape == (0, 3)
    assert torch.equal(int8(torch.full((1, 4), 1e-38), codes, scale), torch.zeros(1, 3))


def test_it_is_an_operator_that_compilers_see_through() -> None:
    x, weight, bias = _given(3, 8, 5)
    layer = Int8Linear(torch.nn.Linear(8, 5))
    compiled = torch.compile(lambda x: layer(x) * 2, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x), layer(x) * 2)
    torch.library.opcheck(torch.ops.heed.int8, (x, *quantise_rows(weight), bias))


@pytest.mark.parametrize("kind", ["int8", "grouped", "two bits"])
def test_gradients_pass_to_the_tokens(kind: str) -> None:
    x, weight, bias = _given(3, 64, 5)
    x.requires_grad_()
    if kind == "int8":
        codes, scale = quantise_rows(weight)
        y, matrix = int8(x, codes, scale, bias), codes * scale[:, None]
    elif kind == "grouped":
        codes, scale = quantise_groups(weight, 4)
        y = grouped(x, codes, scale, bias)
        matrix = (linear.ungrouped(codes).unflatten(-1, (-1, 32)) * scale.float()[..., None]).flatten(-2)
    else:
        whole = quantise_ternary(weight)
        y, matrix = two_bits(x, pack_ternary(whole.codes), whole.scale.reshape(1), bias, 5), whole.value
    slope = torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    (found,) = torch.autograd.grad(y, x, slope)
    torch.testing.assert_close(found, slope @ matrix, rtol=1e-5, atol=1e-6)


def test_other_precisions_take_the_written_out_form() -> None:
    x, weight, bias = _given(3, 8, 5)
    codes, scale = quantise_rows(weight)
    y = int8(x.double(), codes, scale, bias)
    assert y.dtype == torch.float64
    torch.testing.assert_close(y.float(), x @ weight.T + bias, rtol=0.05, atol=0.05 * float(x.abs().max()))


def test_folder_of_sources_is_part_of_the_package() -> None:
    assert {path.name for path in prebuilt.SOURCES.iterdir()} >= {"linear.cpp", "step.cpp", "vector.h", "team.h"}
