"""What a config.json names, in heed's words: every activation as transformers computes it, masks, rotations, places."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from heed.parts.feedforward import activate
from heed.parts.masks import Causal, Window
from heed.parts.positions import Dynamic, Linear, Yarn
from heed.weights.families.base import ACTIVATIONS
from heed.weights.families.gemma2 import Gemma2
from heed.weights.families.opt import OPT
from heed.weights.families.roberta import Roberta
from heed.weights.families.rope import RopeParameters


@pytest.mark.parametrize("theirs", [name for name in ACTIVATIONS if name in ACT2FN])
def test_an_activation_is_the_one_that_transformers_has_under_that_name(theirs: str) -> None:
    """Approximations of one function differ by 1e-4: enough to change what a model says, too little to look wrong."""
    x = torch.linspace(-6, 14, 400, dtype=torch.float64)
    assert torch.allclose(activate(ACTIVATIONS[theirs], x), ACT2FN[theirs](x), rtol=0, atol=1e-6)


def test_all_of_them_are_compared() -> None:
    assert len(set(ACTIVATIONS) & set(ACT2FN)) >= 18


@pytest.mark.parametrize("types", [None, ("sliding_attention", "full_attention")])
def test_gemma_2_looks_nearby_first_and_everywhere_then(types: tuple[str, ...] | None) -> None:
    """Old files do not name the layers: the first is a window, and so is every second one after it."""
    family = Gemma2.load(
        {"num_hidden_layers": 2, "sliding_window": 9, **({} if types is None else {"layer_types": types})}
    )
    assert [family.mask(layer) for layer in range(2)] == [Window(back=8), Causal()]


def test_a_dynamic_rotation_counts_from_the_whole_context() -> None:
    """What the context was before it was stretched is for other rules."""
    given = {"factor": 2.0, "original_max_position_embeddings": 16}
    dynamic = RopeParameters.load({"rope_type": "dynamic", **given}).ours(64)
    assert dynamic.scaling == Dynamic(factor=2.0, original=64)
    assert RopeParameters.load({"rope_type": "linear", **given}).ours(64).scaling == Linear(factor=2.0)
    yarn = RopeParameters.load({"rope_type": "yarn", **given}).ours(64).scaling
    assert isinstance(yarn, Yarn)
    assert yarn.original == 16


def test_who_counts_padding_in_its_positions() -> None:
    """OPT and RoBERTa count tokens, so that padding before them changes nothing; others count columns."""
    assert (OPT.load({}).places, Roberta.load({}).places, Gemma2.load({}).places) == ("ranks", "ranks", "columns")
