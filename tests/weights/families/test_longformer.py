"""Longformer beside `transformers`: windows per layer, marked tokens, masks of all kinds, every head."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.mixers import Longformer
from heed.models import Encoder
from heed.weights import replay
from tests.pipelines.small import WORDS
from tests.weights.families.encoders import EXACT, build, record, told
from tests.weights.families.inuse import classifies, fills
from tests.weights.live import close, ids, returns, saved

VOCABULARY, SEPARATOR = 31, 2
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
OPTIONS = {
    "num_attention_heads": st.integers(1, 3),
    "intermediate_size": st.sampled_from([7, 16]),
    "hidden_act": st.sampled_from(["gelu", "gelu_new", "relu"]),
    "layer_norm_eps": st.sampled_from([1e-12, 1e-2]),
    "type_vocab_size": st.integers(1, 2),
    "tie_word_embeddings": st.booleans(),
    "num_labels": st.integers(1, 3),
    "pad_token_id": st.integers(0, 1),
}
MASKS = ("none", "right", "left", "holes")
MARKS = ("none", "first", "some", "uneven", "all")


def options(**more: Any) -> dict[str, Any]:
    given_ = {"vocab_size": VOCABULARY, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 16}
    sized = {"num_hidden_layers": 2, "attention_window": [8, 4], "max_position_embeddings": 40}
    return given_ | sized | {"pad_token_id": 1, "sep_token_id": SEPARATOR} | more


def shown(kind: str, tokens: int) -> dict[str, Tensor]:
    """A mask of two rows: none, short on either side, or with holes."""
    mask = torch.ones(2, tokens, dtype=torch.long)
    if kind == "right":
        mask[1, tokens - tokens // 2 :] = 0
    if kind == "left":
        mask[0, : tokens // 3] = 0
    if kind == "holes":
        mask = (torch.rand(2, tokens, generator=torch.Generator().manual_seed(1)) < 0.7).long()
        mask[:, tokens // 2] = 1
    return {} if kind == "none" else {"attention_mask": mask}


def marking(kind: str, tokens: int) -> dict[str, Tensor]:
    """Which tokens have global attention: several, more in one row than in the other, or nothing is said."""
    marked = torch.zeros(2, tokens, dtype=torch.long)
    if kind == "first":
        marked[:, 0] = 1
    if kind == "some":
        marked[:, 1::4] = 1
    if kind == "uneven":
        marked[0, ::3], marked[1, tokens // 2] = 1, 1
    if kind == "all":
        marked[:] = 1
    return {} if kind == "none" else {"global_attention_mask": marked}


def inputs_for(model: Any, tokens: int, mask: str, marks: str) -> dict[str, Tensor]:
    """Two rows with the fields and labels that this model knows; a padding id may stand where nothing is hidden."""
    name, config, draw = type(model).__name__, model.config, torch.Generator().manual_seed(tokens)
    given_ = {"input_ids": ids(2, tokens, VOCABULARY, tokens)} | shown(mask, tokens) | marking(marks, tokens)
    given_["input_ids"][0, tokens // 2] = config.pad_token_id
    given_["token_type_ids"] = torch.randint(config.type_vocab_size, (2, tokens), generator=draw)
    if "QuestionAnswering" in name:
        given_["input_ids"][:, [tokens // 4, tokens // 4 + 1, tokens - 1]] = SEPARATOR
        return given_ | {"start_positions": torch.tensor([0, 90]), "end_positions": torch.tensor([tokens - 1, 1])}
    if "SequenceClassification" in name:
        value = torch.tensor([0.3, -1.2], dtype=torch.float64)
        return given_ | {"labels": value if config.num_labels == 1 else torch.tensor([0, 1])}
    many = VOCABULARY if "MaskedLM" in name else config.num_labels
    return given_ | ({} if name.endswith("Model") else {"labels": torch.randint(many, (2, tokens), generator=draw)})


def in_full(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return x.softmax(dim)


def said(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the reference says; it takes its weights in float32, but not here."""
    with torch.no_grad(), patch.object(nn.functional, "softmax", in_full):
        return told(model, inputs)


def agrees(model: Any, folder: Path, inputs: dict[str, Tensor]) -> None:
    """At every column, also those that are hidden."""
    wanted = said(model, inputs)
    record(folder, inputs, wanted)
    made = replay(folder)
    assert made.keys() == wanted.keys()
    for key, tensor in wanted.items():
        assert made[key].shape == tensor.shape, key
        close(made[key], tensor, EXACT)


