"""Funnel beside `transformers`: lengths of all kinds, blocks of any size, every head, and the way back."""

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
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import Funnel
from heed.weights import replay
from tests.pipelines.small import WORDS
from tests.weights.families.encoders import EXACT, build, record, told
from tests.weights.families.inuse import classifies, fills
from tests.weights.live import close, ids, returns, saved

VOCABULARY = 31
BODIES = ("FunnelModel", "FunnelBaseModel")
OF_TOKENS = ("FunnelForMaskedLM", "FunnelForTokenClassification", "FunnelForQuestionAnswering", "FunnelForPreTraining")
NAMES = (*BODIES, *OF_TOKENS, "FunnelForSequenceClassification")
OPTIONS = {
    "d_model": st.sampled_from([6, 12]),
    "n_head": st.integers(1, 3),
    "d_head": st.sampled_from([2, 5]),
    "d_inner": st.sampled_from([7, 16]),
    "hidden_act": st.sampled_from(["gelu", "gelu_new", "relu", "silu"]),
    "layer_norm_eps": st.sampled_from([1e-9, 1e-3]),
    "num_decoder_layers": st.integers(1, 2),
    "pooling_type": st.sampled_from(["mean", "max"]),
    "attention_type": st.sampled_from(["relative_shift", "factorized"]),
    "separate_cls": st.booleans(),
    "truncate_seq": st.booleans(),
    "pool_q_only": st.booleans(),
    "tie_word_embeddings": st.booleans(),
    "num_labels": st.integers(1, 3),
}
BLOCKS = (((2,), None), ((1, 1), None), ((1, 2), (2, 1)), ((2, 1, 1), (1, 3, 1)), ((1, 1, 1, 1), None))


def options(**more: Any) -> dict[str, Any]:
    given_ = {"vocab_size": VOCABULARY, "d_model": 12, "n_head": 3, "d_head": 5, "d_inner": 16}
    return given_ | {"block_sizes": [1, 1], "num_decoder_layers": 1} | more


