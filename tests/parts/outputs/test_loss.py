"""Cross-entropy: as torch computes it, and the fused form as the written-out one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heed.parts.outputs import loss
from heed.parts.outputs.loss import NO_LABEL, cross_entropy, headed_cross_entropy


def labels(rows: int, tokens: int, size: int) -> torch.Tensor:
    found = torch.randint(size, (rows, tokens))
    found[0, tokens // 2 :] = found[-1] = NO_LABEL
    return found


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_torchs(smoothing: float) -> None:
    scores, wanted = torch.randn(3, 5, 7, dtype=torch.float64), labels(3, 5, 7)

    def theirs(smooth: float) -> torch.Tensor:
        flat = scores.flatten(0, 1), wanted.flatten()
        return F.cross_entropy(*flat, ignore_index=NO_LABEL, reduction="sum", label_smoothing=smooth)

    found = cross_entropy(scores, wanted, smoothing)
    assert torch.allclose(found.total, theirs(smoothing), rtol=1e-14)
    assert torch.allclose(found.nats, theirs(0.0), rtol=1e-14)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("held", [1, 7 * 40, 7 * 98])
def test_fused_is_written_out(smoothing: float, bias: bool, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and all gradients, in one piece or in several."""
    monkeypatch.setattr(loss, "HELD", held)
    monkeypatch.setattr(loss, "WORTH", 1)
    head, wanted = nn.Linear(6, 7, bias=bias).double(), labels(9, 11, 7)
    stream = torch.randn(9, 11, 6, dtype=torch.float64, requires_grad=True)
    results = []
    for found in (
        cross_entropy(head(stream), wanted, smoothing),
        headed_cross_entropy(stream, head, wanted, smoothing),
    ):
        slopes = torch.autograd.grad(3.0 * found.total, [stream, *head.parameters()])
        results.append((found.total.detach(), found.nats, *slopes))
    for plain, fused in zip(*results, strict=True):
        assert torch.allclose(plain, fused, rtol=1e-12, atol=1e-13)
    with torch.no_grad():
        assert torch.allclose(headed_cross_entropy(stream, head, wanted, smoothing).total, results[0][0], rtol=1e-12)


def test_nothing_to_predict_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "WORTH", 1)
    head, stream = nn.Linear(4, 5), torch.randn(2, 3, 4, requires_grad=True)
    found = headed_cross_entropy(stream, head, torch.full((2, 3), NO_LABEL))
    found.total.backward()
    assert float(found.total.detach()) == 0.0
    assert stream.grad is not None
    assert not stream.grad.any()


def test_extreme_scores_stay_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "WORTH", 1)
    head = nn.Linear(2, 3)
    with torch.no_grad():
        head.weight.fill_(1e4)
    stream = torch.tensor([[[1e3, 1e3]]], requires_grad=True)
    found = headed_cross_entropy(stream, head, torch.tensor([[1]]), 0.1)
    found.total.backward()
    assert found.total.isfinite()
    assert stream.grad is not None
    assert stream.grad.isfinite().all()
