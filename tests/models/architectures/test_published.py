"""Published sizes have the parameters that are known of them."""

from __future__ import annotations

import pytest
import torch

from heed.catalogue import entries
from heed.models import GPT2, T5, Bert, ViT
from heed.models.plan import Published

KNOWN = {
    GPT2: {"small": 124_439_808, "medium": 354_823_168, "large": 774_030_080, "xl": 1_557_611_200},
    Bert: {"base": 110_106_428, "large": 336_226_108},
    T5: {"small": 60_506_624, "base": 222_903_552, "large": 737_668_096, "3b": 2_851_598_336, "11b": 11_307_321_344},
    ViT: {"tiny": 5_717_416, "small": 22_050_664, "base": 86_567_656, "large": 304_326_632},
}


@pytest.mark.parametrize("plan", KNOWN, ids=lambda plan: plan.__name__)
def test_counts_are_the_known_ones(plan: type[Published]) -> None:
    assert plan.weights() == KNOWN[plan]


@pytest.mark.parametrize("plan", KNOWN, ids=lambda plan: plan.__name__)
def test_the_smallest_counted_whole_is_what_is_told(plan: type[Published]) -> None:
    size = plan.sizes()[0]
    with torch.device("meta"):
        model = plan.load({"size": size}).sized(plan.tokens).build()
    assert sum(weight.numel() for weight in model.parameters()) == KNOWN[plan][size]


def test_the_catalogue_tells_them() -> None:
    told = {entry.name: entry.note for entry in entries("architectures")}
    assert told["gpt2"] == "parameters: small 124M, medium 355M, large 774M, xl 1,558M"
    assert told["bert"] == "parameters: base 110M, large 336M"
    assert told["vit"] == "parameters: tiny 6M, small 22M, base 87M, large 304M"


def test_a_vit_sees() -> None:
    torch.manual_seed(0)
    model = ViT(width=16, depth=1, heads=2, image=(8, 8), patch=(4, 4), channels=1, labels=3).sized(0).build()
    seen = model.see(torch.randn(2, 1, 8, 8))
    assert model.heads["pooled"](seen.parts[0], seen).shape == (2, 3)
