"""FNet beside `transformers`: every head, any length, and masks that are not read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import Encoder
from tests.pipelines.small import WORDS
from tests.weights.families.encoders import ROUNDED, told
from tests.weights.families.inuse import classifies, fills
from tests.weights.families.unmasked import HEADS, SIZES, VOCABULARY, agrees, build, inputs_for, masks
from tests.weights.live import close, ids, returns, saved

NAMES = ["FNetModel", "FNetForPreTraining", "FNetForNextSentencePrediction", *(f"FNet{head}" for head in HEADS[1:])]


@settings(max_examples=16, deadline=None, derandomize=True)
@given(
    st.sampled_from(NAMES),
    st.fixed_dictionaries(SIZES),
    st.sampled_from([1, 4, 9, 15]),
    st.sampled_from(list(masks(9))),
)
def test_fnet(name: str, drawn: dict[str, Any], tokens: int, mask: str) -> None:
    agrees(build(name, drawn), tokens, masks(tokens)[mask])


def test_loaded_a_row_is_transformed_by_itself(tmp_path: Path) -> None:
    theirs = saved(build("FNetModel", {"num_hidden_layers": 2, "intermediate_size": 8}), tmp_path)
    ours, tokens = weights.load(tmp_path).model, inputs_for(theirs, 9, None)["input_ids"]
    assert isinstance(ours, Encoder)
    with torch.no_grad():
        made, _ = ours(tokens, Where.ragged([9, 5]))
        close(made[:1], theirs(tokens[:1]).last_hidden_state, 1e-12)
        close(made[1:, :5], theirs(tokens[1:, :5]).last_hidden_state, 1e-12)


def for_a_tpu(folder: Path) -> Any:
    sized = {"num_hidden_layers": 2, "intermediate_size": 8, "tpu_short_seq_length": 9}
    model = build("FNetModel", sized | {"use_tpu_fourier_optimizations": True})
    saved(model, folder)  # of which the library loads the matrices again, but does not use them: it cannot be called
    return model


@torch.no_grad()
def test_matrices_for_a_tpu_say_nothing_new(tmp_path: Path) -> None:
    """They transform as heed does, in float32; and are written back."""
    theirs = for_a_tpu(tmp_path / "theirs")
    tokens, opened = ids(2, 9, VOCABULARY), weights.load(tmp_path / "theirs")
    assert sum("dft_mat" in name for name in opened.dtypes) == 4
    close(opened.model(tokens, Where.run(2, 9))[0], theirs(tokens).last_hidden_state, ROUNDED)
    again = dict(returns(opened, tmp_path / "ours", theirs).named_buffers())
    for name, matrix in theirs.named_buffers():
        assert "dft_mat" not in name or torch.allclose(again[name], matrix)


@pytest.mark.parametrize("change", [lambda matrix: 2 * matrix, lambda matrix: matrix.real, lambda matrix: matrix[:5]])
def test_other_matrices_are_refused(change: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    for_a_tpu(tmp_path)
    path, name = tmp_path / "model.safetensors", "encoder.layer.1.fourier.self.dft_mat_seq"
    held = load_file(path)
    save_file(held | {name: change(held[name]).contiguous()}, path, metadata={"format": "pt"})
    with pytest.raises(WeightsError, match="layer.1.fourier.self.dft_mat_seq .* is not the constant"):
        weights.load(tmp_path)


@pytest.mark.parametrize(("head", "uses"), [("ForMaskedLM", fills), ("ForSequenceClassification", classifies)])
@torch.no_grad()
def test_in_use(head: str, uses: Any, tmp_path: Path) -> None:
    sized = {"vocab_size": len(WORDS), "max_position_embeddings": 32, "num_hidden_layers": 2, "intermediate_size": 8}
    uses(saved(build("FNet" + head, sized | {"num_labels": 3}), tmp_path), tmp_path, told)
