"""The norm whose gain is stored as its difference from one."""

from __future__ import annotations

import pytest
import torch

from heed.core.errors import ConfigError
from heed.parts.layers.norms import RMSNorm


def test_it_is_its_equation() -> None:
    norm = RMSNorm(eps=0.1, from_one=True).build(8).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    plain = RMSNorm(eps=0.1, gain=False).build(8)
    assert torch.equal(norm(x), plain(x))  # no gain to begin with
    (weight,) = norm.parameters()
    torch.nn.init.normal_(weight)
    for b, t in ((b, t) for b in range(2) for t in range(3)):
        wanted = x[b, t] / ((x[b, t] ** 2).sum() / 8 + 0.1).sqrt() * (1 + weight)
        assert torch.allclose(norm(x)[b, t], wanted, rtol=0, atol=1e-14)


def test_half_precision_does_not_lose_small_weights() -> None:
    """bfloat16 holds 155/512, but not 1 more than it: the sum must not be rounded before the product is."""
    norm = RMSNorm(from_one=True).build(64).bfloat16()
    (weight,) = norm.parameters()
    torch.nn.init.constant_(weight, 155 / 512)
    x = torch.randn(5, 64).bfloat16()
    plain = torch.nn.functional.rms_norm(x.float(), (64,), eps=1e-6)
    assert torch.equal(norm(x), (plain * (1 + 155 / 512)).bfloat16())
    assert not torch.equal(norm(x), (plain * (1 + weight)).bfloat16())


def test_a_gain_that_is_not_there_is_not_stored() -> None:
    with pytest.raises(ConfigError, match="from_one says how the gain is stored"):
        RMSNorm(gain=False, from_one=True)
