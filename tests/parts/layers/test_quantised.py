"""Codes and scales: every weight is rounded to the nearest code of its row or group, and codes lie as kernels read.

What is quantised is compared with the equations element by element; a wrong scale or a lost half of a byte would still
give numbers, only worse ones.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from heed.core.errors import ConfigError
from heed.kernels import GROUP
from heed.parts.layers.embeddings import QuantisedEmbedding
from heed.parts.layers.quantised import GroupedLinear, Int8Linear, quantise_groups, quantise_rows


def weights(rows: int = 5, columns: int = 3 * GROUP) -> Tensor:
    """Rows of very different size."""
    draw = torch.Generator().manual_seed(7)
    return torch.randn(rows, columns, generator=draw) * torch.logspace(-3, 1, rows)[:, None]


def test_a_row_is_rounded_to_the_nearest_code_of_its_own_scale() -> None:
    exact = weights()
    codes, scale = quantise_rows(exact)
    for row, (numbers, step) in enumerate(zip(exact.tolist(), scale.tolist(), strict=True)):
        largest = max(map(abs, numbers))
        assert step == pytest.approx(largest / 127, rel=1e-6)
        assert codes[row].tolist() == [round(number / step) for number in numbers]
    assert int(codes.abs().max()) == 127
    assert ((codes * scale[:, None] - exact).abs() <= 0.5001 * scale[:, None]).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_a_group_is_rounded_to_the_nearest_code_of_its_own_scale(bits: int) -> None:
    """With four bits the largest in magnitude is -8, whatever its sign, so that the scale may be negative."""
    exact = weights()
    layer = nn.Linear(exact.shape[1], len(exact), bias=False)
    layer.weight = nn.Parameter(exact)
    made = GroupedLinear(layer, bits)
    for row, group in ((row, group) for row in range(5) for group in range(3)):
        numbers = exact[row, group * GROUP : (group + 1) * GROUP].tolist()
        extreme = max(numbers, key=abs)
        step = float(torch.tensor(abs(extreme) / 127 if bits == 8 else extreme / -8).half())
        low, high = (-127, 127) if bits == 8 else (-8, 7)
        wanted = [min(high, max(low, round(number / step))) * step for number in numbers]
        assert made.matrix[row, group * GROUP : (group + 1) * GROUP].tolist() == pytest.approx(wanted, rel=1e-6)


def test_four_bits_lie_in_halves_of_a_group() -> None:
    """As in GGUF's q4_0: byte b of a group holds its weight b below and its weight b + 16 above, each plus 8."""
    exact = weights(2, 2 * GROUP)
    codes, scale = quantise_groups(exact, 4)
    assert (codes.dtype, tuple(codes.shape), tuple(scale.shape)) == (torch.uint8, (2, GROUP), (2, 2))
    for row, group, place in ((r, g, p) for r in range(2) for g in range(2) for p in range(GROUP // 2)):
        byte = int(codes[row, group * GROUP // 2 + place])
        for code, at in ((byte & 15, place), (byte >> 4, place + GROUP // 2)):
            number = float(exact[row, group * GROUP + at]) / float(scale[row, group])
            assert code - 8 == min(7, max(-8, round(number)))


@pytest.mark.parametrize("bits", [8, 4])
def test_a_group_of_nothing_stays_nothing(bits: int) -> None:
    codes, scale = quantise_groups(torch.zeros(1, GROUP), bits)
    assert not scale.any()
    assert {int(code) for code in codes.flatten()} == ({0} if bits == 8 else {8 | 8 << 4})


def test_many_rows_are_quantised_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quantise_rows(weights(9))
    monkeypatch.setattr("heed.parts.layers.quantised.PIECE", 2 * 3 * GROUP)
    for one, other in zip(quantise_rows(weights(9)), whole, strict=True):
        assert torch.equal(one, other)


def test_scales_in_half_precision_stay_so_when_the_model_becomes_float32() -> None:
    layer = nn.Linear(GROUP, 4)
    made = GroupedLinear(layer, 8)
    held = made.scale.clone()
    for dtype, wanted in ((torch.float32, torch.float16), (torch.float64, torch.float64)):
        assert made.to(dtype).scale.dtype == wanted
    assert torch.equal(made.scale, held.double())
    assert nn.Sequential(GroupedLinear(layer, 8)).float()[0].scale.dtype == torch.float16


@pytest.mark.parametrize("make", [Int8Linear, lambda one: GroupedLinear(one, 8), lambda one: GroupedLinear(one, 4)])
def test_an_embedding_is_the_rows_of_the_layer_that_it_shares_codes_with(make: object) -> None:
    layer = nn.Linear(3 * GROUP, 5, bias=False)
    layer.weight = nn.Parameter(weights())
    made = make(layer)  # type: ignore[operator]
    table = QuantisedEmbedding(made)
    index = torch.tensor([[4, 0, 3], [1, 1, 2]])
    assert torch.allclose(table(index), made.matrix[index], rtol=1e-6, atol=0)
    assert table.codes is made.codes


def test_inputs_that_do_not_divide_into_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="33 inputs do not divide into groups of 32; use int8"):
        GroupedLinear(nn.Linear(33, 2), 8)
