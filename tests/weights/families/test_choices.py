"""Answers to choose from: encoders that score several of them, beside `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import load, replay
from tests.weights.families.encoders import EXACT, ROUNDED, record, told
from tests.weights.families.unmasked import VOCABULARY, build
from tests.weights.live import close, ids, returns, saved

ROWS, ANSWERS, TOKENS = 2, 3, 8
SIZED = {"num_hidden_layers": 2, "intermediate_size": 16, "num_attention_heads": 2, "type_vocab_size": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "BertForMultipleChoice": {},
    "FNetForMultipleChoice": {},
    "NystromformerForMultipleChoice": {"num_landmarks": 4, "segment_means_seq_len": 8, "conv_kernel_size": 3},
    "YosoForMultipleChoice": {"conv_window": 3},
}


def inputs() -> dict[str, Tensor]:
    tokens = ids(ROWS * ANSWERS, TOKENS, VOCABULARY).view(ROWS, ANSWERS, TOKENS)
    shown = torch.ones_like(tokens)
    return {"input_ids": tokens, "token_type_ids": tokens % 2, "attention_mask": shown, "labels": torch.tensor([2, 0])}


@pytest.mark.parametrize("name", OPTIONS)
@torch.no_grad()
def test_scores_stand_side_by_side(name: str, tmp_path: Path) -> None:
    model = saved(build(name, SIZED | OPTIONS[name]), tmp_path / "theirs")
    given = {key: tensor for key, tensor in inputs().items() if "FNet" not in name or key != "attention_mask"}
    same = name.startswith(("Bert", "FNet"))  # others mean something else by attentions
    wanted = {key: tensor for key, tensor in told(model, given).items() if same or not key.startswith("attentions")}
    assert wanted["logits"].shape == (ROWS, ANSWERS)
    record(tmp_path / "theirs", given, wanted)
    made = replay(tmp_path / "theirs")
    assert made.keys() == wanted.keys() >= {"logits", "loss"}
    for key, tensor in wanted.items():
        close(made[key], tensor, EXACT if tensor.dtype == torch.float64 else ROUNDED)
    again = returns(load(tmp_path / "theirs"), tmp_path / "ours", model)
    assert torch.equal(told(again, given)["logits"], wanted["logits"])


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("BertForMultipleChoice", torch.tensor([2, 0, 1]), "needed is the number of an answer for each of 2 rows"),
        ("BertForMultipleChoice", torch.tensor([0.5, 1.0]), "labels are torch.float32"),
        ("BertForTokenClassification", torch.tensor([2, 0]), "no head that gives one logit to each"),
        ("BertModel", torch.tensor([2, 0]), "no head that gives one logit to each"),
    ],
)
def test_what_does_not_fit_is_named(name: str, labels: Tensor, message: str, tmp_path: Path) -> None:
    saved(build(name, SIZED), tmp_path)
    record(tmp_path, inputs() | {"labels": labels}, {"logits": torch.zeros(1)})
    with pytest.raises(WeightsError, match=message):
        replay(tmp_path)
