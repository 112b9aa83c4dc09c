"""BigBird beside `transformers`: lengths that are whole blocks or not, masks of all kinds, training and afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.mixers import BigBird
from heed.models import Encoder
from heed.weights import replay
from tests.weights.families.encoders import EXACT, build, record, same, told
from tests.weights.live import close, ids, returns, saved

HEADS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification")
VOCABULARY = 31


def options(**more: Any) -> dict[str, Any]:
    given = {"vocab_size": VOCABULARY, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
    given |= {"intermediate_size": 16, "max_position_embeddings": 50, "block_size": 2, "num_random_blocks": 1}
    return given | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": 3} | more


def hiding(kind: str, rows: int, length: int) -> dict[str, Tensor]:
    """A mask: none, on either side, or with holes."""
    mask = torch.ones(rows, length, dtype=torch.long)
    if kind == "right":
        mask[0, length // 2 :] = 0
    if kind == "left":
        mask[0, : length - 3] = 0
    if kind == "holes":
        mask = (torch.rand(rows, length, generator=torch.Generator().manual_seed(1)) < 0.7).long()
    return {} if kind == "none" else {"attention_mask": mask}


@torch.no_grad()
def recorded(model: Any, folder: Path, inputs: dict[str, Tensor], *, training: bool = False) -> dict[str, Tensor]:
    """A golden folder of a model with random weights, and what it gave."""
    theirs = saved(model, folder).train(training)
    wanted = told(theirs, inputs)
    record(folder, inputs, wanted)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"training_mode": training}))
    return wanted


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mask", ["none", "right", "left", "holes"])
@pytest.mark.parametrize("length", [14, 15, 22])  # every token sees all; filled up to blocks; whole blocks
def test_every_column_agrees(length: int, mask: str, training: bool, tmp_path: Path) -> None:
    """Also those that are hidden, and those that the reference adds."""
    inputs = {"input_ids": ids(2, length, VOCABULARY)} | hiding(mask, 2, length)
    wanted = recorded(build("BigBirdForMaskedLM", options()), tmp_path, inputs, training=training)
    same(replay(tmp_path), wanted, torch.ones(2, length, dtype=torch.bool), EXACT)


@pytest.mark.parametrize(
    "more",
    [
        {"attention_type": "original_full"},
        {"rescale_embeddings": True, "type_vocab_size": 3},
        {"use_bias": False, "hidden_act": "relu"},
        {"block_size": 3, "num_random_blocks": 2, "tie_word_embeddings": False},
        {"block_size": 1, "num_random_blocks": 3, "num_attention_heads": 1, "layer_norm_eps": 1e-3},
    ],
    ids=str,
)
@pytest.mark.parametrize("training", [False, True])
def test_options(more: dict[str, Any], training: bool, tmp_path: Path) -> None:
    inputs = {"input_ids": ids(2, 32, VOCABULARY)} | hiding("right", 2, 32)
    inputs["token_type_ids"] = torch.arange(64).reshape(2, 32) % 2
    inputs["labels"] = ids(2, 32, VOCABULARY, seed=1)
    wanted = recorded(build("BigBirdForMaskedLM", options(**more)), tmp_path, inputs, training=training)
    same(replay(tmp_path), wanted, torch.ones(2, 32, dtype=torch.bool), EXACT)


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_heads_and_the_way_back(name: str, tmp_path: Path) -> None:
    inputs = {"input_ids": ids(2, 17, VOCABULARY)}
    wanted = recorded(build(f"BigBird{name}", options(num_labels=3)), tmp_path / "theirs", inputs)
    same(replay(tmp_path / "theirs"), wanted, torch.ones(2, 17, dtype=torch.bool), EXACT)
    kind: Any = getattr(transformers, f"BigBird{name}")
    theirs = kind.from_pretrained(tmp_path / "theirs", dtype=torch.float64)
    again = returns(weights.load(tmp_path / "theirs"), tmp_path / "ours", theirs)
    for key, tensor in told(again, inputs).items():
        assert torch.equal(tensor, wanted[key]), key


@torch.no_grad()
def test_a_loaded_model_counts_the_blocks_of_each_row(tmp_path: Path) -> None:
    """A row gives what the reference gives for it alone, whatever stands beside it."""
    theirs = saved(build("BigBirdModel", options()), tmp_path)
    ours = weights.load(tmp_path).model
    assert isinstance(ours, Encoder)
    assert isinstance(ours.stack.layers[0].mixer, BigBird)
    tokens = ids(3, 30, VOCABULARY)
    made, _ = ours(tokens, Where.ragged([30, 9, 21]))
    for row, length in enumerate((30, 9, 21)):
        model = type(theirs).from_pretrained(
            tmp_path, dtype=torch.float64
        )  # short texts change their attention for good
        close(made[row, :length], model.eval()(tokens[row : row + 1, :length]).last_hidden_state[0], EXACT)


def test_the_old_plan_of_random_blocks(tmp_path: Path) -> None:
    more = {"max_position_embeddings": 1056, "block_size": 32, "num_random_blocks": 2, "hidden_size": 4}
    more |= {"num_attention_heads": 2, "intermediate_size": 4}
    inputs = {"input_ids": ids(1, 1020, VOCABULARY)}
    wanted = recorded(build("BigBirdForMaskedLM", options(**more)), tmp_path, inputs, training=True)
    close(replay(tmp_path)["logits"], wanted["logits"], EXACT)


def test_given_random_blocks_are_taken(tmp_path: Path) -> None:
    inputs = {"input_ids": ids(1, 20, VOCABULARY)}
    recorded(build("BigBirdForMaskedLM", options()), tmp_path, inputs, training=True)
    (tmp_path / "outputs.safetensors").unlink()
    made = replay(tmp_path)
    drawn = {f"rand_attn.{layer}": made[f"rand_attn.{layer}"] for layer in range(2)}
    assert drawn["rand_attn.0"].shape == (3, 8, 1)
    record(tmp_path, inputs, drawn | {"logits": made["logits"]})
    assert torch.equal(replay(tmp_path)["logits"], made["logits"])
    record(tmp_path, inputs, {key: tensor * 0 for key, tensor in drawn.items()} | {"logits": made["logits"]})
    assert not torch.allclose(replay(tmp_path)["logits"], made["logits"])
    record(tmp_path, inputs, {key: tensor + 10 for key, tensor in drawn.items()} | {"logits": made["logits"]})
    with pytest.raises(WeightsError, match="must hold numbers of 10 blocks in the shape"):
        replay(tmp_path)


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("BigBirdForQuestionAnswering", {}, "answers questions by a head with a layer of its own"),
        ("BigBirdForMaskedLM", {"is_decoder": True}, "whose blocks look ahead"),
        ("BigBirdForMaskedLM", {"attention_type": "sparser"}, "attention_type"),
        ("BigBirdForMaskedLM", {"block_size": 0}, "block_size"),
    ],
)
def test_what_heed_cannot_do_is_refused(name: str, more: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(build(name, options()), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(WeightsError, match=message):
        weights.load(tmp_path)


def test_what_was_dropped_cannot_be_known(tmp_path: Path) -> None:
    inputs = {"input_ids": ids(1, 20, VOCABULARY)}
    recorded(build("BigBirdForMaskedLM", options(hidden_dropout_prob=0.1)), tmp_path, inputs, training=True)
    with pytest.raises(WeightsError, match="has training_mode and hidden_dropout_prob"):
        replay(tmp_path)
