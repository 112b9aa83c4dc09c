"""Fourier mixing against its equation, written as loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import CannotStream
from heed.mixers import Fourier
from heed.mixers.fourier import transformed
from tests.mixers.growth import grows


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def by_hand(x: Tensor) -> Tensor:
    tokens, width = x.shape
    y = torch.zeros_like(x)
    for k in range(tokens):
        for c in range(width):
            for j in range(tokens):
                for b in range(width):
                    y[k, c] += x[j, b] * math.cos(2 * math.pi * (j * k / tokens + b * c / width))
    return y


@pytest.mark.parametrize("width", [1, 2, 5, 6])
@pytest.mark.parametrize("tokens", [1, 2, 5, 6])
def test_fourier_mixing_is_its_equation(tokens: int, width: int) -> None:
    x = draw(2, tokens, width)
    y, _ = Fourier.Config().build(width)(x, Where.run(2, tokens))
    for row in range(2):
        assert torch.allclose(y[row], by_hand(x[row]), rtol=0, atol=1e-12)


def test_a_row_is_transformed_over_its_own_length() -> None:
    x, lengths = draw(5, 6, 4), [6, 3, 0, 3, 1]
    x[1, 3:] = float("nan")
    y, _ = Fourier.Config().build(4)(x, Where.ragged(lengths))
    for row, length in enumerate(lengths):
        assert torch.allclose(y[row, :length], by_hand(x[row, :length]), rtol=0, atol=1e-12)
    assert bool((y[1, 3:] == 0).all())


def test_half_of_the_channels_tells_the_other_half() -> None:
    for shape in ((3, 7, 9), (2, 8, 12), (1, 1, 3)):
        x = draw(*shape).requires_grad_()
        fast, slow = transformed(x), torch.fft.fftn(x, dim=(1, 2)).real
        assert torch.allclose(fast, slow, rtol=0, atol=1e-12)
        one, other = (torch.autograd.grad(y.sin().sum(), x)[0] for y in (fast, slow))
        assert torch.allclose(one, other, rtol=0, atol=1e-11)


def test_short_numbers_are_transformed_as_long_ones() -> None:
    x = draw(1, 5, 6).to(torch.bfloat16)
    y, _ = Fourier.Config().build(6)(x, Where.run(1, 5))
    assert y.dtype == torch.bfloat16
    assert torch.allclose(y[0].double(), by_hand(x[0].double()), rtol=0.01, atol=0.05)


def test_it_has_no_weights_and_no_state() -> None:
    mixer = Fourier.Config().build(6)
    assert list(mixer.parameters()) == []
    with pytest.raises(CannotStream, match="tokens ahead"):
        mixer.start(1)


def test_it_grows_with_the_length_and_no_faster() -> None:
    assert grows(Fourier.Config(), short=512) < 4.5
