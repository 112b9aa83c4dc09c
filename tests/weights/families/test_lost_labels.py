"""A loss over labels that are predicted from padding is not the reference's: it is refused, or not made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from heed.core.errors import WeightsError
from heed.weights import replay
from tests.weights.support import GOLDEN


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom"])
def test_labels_at_padding(family: str, tmp_path: Path) -> None:
    folder = tmp_path / "lm"
    shutil.copytree(GOLDEN / family / "lm", folder)
    inputs = load_file(folder / "inputs.safetensors")
    assert bool((inputs["attention_mask"] == 0).any())
    assert "loss" in replay(folder)
    save_file(inputs | {"labels": torch.ones_like(inputs["input_ids"])}, folder / "inputs.safetensors")
    with pytest.raises(WeightsError, match="predicted from padding"):
        replay(folder)
    (folder / "outputs.safetensors").unlink()
    made = replay(folder)
    assert "logits" in made
    assert "loss" not in made
