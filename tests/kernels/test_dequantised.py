"""Without kernels: products of dequantised weights, to the last bit or within the rounding of a float32 sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed.kernels import build, dequantised, linear, written_out
from heed.kernels.build import Loaded
from heed.parts.layers.bitnet import PackedTernaryLinear, TernaryLinear, pack_ternary, quantise_ternary
from heed.parts.layers.linear import LinearLike
from heed.parts.layers.quantised import GroupedLinear, Int8Linear, quantise_groups, quantise_rows

SIZES = [(1, 1, 1), (1, 7, 5), (3, 33, 17), (13, 770, 50), (49, 1120, 37), (2, 4401, 6), (0, 8, 3)]  # M, K, N
LAYERS: dict[str, Callable[[nn.Linear], LinearLike]] = {
    "int8": Int8Linear,
    "w8a8": lambda layer: Int8Linear(layer, 8),
    "q8_0": lambda layer: GroupedLinear(layer, 8),
    "int4": lambda layer: GroupedLinear(layer, 4),
    "ternary": lambda layer: PackedTernaryLinear(TernaryLinear(layer)),
}


@pytest.fixture(autouse=True)
def _without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_loaded", lambda: Loaded(None, "none: a test"))


@pytest.fixture(params=[1 << 21, 2048], ids=["whole", "pieces"])
def _piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows at once, and some at a time."""
    monkeypatch.setattr(dequantised, "PIECE", request.param)


def _given(tokens: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(tokens + inputs + outputs)
    x = torch.randn(tokens, inputs, generator=draw) * torch.logspace(-6, 6, tokens)[:, None]
    return x, torch.randn(outputs, inputs, generator=draw), torch.randn(outputs, generator=draw)


def _within(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """K products and three factors, each rounded to float32 at most: of the magnitudes that are added up."""
    whole = (x.double().abs() @ weight.double().abs().T) * 1.3 + bias.double().abs()  # 1.3: 4 bits reach that far
    return whole * (x.shape[1] + 4) * 2.0**-24


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("sizes", SIZES)
def test_eight_by_eight_and_two_bits_to_the_last_one(sizes: tuple[int, int, int]) -> None:
    x, weight, bias = _given(*sizes)
    given = (*quantise_rows(weight), bias)
    assert torch.equal(linear.w8a8(x, *given), linear.w8a8_written_out(x, *given))
    whole = quantise_ternary(weight)
    packed = (pack_ternary(whole.codes), whole.scale.reshape(1), bias, len(weight))
    assert torch.equal(linear.two_bits(x, *packed), linear.two_bits_written_out(x, *packed))


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("sizes", SIZES)
def test_eight_bits_within_a_float32_sum(sizes: tuple[int, int, int]) -> None:
    x, weight, bias = _given(*sizes)
    given = (*quantise_rows(weight), bias)
    apart = (linear.int8(x, *given) - linear.int8_written_out(x, *given)).double().abs()
    assert bool((apart <= _within(x, weight, bias)).all())


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("sizes", [(1, 32, 1), (3, 64, 7), (7, 1024, 9), (50, 96, 37), (13, 2080, 5), (0, 32, 2)])
def test_groups_within_a_float32_sum(sizes: tuple[int, int, int], bits: int) -> None:
    x, weight, bias = _given(*sizes)
    given = (*quantise_groups(weight, bits), bias)
    apart = (linear.grouped(x, *given) - linear.grouped_written_out(x, *given)).double().abs()
    assert bool((apart <= _within(x, weight, bias)).all())


@pytest.mark.parametrize("inputs", [1024, 1025, 66_000])
def test_the_largest_numbers_are_summed_exactly(inputs: int) -> None:
    codes, scale = torch.full((3, inputs), 127, dtype=torch.int8), torch.ones(3)
    codes[1] = -128
    x = torch.ones(2, inputs)
    x[1] = -1
    x[1, 0] = 1
    assert torch.equal(linear.w8a8(x, codes, scale), linear.w8a8_written_out(x, codes, scale, None))
    ones = (pack_ternary(torch.ones(5, inputs)), torch.ones(1), None, 5)
    assert torch.equal(linear.two_bits(x, *ones), linear.two_bits_written_out(x, *ones))


@pytest.mark.parametrize("kind", ["w8a8", "ternary"])
def test_a_token_alone_is_a_token_among_others(kind: str) -> None:
    x, _, _ = _given(29, 1100, 1)
    layer = LAYERS[kind](nn.Linear(1100, 30))
    with torch.no_grad():
        assert torch.equal(layer(x), torch.cat([layer(row[None]) for row in x]))


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_hold_no_more_than_their_codes(kind: str) -> None:
    """Nothing is kept between calls: what is saved, moved or replaced is all there is."""
    layer = LAYERS[kind](nn.Linear(64, 9))
    x = torch.randn(2, 3, 64)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    y = layer(x)
    after = layer.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert isinstance(layer.codes, Tensor)
    layer.codes.zero_()  # in place: the next call knows
    assert not torch.equal(layer(x), y)
    layer.load_state_dict(before)
    assert torch.equal(layer(x), y)


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_and_compilers(kind: str) -> None:
    layer = LAYERS[kind](nn.Linear(64, 9))
    x = torch.randn(3, 64, requires_grad=True)
    y = layer(x)
    (found,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(found, layer.matrix.sum(0).expand(3, -1), rtol=1e-5, atol=1e-6)
    compiled = torch.compile(lambda x: layer(x) * 2, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x), 2 * layer(x))


@pytest.mark.parametrize("kind", LAYERS)
def test_half_precision_and_autocast(kind: str) -> None:
    """Sums are float32 whatever comes in, and whatever autocast would make of a product."""
    layer = LAYERS[kind](nn.Linear(64, 9, bias=False))
    x = torch.randn(3, 64)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            cast = layer(x)
        assert torch.equal(cast, layer(x))
        half = layer(x.bfloat16())
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half, layer(x.bfloat16().float()).bfloat16(), rtol=0, atol=0)


def test_who_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float64, and everything within `written_out()`."""

    def refuse(*_: Any) -> Iterator[None]:
        raise AssertionError

    for name in ("by_rows", "exactly_by_rows", "by_groups", "by_fields"):
        monkeypatch.setattr(dequantised, name, refuse)
    for make in LAYERS.values():
        layer = make(nn.Linear(64, 9))
        with written_out():
            layer(torch.randn(2, 64))
        layer.double()(torch.randn(2, 64, dtype=torch.float64))
