"""Attention masks of other libraries: right padding, left padding, padding in between."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Where
from heed.core.errors import InputError
from heed.mixers import Attention, Rwkv
from heed.models import Decoder
from heed.parts.inputs.padding import Aligned
from heed.parts.positions import Learned

RIGHT = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
LEFT = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])


@pytest.mark.parametrize("dtype", [torch.bool, torch.long, torch.uint8, torch.float32])
def test_a_mask_padded_on_the_right_is_a_where(dtype: torch.dtype) -> None:
    where = Where.of_mask(RIGHT.to(dtype))
    assert where.order.tolist() == [[0, 1, 2, 3], [0, 1, -1, -1], [-1, -1, -1, -1]]
    assert where.span == Where(where.order, where.position).span  # what was said is what is measured


def test_a_mask_of_ones_is_a_run() -> None:
    where = Where.of_mask(torch.ones(2, 5))
    assert where.span == Where.run(2, 5).span
    assert torch.equal(where.order, Where.run(2, 5).order)


def test_left_padding_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"padding before a token.*Aligned\.of\(mask\)"):
        Where.of_mask(LEFT)


@pytest.mark.parametrize("mask", [torch.ones(2, 1, 3, 3), torch.ones(3)])
def test_other_shapes_are_refused(mask: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"\[rows, tokens\]"):
        Where.of_mask(mask)


def test_masks_made_to_be_added_are_refused() -> None:
    with pytest.raises(InputError, match=r"made to be added.*write mask == 0"):
        Where.of_mask(torch.tensor([[0.0, -1e9]]))


def test_tokens_move_to_the_front_and_back() -> None:
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]])
    padded, x = Aligned.of(mask), torch.arange(16).view(4, 4)
    assert padded.where.order.tolist() == [[0, 1, 2, 3], [0, 1, -1, -1], [0, 1, -1, -1], [-1] * 4]
    assert padded.where.position.tolist() == [[0, 1, 2, 3], [0, 1, 0, 0], [0, 1, 0, 0], [0] * 4]
    assert padded.align(x)[1:3, :2].tolist() == [[6, 7], [9, 11]]
    assert torch.equal(padded.restore(padded.align(x)), x)
    deep = torch.randn(4, 4, 2, 3)
    assert torch.equal(padded.restore(padded.align(deep)), deep)
    assert padded.where.span == Where(padded.where.order, padded.where.position).span


def test_nothing_moves_without_need() -> None:
    padded, x = Aligned.of(RIGHT), torch.randn(3, 4, 2)
    assert padded.index is None
    assert padded.align(x) is x
    assert padded.restore(x) is x


def test_what_does_not_fit_the_mask_is_refused() -> None:
    with pytest.raises(InputError, match="agree in rows and tokens"):
        Aligned.of(LEFT).align(torch.zeros(2, 5))


@pytest.mark.parametrize("mixer", [Attention.Config(heads=2), Rwkv.Config()])
def test_left_padding_changes_no_logits(mixer: Attention.Config) -> None:
    """A row gives the logits that it gives alone, whatever ids the padding holds."""
    torch.manual_seed(0)
    model = Decoder.Config(vocabulary=11, width=8, depth=2, mixer=(mixer,), position=Learned.Config(length=8)).build()
    model = model.double().eval()
    ids = torch.randint(11, (2, 4))
    padded = Aligned.of(LEFT)
    with torch.no_grad():
        logits = padded.restore(model(padded.align(ids), padded.where)[0])
        alone, _ = model(ids[1:, 2:], Where.run(1, 2))
    assert torch.allclose(logits[1:, 2:], alone, atol=1e-12, rtol=0)
