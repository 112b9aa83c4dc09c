"""RetNet and FLASH as architectures: what their plans give, that they learn, and what they remember."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case
from heed.core.spec import price
from heed.core.state import nbytes
from heed.mixers import GatedUnit, Retention
from heed.models import Decoder, Embedded, Flash, RetNet, Shape
from heed.parts.outputs.loss import cross_entropy
from heed.parts.residual.wiring import DeepNorm

PLANS = {
    "retnet": RetNet(width=24, depth=2, heads=2),
    "retnet, deep": RetNet(width=24, depth=3, heads=3, value_width=30, wiring=DeepNorm.alone(3)),
    "flash": Flash(width=24, depth=3, size=6, chunk=4),
}


def test_a_plan_is_the_papers_decoder() -> None:
    """Sun et al. 2023, sec. 3.1: values and feed-forward twice as wide, so that a layer has 12 d² weights."""
    model = RetNet(width=64, depth=3, heads=4).sized(31).build()
    mixers = [block.mixer for block in model.stack.layers]
    assert all(isinstance(mixer, Retention) and (mixer.head_size, mixer.value_size) == (16, 32) for mixer in mixers)
    matrices = [p for p in model.stack.parameters() if p.dim() == 2]
    assert sum(p.numel() for p in matrices) == 3 * 12 * 64**2


def test_flash_is_units_and_nothing_else() -> None:
    """Hua et al. 2022, sec. 2.2: a unit has 6 d² weights but for queries and keys, half of a Transformer's layer."""
    model = Flash(width=64, depth=4, size=32).sized(31).build()
    assert all(isinstance(block.mixer, GatedUnit) for block in model.stack.layers)
    matrices = [p for name, p in model.stack.named_parameters() if name.endswith("weight") and p.dim() == 2]
    assert sum(p.numel() for p in matrices) == 4 * (6 * 64**2 + 64 * 32)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("plan", PLANS)
def test_laws_hold(law: object, plan: str) -> None:
    torch.manual_seed(0)
    model = PLANS[plan].sized(13).build()
    assert isinstance(model, Decoder)
    finding = law(Embedded(model), Case.make(24))  # type: ignore[operator]
    assert finding.holds, finding


def test_the_memory_does_not_grow() -> None:
    model = RetNet(width=24, depth=3, heads=2).sized(13).build()
    assert price(model.spec(), 1) == price(model.spec(), 10**6) == 3 * 4 * 2 * 12 * 24
    with torch.no_grad():
        _, state = model(torch.zeros(2, 100, dtype=torch.long), Where.run(2, 100), model.start(2))
    assert nbytes(state) == 2 * price(model.spec(), 100)


@pytest.mark.parametrize("plan", ["retnet", "flash"])
def test_it_learns_to_repeat_what_it_saw_long_ago(plan: str) -> None:
    """Eight symbols, then the same eight again: the loss of the second half falls far below chance."""
    torch.manual_seed(0)
    plans: dict[str, Shape] = {
        "retnet": RetNet(width=32, depth=2, heads=2).sized(8),
        "flash": Flash(width=32, depth=4, size=32, chunk=8).sized(8),
    }
    model = plans[plan].build()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(140):
        half = torch.randint(8, (32, 8))
        tokens = torch.cat((half, half), 1)
        logits, _ = model(tokens[:, :-1], Where.run(32, 15))
        loss = cross_entropy(logits[:, 7:], tokens[:, 8:]).total / (32 * 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 1.8
    assert losses[-1] < 1.2


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(ConfigError, match="values of 48 channels do not divide into 5 heads; set value_width"):
        RetNet(width=24, heads=5)
    with pytest.raises(ConfigError, match="width 25 does not divide into 2 heads"):
        RetNet(width=25, value_width=50).sized(7).build()
    with pytest.raises(ConfigError, match="chunk is 0"):
        Flash(chunk=0)
