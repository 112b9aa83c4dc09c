"""Cross-entropy and its slope in one walk: what torch finds in several."""

from __future__ import annotations

import pytest
import torch

from heed.core.errors import InputError
from heed.kernels.loss import entropy_, entropy_written_out

pytestmark = pytest.mark.usefixtures("compiler")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 129), (5, 50_257)])
@pytest.mark.parametrize("size", [1.0, 1e4])  # of scores: e^x overflows at 89
def test_the_kernel_is_the_equation(shape: tuple[int, int], smoothing: float, size: float) -> None:
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=draw) * size
    labels = torch.randint(shape[1], (shape[0],), generator=draw)
    mine, exact = scores.clone(), scores.double()
    found, wanted = entropy_(mine, labels, smoothing), entropy_written_out(exact, labels, smoothing)
    for one, other in zip(found, wanted, strict=True):
        # A sum of scores in float32: as many roundings as vectors that are added up.
        assert abs(float(one - other)) <= 2e-7 * shape[0] * size * (10 + shape[1] / 64)
    # p is off by two units in the last place of e^x and one of the sum, and by the rounding of x itself.
    assert float((mine.double() - exact).abs().max()) <= 1e-6
    assert float(mine.sum(1).abs().max()) <= 1e-4  # a slope of probabilities


def test_other_precisions_take_the_written_out_form() -> None:
    scores = torch.randn(3, 5, dtype=torch.float64)
    labels = torch.tensor([0, 4, 2])
    nats, _ = entropy_(scores.clone(), labels)
    torch.testing.assert_close(nats, torch.nn.functional.cross_entropy(scores, labels, reduction="sum"))


@pytest.mark.parametrize("label", [-100, -1, 5, 2**40])
def test_a_label_that_is_no_class_is_refused(label: int) -> None:
    logits = torch.randn(3, 5)
    before = logits.clone()
    with pytest.raises(InputError, match="the classes are 0 to 4"):
        entropy_(logits, torch.tensor([0, label, 1]))
    assert torch.equal(logits, before)
