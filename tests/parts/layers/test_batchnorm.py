"""Batch norm over tokens: torch's numbers, padding that counts for nothing, and what is promised in evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.mixers import Attention, Gru
from heed.models import Stack
from heed.models.backbone import TokenBackbone
from heed.parts.layers.norms import BatchNorm, OverTokens, tell


def normed(width: int = 5) -> OverTokens:
    norm = BatchNorm().build(width)
    assert isinstance(norm, OverTokens)
    return norm.double()


def test_it_is_torchs_without_padding() -> None:
    torch.manual_seed(0)
    ours, theirs = normed(), nn.BatchNorm1d(5).double()
    for x in (batches := torch.randn(3, 2, 7, 5, dtype=torch.float64)):
        assert torch.allclose(ours(x), theirs(x.mT).mT, rtol=0, atol=1e-13)
    assert torch.allclose(ours.mean, theirs.running_mean, rtol=0, atol=1e-14)  # type: ignore[arg-type]
    assert torch.allclose(ours.variance, theirs.running_var, rtol=0, atol=1e-14)  # type: ignore[arg-type]
    ours.eval(), theirs.eval()
    assert torch.allclose(ours(batches[0]), theirs(batches[0].mT).mT, rtol=0, atol=1e-13)


def test_padding_counts_for_nothing() -> None:
    torch.manual_seed(0)
    norm, x = normed(), torch.randn(2, 6, 5, dtype=torch.float64)
    x[1, 4:] = torch.nan
    tell((norm,), Where.ragged([6, 4], width=6))
    made = norm(x)
    real = torch.cat((x[0], x[1, :4]))
    mean, variance = real.mean(0), ((real - real.mean(0)) ** 2).mean(0)
    wanted = (real - mean) / torch.sqrt(variance + 1e-5)
    assert torch.allclose(torch.cat((made[0], made[1, :4])), wanted, rtol=0, atol=1e-12)
    assert norm.mean.isfinite().all()
    assert torch.allclose(norm.mean, 0.1 * mean, rtol=0, atol=1e-14)


@torch.no_grad()
def test_it_is_its_equation() -> None:
    """Learning: every channel by its own mean and variance over all real tokens. In use: by the running ones."""
    torch.manual_seed(0)
    norm, x, lengths = normed(), torch.randn(2, 6, 5, dtype=torch.float64), [6, 4]
    norm.weight.copy_(torch.randn(5)), norm.bias.copy_(torch.randn(5))
    tell((norm,), Where.ragged(lengths, width=6))
    learning = norm(x)
    used = norm.eval()(x)
    for channel in range(5):
        real = [float(x[row, i, channel]) for row, length in enumerate(lengths) for i in range(length)]
        mean = sum(real) / len(real)
        squares = sum((value - mean) ** 2 for value in real)
        running = 0.1 * mean, 0.9 + 0.1 * squares / (len(real) - 1)  # from 0 and 1; the variance is the unbiased one
        gain, shift = float(norm.weight[channel]), float(norm.bias[channel])
        for row, length in enumerate(lengths):
            for i in range(length):
                value = float(x[row, i, channel])
                now = gain * (value - mean) / (squares / len(real) + 1e-5) ** 0.5 + shift
                later = gain * (value - running[0]) / (running[1] + 1e-5) ** 0.5 + shift
                assert float(learning[row, i, channel]) == pytest.approx(now, abs=1e-12)
                assert float(used[row, i, channel]) == pytest.approx(later, abs=1e-12)


def test_a_stack_tells_its_norms_what_is_padding() -> None:
    torch.manual_seed(0)
    stack = Stack.Config(width=24, depth=2, norm=BatchNorm(), mixer=Gru.Config())
    model, other = Stack(stack).double(), Stack(stack).double()
    other.load_state_dict(model.state_dict())
    x = torch.randn(2, 6, 24, dtype=torch.float64)
    garbage = x.clone()
    garbage[1, 4:] = 1e6
    where = Where.ragged([6, 4], width=6)
    a, b = model(x, where)[0], other(garbage, where)[0]
    assert torch.allclose(a[0], b[0], rtol=0, atol=1e-12)
    assert torch.allclose(a[1, :4], b[1, :4], rtol=0, atol=1e-12)
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, other.get_buffer(name))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_hold_in_evaluation(law: object) -> None:
    model = Stack(Stack.Config(width=24, depth=2, norm=BatchNorm(), mixer=Attention.Config())).eval()
    assert callable(law)
    finding = law(model, Case.make(24))
    assert finding.holds, finding


def test_rows_are_not_independent_while_learning() -> None:
    """What is declared: a batch is normed by itself."""
    norm, x = normed(), torch.randn(2, 6, 5, dtype=torch.float64)
    assert not torch.allclose(norm(x)[:1], norm(x[:1]))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="holds 1 token; give it two or more, or call model.eval"):
        normed()(torch.randn(1, 1, 5, dtype=torch.float64))
    with pytest.raises(ConfigError, match="embedding_norm"):
        TokenBackbone.Config.load({"width": 8, "depth": 1, "embedding_norm": {"kind": "batchnorm"}})
