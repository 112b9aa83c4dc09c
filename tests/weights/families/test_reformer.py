"""Reformer beside `transformers`: hashed, local and both, several rounds, chunks and boards of all kinds."""

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

import heed
from heed import weights
from heed.core.contract import Where
from heed.core.errors import CannotStream, WeightsError
from heed.models import Decoder, Encoder
from heed.pipelines import GenerationConfig, TextGeneration
from heed.weights import replay
from tests.pipelines.small import WORDS, worded
from tests.weights.families.encoders import EXACT, ROUNDED, build, record
from tests.weights.families.inuse import fills
from tests.weights.live import close, ids, returns, saved

VOCABULARY = 31
DRAWN = torch.randn
WRITER = "ReformerModelWithLMHead"
NAMES = (
    *("ReformerModel", WRITER, "ReformerForMaskedLM"),
    *("ReformerForSequenceClassification", "ReformerForQuestionAnswering"),
)
OPTIONS = {
    "attention_head_size": st.sampled_from([3, 4]),
    "num_attention_heads": st.integers(1, 3),
    "feed_forward_size": st.sampled_from([7, 16]),
    "hidden_act": st.sampled_from(["relu", "gelu", "gelu_new"]),
    "layer_norm_eps": st.sampled_from([1e-12, 1e-3]),
    "axial_pos_embds": st.booleans(),
    "hash_seed": st.integers(0, 9),
    "num_hashes": st.integers(1, 4),
    "num_buckets": st.sampled_from([None, 2, 4, 8, [2, 4], [4, 2, 2]]),
    "lsh_attn_chunk_length": st.sampled_from([2, 3, 4, 8]),
    "lsh_num_chunks_before": st.integers(0, 3),
    "local_attn_chunk_length": st.sampled_from([2, 4, 5, 6]),
    "local_num_chunks_before": st.integers(0, 3),
    "num_labels": st.integers(1, 3),
}
LAYERS = (["lsh"], ["local"], ["lsh", "lsh"], ["local", "lsh"], ["lsh", "local", "local", "lsh"])
SIDES = ("none", "right", "left", "holes")


def options(**more: Any) -> dict[str, Any]:
    given_: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 12,
        "num_attention_heads": 2,
        "attention_head_size": 4,
    }
    given_ |= {"attn_layers": ["local", "lsh"], "lsh_attn_chunk_length": 4, "local_attn_chunk_length": 4}
    given_ |= {"axial_pos_shape": [8, 12], "axial_pos_embds_dim": [5, 7], "max_position_embeddings": 96}
    return given_ | {"feed_forward_size": 16, "hash_seed": 1, "num_buckets": 4} | more


def stored(name: str, folder: Path, **more: Any) -> Any:
    """A model of the reference, saved and loaded again; its boards are in float32, whatever the rest is in."""
    model = saved(build(name, options(**more)), folder).double()
    model.save_pretrained(folder)
    return model


