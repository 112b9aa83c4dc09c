"""Nyströmformer beside `transformers`: landmarks, the exact form, batches, and what the reference cannot do."""

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
from heed.mixers import Nystrom
from heed.models import Encoder
from tests.pipelines.small import WORDS
from tests.weights.families.encoders import record, told
from tests.weights.families.inuse import classifies, fills
from tests.weights.families.unmasked import HEADS, SIZES, agrees, build, inputs_for, masks
from tests.weights.live import close, saved

OWN = {"num_attention_heads": st.sampled_from([1, 2, 3]), "conv_kernel_size": st.sampled_from([1, 3, 9])}
NAMES = ["NystromformerModel", *(f"Nystromformer{head}" for head in HEADS[1:])]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.sampled_from(NAMES),
    st.fixed_dictionaries(SIZES | OWN),
    st.sampled_from([(4, 12, 12), (3, 9, 9), (5, 14, 10), (1, 6, 6)]),
    st.sampled_from(["none", "all"]),
)
def test_by_landmarks(name: str, drawn: dict[str, Any], cut: tuple[int, int, int], mask: str) -> None:
    landmarks, length, tokens = cut
    options = drawn | {"num_landmarks": landmarks, "segment_means_seq_len": length}
    agrees(build(name, options), tokens, masks(tokens)[mask], "attentions")


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.sampled_from(NAMES),
    st.fixed_dictionaries(SIZES | OWN),
    st.sampled_from([(4, 9), (4, 2), (64, 9), (4, 15)]),
    st.sampled_from(list(masks(9))),
)
def test_exactly(name: str, drawn: dict[str, Any], sizes: tuple[int, int], mask: str) -> None:
    """As many landmarks as they expect tokens: they attend exactly, however many there are; so masks work."""
    options = drawn | {"num_landmarks": sizes[0], "segment_means_seq_len": sizes[0]}
    agrees(build(name, options), sizes[1], masks(sizes[1])[mask])


def folder_of(place: Path, tokens: int, mask: torch.Tensor | None = None, **options: Any) -> Any:
    sized = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8, "conv_kernel_size": 3}
    given_ = sized | {"num_landmarks": 3, "segment_means_seq_len": 9} | options
    model = saved(build("NystromformerModel", given_), place)
    record(place, inputs_for(model, tokens, mask), {"last_hidden_state": torch.zeros(1)})
    return model


def test_loaded_a_row_is_what_the_reference_makes_of_it_alone(tmp_path: Path) -> None:
    theirs = folder_of(tmp_path, 9)
    ours = weights.load(tmp_path).model
    assert isinstance(ours, Encoder)
    assert {part.coefficient for part in ours.modules() if isinstance(part, Nystrom)} == {"row"}
    tokens = inputs_for(theirs, 9, None)["input_ids"]
    with torch.no_grad():
        alone = torch.cat([theirs(row[None]).last_hidden_state for row in tokens])
        close(ours(tokens, Where.run(2, 9))[0], alone, 1e-12)
        assert (theirs(tokens).last_hidden_state - alone).abs().max() > 1e-9  # a row depends on its batch there
    weights.replay(tmp_path)
    assert {part.coefficient for part in ours.modules() if isinstance(part, Nystrom)} == {"row"}


@pytest.mark.parametrize(
    ("tokens", "options", "hidden", "message"),
    [
        (8, {}, False, "8 tokens; with segment_means_seq_len = 9 and num_landmarks = 3 the reference makes sense of 9"),
        (9, {}, True, "attention_mask hides tokens, which the reference cannot where there are landmarks"),
        (3, {"segment_means_seq_len": 4}, False, "where every token is a landmark"),
    ],
)
def test_what_the_reference_mixes_up_is_not_followed(
    tmp_path: Path, tokens: int, options: dict[str, Any], hidden: bool, message: str
) -> None:
    folder_of(tmp_path, tokens, masks(tokens)["right"] if hidden else None, **options)
    with pytest.raises(WeightsError, match=message):
        weights.replay(tmp_path)


def test_their_weights_are_not_over_tokens(tmp_path: Path) -> None:
    model = folder_of(tmp_path, 9)
    record(tmp_path, inputs_for(model, 9, None), {"attentions.0": torch.zeros(1)})
    with pytest.raises(WeightsError, match="holds attentions.0, which heed does not make for nystromformer"):
        weights.replay(tmp_path)


def test_a_convolution_without_a_middle_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, 9, conv_kernel_size=4)
    with pytest.raises(WeightsError, match="a kernel of 4 tokens has no middle"):
        weights.load(tmp_path)


@pytest.mark.parametrize(("head", "uses"), [("ForMaskedLM", fills), ("ForSequenceClassification", classifies)])
@torch.no_grad()
def test_in_use(head: str, uses: Any, tmp_path: Path) -> None:
    sized = {"vocab_size": len(WORDS), "max_position_embeddings": 32, "num_hidden_layers": 2, "intermediate_size": 8}
    uses(
        saved(
            build("Nystromformer" + head, sized | {"num_attention_heads": 2, "num_labels": 3, "conv_kernel_size": 3}),
            tmp_path,
        ),
        tmp_path,
        told,
    )
