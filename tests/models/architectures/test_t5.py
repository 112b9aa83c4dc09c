"""T5: the published sizes, and the same configuration as what checkpoints of the family are read as."""

from __future__ import annotations

import pytest
import torch

from heed.core.laws import LAWS, Law
from heed.models import T5, Embedded, familiar
from heed.weights.families.t5 import T5 as Family
from heed.weights.formats.safetensors import Held

SMALL = T5(width=16, depth=2, heads=2, head_size=5, hidden=20, buckets=8, distance=12, dropout=0.0)
PARAMETERS = {"small": 60_506_624, "base": 222_903_552, "large": 737_668_096}


@pytest.mark.parametrize("size", PARAMETERS)
def test_published_models_have_their_parameters(size: str) -> None:
    with torch.device("meta"):
        model = T5.load({"size": size}).sized(32128).build()
    assert sum(weight.numel() for weight in model.parameters()) == PARAMETERS[size]


def test_it_is_what_checkpoints_of_the_family_are_read_as() -> None:
    family = Family(
        vocab_size=13,
        d_model=16,
        d_kv=5,
        d_ff=20,
        num_layers=2,
        num_heads=2,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
    )
    assert SMALL.sized(13) == family.ours(Held({"decoder.": torch.empty(0)}))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws(law: Law) -> None:
    model = SMALL.sized(13).build().double()
    finding = law(Embedded(model), familiar(model))
    assert finding.holds, finding