def shown(side: str, tokens: int) -> dict[str, Tensor]:
    """A mask of two rows: none, short on either side, or with holes."""
    mask = torch.ones(2, tokens, dtype=torch.long)
    if side == "right":
        mask[1, tokens - tokens // 2 :] = 0
    if side == "left":
        mask[0, : tokens // 3] = 0
    if side == "holes":
        mask = (torch.rand(2, tokens, generator=torch.Generator().manual_seed(1)) < 0.7).long()
    return {} if side == "none" else {"attention_mask": mask}


def inputs_for(model: Any, tokens: int, side: str) -> dict[str, Tensor]:
    """Two rows with the labels that this model knows."""
    name, config, draw = type(model).__name__, model.config, torch.Generator().manual_seed(tokens)
    given_ = {"input_ids": ids(2, tokens, VOCABULARY, tokens)} | shown(side, tokens)
    if "QuestionAnswering" in name:
        return given_ | {"start_positions": torch.tensor([0, 90]), "end_positions": torch.tensor([tokens - 1, 1])}
    if "SequenceClassification" in name:
        value = torch.tensor([0.3, -1.2], dtype=torch.float64)
        return given_ | {"labels": value if config.num_labels == 1 else torch.tensor([0, 1])}
    if name == "ReformerModel" or tokens == 1:  # nothing follows a single token
        return given_
    return given_ | {"labels": torch.randint(VOCABULARY, (2, tokens), generator=draw)}


@torch.no_grad()
def said(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the reference says. Its weights are by chunks, which heed does not make; its memory is no tensor."""
    made: dict[str, Tensor] = {}
    for name, value in model(**inputs, output_hidden_states=True, use_cache=False).items():
        made |= {f"{name}.{i}": one for i, one in enumerate(value)} if isinstance(value, list) else {name: value}
    return made


def agrees(model: Any, folder: Path, inputs: dict[str, Tensor]) -> None:
    """At every column: also those that are hidden, and those that the reference adds."""
    wanted = said(model, inputs)
    record(folder, inputs, wanted)
    made = replay(folder)
    assert made.keys() == wanted.keys()
    real = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    for key, tensor in wanted.items():
        assert made[key].shape == tensor.shape, key
        close(made[key], tensor, ROUNDED)  # a token that sees no other has scores of -1e9, of which few digits are left
        if tensor.dtype == torch.float64 and tensor.dim() > 1 and tensor.shape[1] >= real.shape[1]:
            close(made[key][:, : real.shape[1]][real], tensor[:, : real.shape[1]][real], EXACT)


@settings(max_examples=24, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    name=st.sampled_from(NAMES),
    drawn=st.fixed_dictionaries(OPTIONS),
    layers=st.sampled_from(LAYERS),
    after=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    causal=st.booleans(),
    tokens=st.integers(1, 33),
    side=st.sampled_from(SIDES),
)
def test_every_column_agrees(
    name: str,
    drawn: dict[str, Any],
    layers: list[str],
    after: tuple[int, int],
    causal: bool,
    tokens: int,
    side: str,
) -> None:
    ahead = dict(
        zip(("lsh_num_chunks_after", "local_num_chunks_after"), (0, 0) if name == WRITER else after, strict=True)
    )
    causal = name == WRITER or (causal and "Masked" not in name)
    with TemporaryDirectory() as place:
        folder = Path(place)
        theirs = stored(name, folder / "theirs", **drawn, **ahead, attn_layers=layers, is_decoder=causal)
        inputs = inputs_for(theirs, tokens, side)
        agrees(theirs, folder / "theirs", inputs)
        again = returns(weights.load(folder / "theirs"), folder / "ours", theirs)
        before = said(theirs, inputs)
        for key, tensor in said(again, inputs).items():
            assert torch.equal(tensor, before[key]), key


def in_single(*shape: Any, dtype: torch.dtype | None = None, **more: Any) -> Tensor:
    return DRAWN(*shape, **more).to(dtype)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "more", [{}, {"num_hashes": 3, "lsh_num_chunks_before": 2}, {"axial_pos_embds": False}], ids=str
)
def test_a_loaded_model_chunks_each_row_by_itself(causal: bool, more: dict[str, Any], tmp_path: Path) -> None:
    """A row gives what the reference gives for it alone, whatever stands beside it."""
    theirs = stored("ReformerModel", tmp_path, is_decoder=causal, **more)
    ours = weights.load(tmp_path).model
    assert isinstance(ours, Encoder)
    tokens, lengths = ids(3, 21, VOCABULARY), (21, 2, 13)
    with torch.no_grad(), patch.object(torch, "randn", in_single):  # heed's rotations are those of float32
        made, _ = ours(tokens, Where.ragged(lengths))
        for row, length in enumerate(lengths):
            close(made[row, :length], theirs(tokens[row : row + 1, :length]).last_hidden_state[0], EXACT)


@pytest.mark.parametrize("buckets", [None, 4, [2, 6]])
def test_rotations_that_were_recorded_are_taken(buckets: Any, tmp_path: Path) -> None:
    more = {"hash_seed": None, "num_hashes": 2, "num_buckets": buckets, "attn_layers": ["lsh", "local", "lsh"]}
    theirs = stored("ReformerForMaskedLM", tmp_path, **more)
    drawn: list[Tensor] = []

    def recording(*shape: Any, **named: Any) -> Tensor:
        drawn.append(DRAWN(*shape, **named))
        return drawn[-1]

    inputs = {"input_ids": ids(2, 22, VOCABULARY)}
    torch.manual_seed(0)
    with patch.object(torch, "randn", recording):
        wanted = said(theirs, inputs)
    record(tmp_path, inputs, wanted)
    with pytest.raises(WeightsError, match=r"the reference drew its rotations anew; record them as random_rotations.0"):
        replay(tmp_path)
    record(tmp_path, inputs | {f"random_rotations.{layer}": drawn[layer] for layer in range(2)}, wanted)
    for name, tensor in replay(tmp_path).items():
        close(tensor, wanted[name], EXACT)
    record(tmp_path, inputs | {f"random_rotations.{layer}": drawn[layer][..., :1] for layer in range(2)}, wanted)
    with pytest.raises(WeightsError, match=r"rotations of the shape \[2, 4, 2, 1\] were given, needed is \[2, 4, 2,"):
        replay(tmp_path)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("prompt", [2, 4, 7, 13])
@torch.no_grad()
def test_local_layers_stream(before: int, prompt: int, tmp_path: Path) -> None:
    """Whole, in pieces, in ragged rows; and a continuation."""
    more = {"is_decoder": True, "attn_layers": ["local", "local"], "local_num_chunks_before": before}
    theirs = stored(WRITER, tmp_path, **more)
    ours, tokens = weights.load(tmp_path).model, ids(2, prompt, VOCABULARY)
    assert isinstance(ours, Decoder)
    wanted = theirs(tokens).logits
    close(ours(tokens, Where.run(2, prompt))[0], wanted, EXACT)
    state: Any = ours.start(2)
    for i in range(prompt):
        y, state = ours(tokens[:, i : i + 1], Where.run(2, 1, start=i), state)
        close(y, wanted[:, i : i + 1], EXACT)
    ragged, _ = ours(tokens, Where.ragged([prompt, 2]))
    close(ragged[1, :2], theirs(tokens[1:, :2]).logits[0], EXACT)
    asked = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    written = theirs.generate(tokens, **asked, output_logits=True, return_dict_in_generate=True)
    recorded = {"sequences": written.sequences, "step_logits": torch.stack(written.logits, 1).double()}
    record(tmp_path, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, recorded)
    made = replay(tmp_path)
    assert torch.equal(made["sequences"], recorded["sequences"])
    close(made["step_logits"], recorded["step_logits"], 1e-6)  # they store the scores of a step in float32


@pytest.mark.parametrize("more", [{"attn_layers": ["lsh", "local"]}, {"local_num_chunks_before": 2}], ids=str)
def test_continuations_that_are_not_those_of_a_whole_text(more: dict[str, Any], tmp_path: Path) -> None:
    stored(WRITER, tmp_path, **{"attn_layers": ["local"]} | more, is_decoder=True)
    record(tmp_path, {"input_ids": ids(1, 5, VOCABULARY)}, {"sequences": ids(1, 8, VOCABULARY)})
    with pytest.raises(WeightsError, match="continues a text otherwise than it reads it as a whole"):
        replay(tmp_path)


def test_it_is_used_like_any_other(tmp_path: Path) -> None:
    sized = {"vocab_size": len(WORDS)}
    with patch.object(torch, "randn", in_single):
        fills(stored("ReformerForMaskedLM", tmp_path / "masked", **sized), tmp_path / "masked", said)
    local = sized | {"is_decoder": True, "attn_layers": ["local", "local"]}
    theirs = stored(WRITER, tmp_path / "local", **local)
    worded(tmp_path / "local", framed=False)
    model = heed.load(tmp_path / "local")
    assert isinstance(model, TextGeneration)
    prompt = torch.tensor([[WORDS.index(word) for word in ("the", "cat", "sat", "on", "a", "mat")]])
    wanted = theirs.generate(prompt, max_new_tokens=8, do_sample=False, eos_token_id=2, pad_token_id=0)[0, 6:].tolist()
    wanted = wanted[: wanted.index(2)] if 2 in wanted else wanted
    written = model.generate("the cat sat on a mat", GenerationConfig(max_new_tokens=8))
    assert model.tokenizer.encode(written) == [token for token in wanted if token > 4]
    stored(WRITER, tmp_path / "hashed", **sized, is_decoder=True)
    worded(tmp_path / "hashed", framed=False)
    with pytest.raises(CannotStream):
        heed.load(tmp_path / "hashed").generate("the cat")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"num_buckets": 5}, "buckets come in pairs"),
        ({"num_buckets": [4, 3]}, "buckets come in pairs"),
        ({"lsh_attn_chunk_length": 0}, "lsh_attn_chunk_length"),
        ({"local_attn_chunk_length": -4}, "local_attn_chunk_length"),
        ({"axial_pos_embds_dim": [6, 7]}, "6 [+] 7 channels, which are 13; the stream has 12"),
        ({"axial_pos_shape": [8]}, "must name the same axes"),
        ({"attn_layers": []}, "attn_layers is empty"),
        ({"attn_layers": ["local", "global"]}, "attn_layers"),
        ({"num_hashes": 0}, "num_hashes"),
    ],
    ids=str,
)
def test_what_heed_cannot_do_is_refused(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    stored("ReformerModel", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(WeightsError, match=message):
        weights.load(tmp_path)


def test_a_text_that_is_too_long_is_refused(tmp_path: Path) -> None:
    stored("ReformerModel", tmp_path, axial_pos_shape=[2, 3])
    record(tmp_path, {"input_ids": ids(1, 9, VOCABULARY)}, {"last_hidden_state": torch.zeros(1)})
    with pytest.raises(WeightsError, match="a board of 2x3"):
        replay(tmp_path)
