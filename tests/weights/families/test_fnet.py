"""FNet beside `transformers`: every head, any length, and masks that nobody reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from heed import weights
from heed.core.contract import Where
from heed.models import Encoder
from tests.weights.families.unmasked import HEADS, SIZES, agrees, build, inputs_for, masks
from tests.weights.live import close, saved

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


def test_matrices_for_a_tpu_say_nothing_new(tmp_path: Path) -> None:
    saved(build("FNetModel", {"num_hidden_layers": 1, "intermediate_size": 8}), tmp_path)
    plain, tokens = weights.load(tmp_path).model, torch.arange(3, 9)[None]
    path = tmp_path / "model.safetensors"
    held = load_file(path)
    for axis, size in {"hidden": 12, "seq": 6}.items():
        held[f"encoder.layer.0.fourier.self.dft_mat_{axis}"] = torch.zeros(size, size, dtype=torch.complex64)
    save_file(held, path, metadata={"format": "pt"})
    text = (tmp_path / "config.json").read_text()
    changed = text.replace('"use_tpu_fourier_optimizations": false', '"use_tpu_fourier_optimizations": true')
    assert changed != text
    (tmp_path / "config.json").write_text(changed)
    again = weights.load(tmp_path).model
    with torch.no_grad():
        assert torch.equal(again(tokens, Where.run(1, 6))[0], plain(tokens, Where.run(1, 6))[0])
