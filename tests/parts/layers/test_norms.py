"""Every norm is its equation, number by number, with the epsilon that its authors have."""

from __future__ import annotations

import math

import pytest
import torch

from heed.parts.layers.norms import GatedNorm, LayerNorm, NormConfig, RMSNorm, StdNorm

NORMS = (LayerNorm, RMSNorm, GatedNorm, StdNorm)


def by_hand(config: NormConfig, x: list[float], gain: list[float], other: list[float], eps: float) -> list[float]:
    """`other` is the bias of a norm that centres, and the gate of one that has a gate."""
    n = len(x)
    mean = sum(x) / n
    square, spread = sum(a * a for a in x) / n, sum((a - mean) ** 2 for a in x)
    match config:
        case LayerNorm():
            return [g * (a - mean) / math.sqrt(spread / n + eps) + b for a, g, b in zip(x, gain, other, strict=True)]
        case RMSNorm():
            return [g * a / math.sqrt(square + eps) for a, g in zip(x, gain, strict=True)]
        case GatedNorm():
            gates = [1 / (1 + math.exp(-w * a)) for a, w in zip(x, other, strict=True)]
            return [g * a / math.sqrt(square + eps) * o for a, g, o in zip(x, gain, gates, strict=True)]
        case _:
            return [
                g * (a - mean) / (math.sqrt(spread / (n - 1)) + eps) + b for a, g, b in zip(x, gain, other, strict=True)
            ]


@pytest.mark.parametrize("kind", NORMS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("eps", [0.3, 1e-7])
def test_a_norm_is_its_equation(kind: type[NormConfig], eps: float) -> None:
    config = kind.load({"eps": eps})
    norm = config.build(7).double()
    weights = {name: torch.nn.init.normal_(weight) for name, weight in norm.named_parameters()}
    gain, *rest = (weight.tolist() for weight in weights.values())
    x = torch.randn(2, 3, 7, dtype=torch.float64)
    for b, t in ((b, t) for b in range(2) for t in range(3)):
        wanted = torch.tensor(by_hand(config, x[b, t].tolist(), gain, (rest or [gain])[0], eps))
        assert torch.allclose(norm(x)[b, t], wanted.double(), rtol=1e-6, atol=1e-7)


EPSILONS = {LayerNorm: 1e-5, RMSNorm: 1e-6, GatedNorm: 1e-6, StdNorm: 1e-6}


@pytest.mark.parametrize(("kind", "eps"), EPSILONS.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_an_epsilon_that_is_not_named_is_that_of_the_authors(kind: type[NormConfig], eps: float) -> None:
    """A vector as small as its epsilon tells what it is: models are trained with it, and recipes leave it out."""
    x = torch.tensor([[2e-3, -1e-3, 4e-3]], dtype=torch.float64)
    assert torch.equal(kind().build(3).double()(x), kind.load({"eps": eps}).build(3).double()(x))
    assert not torch.equal(kind().build(3).double()(x), kind.load({"eps": 3 * eps}).build(3).double()(x))
