"""Dropout drops the share asked for, each element by itself, and keeps the mean; outside of training nothing."""

from __future__ import annotations

import pytest
import torch

from heed.parts.layers.dropout import STEPS, Dropout, dropped


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_what_is_kept_grows_by_what_was_dropped(share: float) -> None:
    x = torch.ones(200_000)
    made = dropped(x, share)
    real = round(share * STEPS) / STEPS  # 16 bits tell shares apart
    kept = made[made != 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - real)))
    assert abs(len(kept) / len(x) - (1 - real)) < 5 * (real * (1 - real) / len(x)) ** 0.5
    assert abs(float(made.mean()) - 1) < 5 * (real / (1 - real) / len(x)) ** 0.5


@pytest.mark.parametrize("apart", [1, 2, 3, 4, 5])
def test_elements_are_dropped_independently(apart: int) -> None:
    """64 random bits serve four neighbours: none of them may tell of another."""
    kept = dropped(torch.ones(100_000), 0.5) != 0
    both = (kept[apart:] & kept[:-apart]).float().mean()
    assert abs(float(both) - 0.25) < 5 * (0.25 * 0.75 / 100_000) ** 0.5


def test_nothing_is_dropped_outside_of_training_or_for_a_share_of_nothing() -> None:
    x = torch.randn(50)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert not torch.equal(Dropout(0.5).train()(x), x)
    assert dropped(x, 1e-9) is x


def test_any_number_of_elements_and_gradients_of_the_same_ones() -> None:
    for count in (1, 3, 7, 8):
        x = torch.ones(count, 1, dtype=torch.float64, requires_grad=True)
        made = dropped(x, 0.5)
        made.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, made.detach())  # ones become the factor, and so does the gradient


def test_a_share_just_below_one_drops_nearly_all() -> None:
    """Rounded to 16 bits it would be all of them, and there would be nothing to make up for it."""
    made = dropped(torch.ones(100_000), 1 - 1e-9)
    kept = made[made != 0]
    assert len(kept) < 20
    assert torch.equal(kept, torch.full_like(kept, STEPS))