@settings(max_examples=16, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    head=st.sampled_from(HEADS),
    drawn=st.fixed_dictionaries(OPTIONS),
    windows=st.sampled_from([4, 6, 12, (4, 8), (12, 4, 6), (8, 8, 4)]),
    tokens=st.integers(8, 30),
    mask=st.sampled_from(MASKS),
    marks=st.sampled_from(MARKS),
)
def test_every_column_agrees(
    head: str, drawn: dict[str, Any], windows: int | tuple[int, ...], tokens: int, mask: str, marks: str
) -> None:
    layers = {"num_hidden_layers": 2} if isinstance(windows, int) else {"num_hidden_layers": len(windows)}
    each = windows if isinstance(windows, int) else list(windows)
    with TemporaryDirectory() as place:
        folder = Path(place)
        theirs = saved(build(f"Longformer{head}", options(**drawn, **layers, attention_window=each)), folder / "theirs")
        inputs = inputs_for(theirs, tokens, mask, marks)
        agrees(theirs, folder / "theirs", inputs)
        again = returns(weights.load(folder / "theirs"), folder / "ours", theirs)
        before = said(theirs, inputs)
        for key, tensor in said(again, inputs).items():
            assert torch.equal(tensor, before[key]), key


@pytest.mark.parametrize("tokens", [1, 2, 3, 7])
def test_texts_shorter_than_a_window(tokens: int, tmp_path: Path) -> None:
    theirs = saved(build("LongformerModel", options(attention_window=8)), tmp_path)
    agrees(theirs, tmp_path, {"input_ids": ids(1, tokens, VOCABULARY)})


@torch.no_grad()
def test_a_loaded_model_reads_ragged_rows(tmp_path: Path) -> None:
    """A row gives what the reference gives for it alone, marked tokens and all."""
    theirs = saved(build("LongformerModel", options()), tmp_path)
    ours = weights.load(tmp_path).model
    assert isinstance(ours, Encoder)
    mixers = [part for part in ours.stack.modules() if isinstance(part, Longformer)]
    assert [mixer.config.window for mixer in mixers] == [8, 4]
    tokens, lengths = ids(3, 23, VOCABULARY), (23, 5, 14)
    marked = marking("uneven", 23)["global_attention_mask"]
    marked = torch.stack((marked[0], marked[1], torch.zeros_like(marked[0])))
    segments = torch.zeros_like(tokens)
    made, _ = ours(torch.stack((tokens, segments), -1), Where.ragged(lengths).give(marked=marked.bool()))
    for row, length in enumerate(lengths):
        alone = {"input_ids": tokens[row : row + 1, :length], "global_attention_mask": marked[row : row + 1, :length]}
        close(made[row, :length], said(theirs, alone)["last_hidden_state"][0], EXACT)


def test_it_is_used_like_any_other(tmp_path: Path) -> None:
    """A classifier marks the first token of every text by itself, there and here."""
    more = options(vocab_size=len(WORDS), num_labels=3, pad_token_id=0)
    fills(saved(build("LongformerForMaskedLM", more), tmp_path / "masked"), tmp_path / "masked", said)
    classifies(saved(build("LongformerForSequenceClassification", more), tmp_path / "of"), tmp_path / "of", said)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"attention_window": [2, 3]}, "a window of 3 has no two halves"),
        ({"attention_window": 0}, "attention_window"),
        ({"attention_window": [4, -2]}, "attention_window"),
        ({"attention_window": [2, 2, 2]}, "attention_window names 3 layers, but there are 2"),
        ({"is_decoder": True}, "as an encoder"),
    ],
)
def test_what_heed_cannot_do_is_refused(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(build("LongformerModel", options()), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(WeightsError, match=message):
        weights.load(tmp_path)


def test_inputs_that_do_not_fit(tmp_path: Path) -> None:
    name = "global_attention_mask"
    saved(build("LongformerForQuestionAnswering", options()), tmp_path)
    tokens = ids(1, 9, VOCABULARY)
    record(tmp_path, {"input_ids": tokens, name: torch.ones(1, 8, dtype=torch.long)}, {"start_logits": torch.zeros(1)})
    with pytest.raises(WeightsError, match=rf"{name} has the shape \[1, 8\] beside ids of \[1, 9\]"):
        replay(tmp_path)
    record(tmp_path, {"input_ids": tokens}, {"start_logits": torch.zeros(1)})
    with pytest.raises(WeightsError, match=rf"rows have \[0\]; give {name} instead"):
        replay(tmp_path)
