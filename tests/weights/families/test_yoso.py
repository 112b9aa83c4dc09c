"""YOSO beside `transformers`: the expectation with and without a convolution, under any mask; the estimate, loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.mixers import Yoso
from heed.models import Encoder
from tests.pipelines.small import WORDS
from tests.weights.families.encoders import record, told
from tests.weights.families.inuse import classifies, fills
from tests.weights.families.unmasked import HEADS, SIZES, agrees, build, inputs_for, masks
from tests.weights.live import returns, saved

OWN = {
    "num_attention_heads": st.sampled_from([1, 2, 3]),
    "hash_code_len": st.sampled_from([1, 4, 9]),
    "conv_window": st.sampled_from([None, 1, 3, 7]),
}
NAMES = ["YosoModel", *(f"Yoso{head}" for head in HEADS[1:])]


@settings(max_examples=16, deadline=None, derandomize=True)
@given(
    st.sampled_from(NAMES),
    st.fixed_dictionaries(SIZES | OWN),
    st.sampled_from([1, 4, 9, 15]),
    st.sampled_from(list(masks(9))),
)
def test_expectation(name: str, drawn: dict[str, Any], tokens: int, mask: str) -> None:
    """Their mask hides nothing from the attention, but values from the convolution and labels from a loss."""
    agrees(build(name, drawn), tokens, masks(tokens)[mask], "attentions")


def test_an_estimate_is_loaded_and_not_replayed(tmp_path: Path) -> None:
    sized = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "hash_code_len": 3}
    model = saved(build("YosoModel", sized | {"use_expectation": False, "num_hash": 4096}), tmp_path / "drawn")
    opened = weights.load(tmp_path / "drawn")
    assert isinstance(opened.model, Encoder)
    assert [part.hashes for part in opened.model.modules() if isinstance(part, Yoso)] == [4096]
    inputs = inputs_for(model, 9, None)
    record(tmp_path / "drawn", inputs, {"last_hidden_state": torch.zeros(1)})
    with pytest.raises(WeightsError, match="use_expectation is false, so the reference drew its hashes at random"):
        weights.replay(tmp_path / "drawn")
    returns(opened, tmp_path / "back", model)

    model.config.use_expectation = True
    model.save_pretrained(tmp_path / "sure")
    sure = weights.load(tmp_path / "sure").model
    with torch.no_grad():
        estimate, exact = (one(inputs["input_ids"], Where.run(2, 9))[0] for one in (opened.model, sure))
    gap = (estimate - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    assert 0 < gap < 0.05


def test_their_attentions_are_something_else(tmp_path: Path) -> None:
    sized = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = saved(build("YosoModel", sized), tmp_path)
    record(tmp_path, inputs_for(model, 9, None), {"attentions.0": torch.zeros(1)})
    with pytest.raises(WeightsError, match="holds attentions.0, which heed does not make for yoso"):
        weights.replay(tmp_path)


@pytest.mark.parametrize(("head", "uses"), [("ForMaskedLM", fills), ("ForSequenceClassification", classifies)])
@torch.no_grad()
def test_in_use(head: str, uses: Any, tmp_path: Path) -> None:
    sized = {"vocab_size": len(WORDS), "max_position_embeddings": 32, "num_hidden_layers": 2, "intermediate_size": 8}
    uses(
        saved(build("Yoso" + head, sized | {"num_attention_heads": 2, "num_labels": 3, "conv_window": 3}), tmp_path),
        tmp_path,
        told,
    )
