"""Encoders beside `transformers` where a mask hides tokens anywhere: equal at every column, shown or hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import replay
from tests.weights.families.encoders import (
    HEADS,
    LENGTH,
    ROUNDED,
    VOCABULARY,
    build,
    inputs_for,
    record,
    same,
    shape,
    told,
)
from tests.weights.live import saved

SIZES = {"num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 16, "num_labels": 3}
DISTILBERT = {"n_heads": 3, "n_layers": 2, "hidden_dim": 16, "dim": 12, "vocab_size": VOCABULARY, "num_labels": 3}
MORE: dict[str, dict[str, Any]] = {
    "Albert": {"embedding_size": 5},
    "Bert": {},
    "DistilBert": {},
    "Electra": {"embedding_size": 5},
    "LayoutLM": {"max_2d_position_embeddings": 10},
    "MPNet": {"type_vocab_size": 0, "pad_token_id": 1},
    "RoFormer": {"embedding_size": 5, "num_attention_heads": 2},
    "Roberta": {"pad_token_id": 1},
}
ROUND = ("DebertaV2", "LayoutLM", "RoFormer")  # a scale or a softmax, a table of sines in float32
EXACT = 1e-9
MODELS = [f"{family}{head}" for family in MORE for head in HEADS]
MODELS += ["AlbertForPreTraining", "BertForPreTraining", "BertForNextSentencePrediction", "ElectraForPreTraining"]
ALL, LEFT, RIGHT, MIDDLE = [1] * 9, [0] * 3 + [1] * 6, [1] * 5 + [0] * 4, [1, 1, 0, 0, 1, 0, 1, 1, 1]
ONE, NONE = [0] * 8 + [1], [0] * 9


def made(name: str, folder: Path, **options: Any) -> Any:
    """A model of `transformers`, saved, as its authors would have it."""
    family = max((known for known in MORE if name.startswith(known)), key=len)
    sized = DISTILBERT if family == "DistilBert" else shape(SIZES, **MORE[family])
    theirs = saved(build(name, sized | options), folder)
    if family == "RoFormer":  # their table of sines is a parameter: it was drawn at random like all others
        table = theirs.base_model.encoder.embed_positions
        with torch.no_grad():
            table.weight.copy_(table.create_weight())
        theirs.save_pretrained(folder)
    theirs.set_attn_implementation("eager")
    return theirs


@torch.no_grad()
def agrees(theirs: Any, folder: Path, inputs: dict[str, Tensor]) -> None:
    """Every output, at every column, where the reference has numbers."""
    wanted = told(theirs, inputs)
    record(folder, inputs, wanted)
    ours, everywhere = replay(folder), torch.ones_like(inputs["input_ids"], dtype=torch.bool)
    assert ours.keys() == wanted.keys()
    finite = {name: tensor.isfinite() for name, tensor in wanted.items()}
    bound = ROUNDED if type(theirs).__name__.startswith(ROUND) else EXACT
    ours, wanted = ({name: one.where(finite[name], 0) for name, one in told.items()} for told in (ours, wanted))
    same(ours, wanted, everywhere, bound)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_hidden_still_looks(name: str, tmp_path: Path) -> None:
    theirs = made(name, tmp_path)
    agrees(theirs, tmp_path, inputs_for(theirs, mask=torch.tensor([ALL, LEFT, RIGHT, MIDDLE, ONE])))


@pytest.mark.parametrize("family", MORE)
def test_a_row_that_hides_everything(family: str, tmp_path: Path) -> None:
    """Theirs then weighs all alike, or has no numbers."""
    theirs = made(f"{family}ForMaskedLM", tmp_path)
    agrees(theirs, tmp_path, inputs_for(theirs, mask=torch.tensor([LEFT, NONE])))


@pytest.mark.parametrize("family", MORE)
def test_hidden_tokens_need_not_be_padding_ids(family: str, tmp_path: Path) -> None:
    theirs = made(f"{family}ForTokenClassification", tmp_path)
    inputs = inputs_for(theirs, mask=torch.tensor([LEFT, MIDDLE]))
    agrees(theirs, tmp_path, inputs | {"input_ids": inputs_for(theirs, 1, torch.tensor([ALL, RIGHT]))["input_ids"]})


NUMBERS = torch.tensor([[0.3, 1.0, 0.0], [1.0, 0.0, 0.5]])
LABELS: list[tuple[str | None, int, Tensor]] = [
    (None, 1, NUMBERS[:, 0]),
    (None, 1, NUMBERS[:, :1].double()),
    (None, 1, torch.tensor([2, 5])),
    ("regression", 1, NUMBERS[:, 1]),
    ("regression", 3, NUMBERS),
    (None, 3, NUMBERS),
    ("multi_label_classification", 3, NUMBERS.double()),
    ("multi_label_classification", 1, NUMBERS[:, :1].double()),
    ("single_label_classification", 3, torch.tensor([2, -100])),
    (None, 3, torch.tensor([[2], [0]])),
]


@pytest.mark.parametrize(("problem", "count", "labels"), LABELS)
@pytest.mark.parametrize("family", ["Bert", "DistilBert", "Roberta"])
def test_losses_of_texts(family: str, problem: str | None, count: int, labels: Tensor, tmp_path: Path) -> None:
    theirs = made(f"{family}ForSequenceClassification", tmp_path, num_labels=count, problem_type=problem)
    inputs = inputs_for(theirs, mask=torch.tensor([LEFT, RIGHT]))
    agrees(theirs, tmp_path, inputs | {"labels": labels.clone()})


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("BertForSequenceClassification", torch.zeros(2, 2)),
        ("BertForSequenceClassification", torch.zeros(3, dtype=torch.long)),
        ("BertForMaskedLM", torch.zeros(2, LENGTH - 1, dtype=torch.long)),
        ("BertForMaskedLM", torch.zeros(2, LENGTH)),
        ("ElectraForPreTraining", torch.zeros(2, LENGTH - 1, dtype=torch.long)),
    ],
)
def test_labels_of_another_kind_are_refused(name: str, labels: Tensor, tmp_path: Path) -> None:
    theirs = made(name, tmp_path)
    record(tmp_path, inputs_for(theirs) | {"labels": labels}, {})
    with pytest.raises(WeightsError, match=r"labels (have the shape|are torch.float32).* needed is"):
        replay(tmp_path)


@pytest.mark.parametrize("name", ["position_ids", "inputs_embeds", "head_mask", "bool_masked_pos"])
def test_inputs_that_would_be_passed_over_are_refused(name: str, tmp_path: Path) -> None:
    theirs = made("BertModel", tmp_path)
    inputs = inputs_for(theirs)
    record(tmp_path, inputs, {})
    path = tmp_path / "inputs.safetensors"
    save_file(load_file(path) | {name: torch.arange(LENGTH).expand(2, -1).clone()}, path)
    with pytest.raises(WeightsError, match=f"holds {name}, which heed does not read for bert"):
        replay(tmp_path)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # theirs
@pytest.mark.parametrize(
    ("problem", "count", "labels"),
    [
        *((problem, count, labels) for problem, count, labels in LABELS if labels.is_floating_point() or problem),
        (None, 3, torch.tensor([2, -1])),
        (None, 3, torch.tensor([-1, -1])),
    ],
)
def test_losses_of_texts_by_the_rules_of_deberta(
    problem: str | None, count: int, labels: Tensor, tmp_path: Path
) -> None:
    options = shape(SIZES, relative_attention=False, type_vocab_size=0, num_labels=count, problem_type=problem)
    theirs = saved(build("DebertaV2ForSequenceClassification", options), tmp_path)
    agrees(theirs, tmp_path, inputs_for(theirs, mask=torch.tensor([ALL, ALL])) | {"labels": labels.clone()})


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # theirs
@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"])
def test_what_depends_on_moved_padding_is_not_made(head: str, tmp_path: Path) -> None:
    """DeBERTa blanks padding: heed moves it to the end, and does not guess what theirs would say there."""
    relative = {"relative_attention": False, "type_vocab_size": 0}
    theirs = saved(build(f"DebertaV2{head}", shape(SIZES, **relative)), tmp_path)
    inputs = inputs_for(theirs, mask=torch.tensor([LEFT, RIGHT]))
    if head == "ForTokenClassification":
        inputs["labels"][0, 0] = 1
    save_file(inputs, tmp_path / "inputs.safetensors")
    ours = replay(tmp_path)
    assert {"last_hidden_state", "hidden_states.2"} <= ours.keys()
    assert "loss" not in ours
    assert ("logits" in ours) == (head == "ForTokenClassification")
