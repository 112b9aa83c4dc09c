"""DeepNet and ResiDual as whole models: the papers' numbers, laws, and depth that does no harm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from heed.core.contract import Where
from heed.core.laws import LAWS, Law
from heed.models import (
    Decoder,
    DeepNet,
    DeepNetDecoder,
    Embedded,
    ResiDualTransformer,
    Seq2seq,
    familiar,
)
from heed.models.plan import Plan
from heed.parts.residual.wiring import DeepNorm, PostNorm, ResiDual

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "hidden": 12, "dropout": 0.0}
PLANS = (
    DeepNet(**SMALL, depth=3, decoder_depth=2),
    DeepNetDecoder(**SMALL, depth=5),
    ResiDualTransformer(**SMALL, depth=2, scale=0.5),
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.kind)
def test_laws(plan: Plan, law: Law) -> None:
    torch.manual_seed(0)
    model = plan.sized(13).build().double()
    assert isinstance(model, Decoder | Seq2seq)
    finding = law(Embedded(model), familiar(model))
    assert finding.holds, finding


def test_the_papers_numbers() -> None:
    """Wang et al. 2022, figure 2; 18 layers each side, and 36 of a decoder alone."""
    config = DeepNet(depth=18).sized(9)
    root = (18**4 * 18) ** (1 / 16)
    assert config.encoder.wiring == DeepNorm(alpha=0.81 * root, beta=0.87 / root)
    assert config.decoder.wiring == DeepNorm(alpha=54**0.25, beta=216**-0.25)
    assert DeepNetDecoder(depth=36).sized(9).wiring == DeepNorm(alpha=72**0.25, beta=288**-0.25)
    streams = ResiDualTransformer(scale=0.25).sized(9)
    assert (streams.encoder.wiring, streams.decoder.wiring) == (ResiDual(scale=0.25), ResiDual(scale=0.25))
    assert streams.decoder.depth == 12


def test_values_outputs_and_feed_forwards_begin_small_queries_and_keys_do_not() -> None:
    torch.manual_seed(0)
    deep = DeepNetDecoder(width=64, depth=8).sized(9).build()
    block = deep.stack.layers[3]
    beta = 64**-0.25
    for part, factor in (("query", 1.0), ("key", 1.0), ("value", beta), ("out", beta)):
        weight = block.mixer.get_submodule(part).weight
        assert float(weight.detach().square().mean().sqrt()) == pytest.approx(factor * (2 / 128) ** 0.5, rel=0.1)  # type: ignore[operator]


def moved(config: Decoder.Config) -> float:
    """How far a tiny step of gradient descent moves what a model says, as a multiple of the step."""
    torch.manual_seed(0)
    model = config.build().double()
    tokens, where, step = torch.randint(9, (4, 12)), Where.run(4, 12), 1e-6
    before, _ = model(tokens, where)
    F.cross_entropy(before[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                weight.sub_(weight.grad, alpha=step)
        after, _ = model(tokens, where)
        return float((after - before).abs().mean()) / step


def test_an_update_stays_bounded_with_depth() -> None:
    """The paper's point: what an update does explodes with the depth of a post-norm model, not with DeepNorm's."""
    deep = {depth: DeepNetDecoder(width=32, heads=2, hidden=64, depth=depth).sized(9) for depth in (6, 48)}
    post = {depth: config.model_copy(update={"wiring": PostNorm()}) for depth, config in deep.items()}
    assert moved(deep[48]) < 8 * moved(deep[6])
    assert moved(post[48]) > 16 * moved(post[6])
