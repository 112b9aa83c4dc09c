"""GPT-2: the published sizes, and the same numbers as what checkpoints of the family are read as."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Law
from heed.models import GPT2, Embedded, familiar
from heed.weights.families.gpt2 import GPT2 as Family
from heed.weights.formats.safetensors import Held

SMALL = GPT2(width=16, depth=2, heads=2, length=20, dropout=0.0)
PARAMETERS = {"small": 124_439_808, "medium": 354_823_168, "large": 774_030_080, "xl": 1_557_611_200}


@pytest.mark.parametrize("size", PARAMETERS)
def test_published_models_have_their_parameters(size: str) -> None:
    with torch.device("meta"):
        model = GPT2.load({"size": size}).sized(50257).build()
    assert sum(weight.numel() for weight in model.parameters()) == PARAMETERS[size]


@torch.no_grad()
def test_it_is_what_checkpoints_of_the_family_are_read_as() -> None:
    """But for attention, which a checkpoint names layer by layer, with its scale written out."""
    plan = SMALL.sized(13)
    read = Family(vocab_size=13, n_positions=20, n_embd=16, n_layer=2, n_head=2).ours(Held({}))
    assert read.model_copy(update={"mixer": plan.mixer}) == plan
    ours, theirs = plan.build().double().eval(), read.build().double().eval()
    theirs.load_state_dict(ours.state_dict())
    tokens, where = torch.arange(12).reshape(2, 6), Where.run(2, 6)
    assert torch.equal(ours(tokens, where)[0], theirs(tokens, where)[0])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws(law: Law) -> None:
    model = SMALL.sized(13).build().double()
    finding = law(Embedded(model), familiar(model))
    assert finding.holds, finding


def test_a_size_gives_the_numbers_and_contradicts_no_others() -> None:
    medium = GPT2(size="medium")
    assert (medium.width, medium.depth, medium.heads) == (1024, 24, 16)
    assert GPT2.load(medium.dump()) == medium == GPT2(size="medium", width=1024)
    with pytest.raises(ConfigError, match="size 'medium' has width = 1024, not 128; leave size or width out"):
        GPT2.load({"size": "medium", "width": 128})
    with pytest.raises(ConfigError, match="size"):
        GPT2.load({"size": "huge"})