def inputs_for(model: Any, tokens: int, side: str, kinds: int) -> dict[str, Tensor]:
    """Two rows, one of them padded, with the fields and labels that this model knows."""
    name, draw = type(model).__name__, torch.Generator().manual_seed(tokens)
    given_ = {"input_ids": ids(2, tokens, VOCABULARY, tokens)}
    if side != "none":
        given_["attention_mask"] = torch.ones(2, tokens, dtype=torch.long)
        given_["attention_mask"][1, slice(tokens - tokens // 3, None) if side == "right" else slice(tokens // 3)] = 0
    if kinds:
        given_["token_type_ids"] = torch.randint(kinds, (2, tokens), generator=draw)
    if "QuestionAnswering" in name:
        return given_ | {"start_positions": torch.tensor([0, 40]), "end_positions": torch.tensor([tokens - 1, 1])}
    if "SequenceClassification" in name:
        value = torch.tensor([0.3, -1.2], dtype=torch.float64)
        return given_ | {"labels": value if model.config.num_labels == 1 else torch.tensor([1, 0])}
    many = {"FunnelForMaskedLM": VOCABULARY, "FunnelForPreTraining": 2}.get(name, model.config.num_labels)
    return given_ | ({} if name in BODIES else {"labels": torch.randint(many, (2, tokens), generator=draw)})


def said(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the reference says; it rounds its scores to float32, but not here."""
    with torch.no_grad(), patch.object(torch.Tensor, "float", torch.Tensor.double):
        return told(model, inputs)


@settings(max_examples=16, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    name=st.sampled_from(NAMES),
    drawn=st.fixed_dictionaries(OPTIONS),
    blocks=st.sampled_from(BLOCKS),
    tokens=st.integers(1, 19),
    side=st.sampled_from(["none", "right", "left"]),
    kinds=st.integers(0, 3),
)
def test_every_column_agrees(
    name: str,
    drawn: dict[str, Any],
    blocks: tuple[tuple[int, ...], tuple[int, ...] | None],
    tokens: int,
    side: str,
    kinds: int,
) -> None:
    """Also those that are hidden, at every length of a text; and the same model once heed has written it."""
    sizes, repeats = blocks
    tokens += (2 << len(sizes)) if len(sizes) > 1 else 0  # shorter texts are refused, see below
    given_ = options(**drawn, block_sizes=list(sizes), block_repeats=None if repeats is None else list(repeats))
    with TemporaryDirectory() as place:
        folder = Path(place)
        theirs = saved(build(name, given_), folder / "theirs")
        inputs = inputs_for(theirs, tokens, side, kinds)
        wanted = said(theirs, inputs)
        record(folder / "theirs", inputs, wanted)
        made = replay(folder / "theirs")
        assert made.keys() == wanted.keys()
        for key, tensor in wanted.items():
            assert made[key].shape == tensor.shape, key
            close(made[key], tensor, EXACT)
        again = returns(weights.load(folder / "theirs"), folder / "ours", theirs)
        for key, tensor in said(again, inputs).items():
            assert torch.equal(tensor, wanted[key]), key


@pytest.mark.parametrize("name", ["FunnelModel", "FunnelBaseModel"])
@pytest.mark.parametrize("more", [{}, {"separate_cls": False}, {"truncate_seq": False, "pool_q_only": False}], ids=str)
def test_a_loaded_model_pools_each_row_by_its_own_length(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    """A row gives what the reference gives for it alone, whatever stands beside it."""
    theirs = saved(build(name, options(block_sizes=[1, 1, 2], **more)), tmp_path)
    ours = weights.load(tmp_path).model
    assert isinstance(ours, Funnel)
    tokens, lengths = ids(3, 21, VOCABULARY), (21, 10, 13)
    with torch.no_grad():
        read = ours.encode(tokens, Where.ragged(lengths))
    for row, length in enumerate(lengths):
        alone = said(theirs, {"input_ids": tokens[row : row + 1, :length]})["last_hidden_state"][0]
        assert int(read.real[row].sum()) == len(alone)
        close(read.parts[0][row, : len(alone)], alone, EXACT)


def test_it_is_used_like_any_other(tmp_path: Path) -> None:
    more = options(vocab_size=len(WORDS), block_sizes=[1, 2, 1], num_labels=3)
    fills(saved(build("FunnelForMaskedLM", more), tmp_path / "masked"), tmp_path / "masked", said)
    classifies(saved(build("FunnelForSequenceClassification", more), tmp_path / "of"), tmp_path / "of", said)


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("FunnelModel", {"block_repeats": [1]}, "needed is a number of both for each block"),
        ("FunnelModel", {"d_model": 11}, "d_model is 11; distances are sines and cosines"),
        ("FunnelModel", {"pooling_type": "median"}, "pooling_type"),
        ("FunnelModel", {"block_sizes": [1, 0]}, "block_sizes"),
        ("FunnelModel", {"block_sizes": [], "block_repeats": []}, "at least one"),
    ],
)
def test_what_heed_cannot_do_is_refused(name: str, more: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(build(name, options()), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(WeightsError, match=message):
        weights.load(tmp_path)


def test_a_decoder_without_layers_is_refused(tmp_path: Path) -> None:
    """It adds two streams and is done; a body that is meant to stay short is read all the same."""
    more = options(num_decoder_layers=0)
    saved(build("FunnelForMaskedLM", more), tmp_path / "long")
    with pytest.raises(WeightsError, match="num_decoder_layers is 0.*save it as a FunnelBaseModel"):
        weights.load(tmp_path / "long")
    for name in ("FunnelBaseModel", "FunnelForSequenceClassification"):
        saved(build(name, more), tmp_path / name)
        assert isinstance(weights.load(tmp_path / name).model, Funnel)


@pytest.mark.parametrize(("blocks", "separate", "tokens"), [(2, True, 2), (3, True, 3), (3, False, 2), (4, True, 6)])
def test_texts_too_short_to_be_pooled_are_not_replayed(
    blocks: int, separate: bool, tokens: int, tmp_path: Path
) -> None:
    saved(build("FunnelModel", options(block_sizes=[1] * blocks, separate_cls=separate)), tmp_path)
    record(tmp_path, {"input_ids": ids(1, tokens, VOCABULARY)}, {"last_hidden_state": torch.zeros(1)})
    with pytest.raises(WeightsError, match=f"texts of {tokens} tokens are too short to be pooled {blocks - 1} times"):
        replay(tmp_path)


def test_inputs_that_do_not_fit(tmp_path: Path) -> None:
    saved(build("FunnelModel", options()), tmp_path)
    tokens, wanted = ids(1, 9, VOCABULARY), {"last_hidden_state": torch.zeros(1)}
    record(tmp_path, {"input_ids": tokens, "token_type_ids": tokens[:, 1:]}, wanted)
    with pytest.raises(WeightsError, match=r"token_type_ids have the shape \[1, 8\], input_ids \[1, 9\]"):
        replay(tmp_path)
    record(tmp_path, {"input_ids": tokens, "token_type_ids": tokens * 0 + 3}, wanted)
    with pytest.raises(WeightsError, match="segments from 3 to 3 were given, the model compares 0 to 2"):
        replay(tmp_path)
