"""LongT5 beside `transformers`: local and transient-global attention, any radius, any block, any mask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
import torch
import transformers
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

import heed
from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.mixers import Attention, TransientGlobal
from heed.models import Encoder
from heed.pipelines import GenerationConfig, Text2TextGeneration
from heed.weights import replay
from tests.pipelines.small import WORDS, worded
from tests.weights.families.encoders import EXACT, record, told
from tests.weights.families.inuse import LONG, framed
from tests.weights.families.twosided import T5_SMALL, agrees, in_full, made
from tests.weights.live import close, ids, returns, saved

KINDS = ("local", "transient-global")
SIZES = {
    "d_model": st.sampled_from([7, 12]),
    "d_kv": st.sampled_from([4, 5]),
    "num_layers": st.integers(1, 3),
    "num_decoder_layers": st.one_of(st.none(), st.integers(1, 2)),
    "num_heads": st.integers(1, 3),
    "relative_attention_num_buckets": st.sampled_from([6, 8, 32]),
    "relative_attention_max_distance": st.sampled_from([17, 20, 128]),
    "layer_norm_epsilon": st.sampled_from([1e-6, 1e-3]),
    "feed_forward_proj": st.sampled_from(["relu", "gated-gelu", "gated-silu"]),
    "tie_word_embeddings": st.booleans(),
    "local_radius": st.sampled_from([1, 2, 3, 5, 30]),
    "global_block_size": st.sampled_from([1, 2, 3, 5, 7, 16]),
    "encoder_attention_type": st.sampled_from(KINDS),
}
FEW = settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
MANY = settings(max_examples=30, deadline=None, derandomize=True, phases=[Phase.generate])
SIDES = ("none", "right", "left", "holes")


@contextmanager
def precise() -> Iterator[None]:
    """While this lasts, the reference does not round its scores to float32. Its buckets of distances are as ever."""
    single = torch.Tensor.float

    def kept(x: Tensor) -> Tensor:
        return x.double() if x.is_floating_point() else single(x)

    with patch.object(torch.Tensor, "float", kept):
        yield


def shown(side: str, rows: int, tokens: int) -> dict[str, Tensor]:
    """A mask: none, one row short on either side, or holes."""
    mask = torch.ones(rows, tokens, dtype=torch.long)
    if side == "right":
        mask[-1, tokens - tokens // 2 :] = 0
    if side == "left":
        mask[0, : tokens // 3] = 0
    if side == "holes":
        mask = (torch.rand(rows, tokens, generator=torch.Generator().manual_seed(2)) < 0.8).long()
        mask[:, 0] = 1
    return {} if side == "none" else {"attention_mask": mask}


@FEW
@given(sizes=st.fixed_dictionaries(SIZES))
def test_it_translates(sizes: dict[str, Any]) -> None:
    """Scores whole and cut into calls, a source that is padded on either side, greedy tokens; and the way back."""
    with TemporaryDirectory() as folder, precise():
        agrees(made("longt5", **sizes), Path(folder), EXACT)


def of_tokens(name: str, tensor: Tensor, real: Tensor) -> Tensor:
    """What is about tokens that are not hidden; an encoder's weights come in blocks [B, n, H, size, keys]."""
    if tensor.dim() == 5:
        tensor = tensor.transpose(2, 3).flatten(1, 2)[:, : real.shape[1]]
    return tensor[real] if name.startswith("encoder") or tensor.shape[:2] == real.shape else tensor


@MANY
@given(
    sizes=st.fixed_dictionaries(SIZES),
    tokens=st.integers(1, 37),
    side=st.sampled_from(SIDES),
    whole=st.booleans(),
)
def test_every_real_column_agrees(sizes: dict[str, Any], tokens: int, side: str, whole: bool) -> None:
    """Streams and weights of every layer, of an encoder-decoder or of an encoder alone."""
    kind: Any = transformers.LongT5ForConditionalGeneration if whole else transformers.LongT5EncoderModel
    inputs = {"input_ids": ids(2, tokens, 41)} | shown(side, 2, tokens)
    inputs |= {"labels": ids(2, 5, 41, 1)} if whole else {}
    with TemporaryDirectory() as folder, torch.no_grad(), precise():
        theirs = in_full(saved(kind(transformers.LongT5Config(**T5_SMALL | sizes)), Path(folder)))
        wanted = told(theirs, inputs)
        wanted = {name: tensor for name, tensor in wanted.items() if name != "past_key_values"}
        record(Path(folder), inputs, wanted)
        found = replay(folder)
        assert found.keys() == wanted.keys()
        real = inputs.get("attention_mask", torch.ones(2, tokens)).bool()
        for name, tensor in wanted.items():
            assert found[name].shape == tensor.shape, name
            about = real if not whole or name.startswith("encoder") else torch.ones(2, 5).bool()
            close(of_tokens(name, found[name], about), of_tokens(name, tensor, about), EXACT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", SIDES)
@torch.no_grad()
def test_weights_of_hidden_tokens(kind: str, side: str, tmp_path: Path) -> None:
    """In float32, where what is added to hide swallows all scores: every column of the first layer's weights."""
    config = transformers.LongT5Config(**T5_SMALL, encoder_attention_type=kind, local_radius=3, global_block_size=4)
    theirs = saved(transformers.LongT5EncoderModel(config), tmp_path).float()
    theirs.save_pretrained(tmp_path)
    inputs = {"input_ids": ids(3, 18, 41)} | shown(side, 3, 18)
    record(tmp_path, inputs, {"attentions.0": told(theirs, inputs)["attentions.0"]})
    close(replay(tmp_path)["attentions.0"], told(theirs, inputs)["attentions.0"], 2e-6)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_loaded_encoder_reads_ragged_rows(kind: str, tmp_path: Path) -> None:
    """A row gives what the reference gives for it alone, whatever stands beside it; and it is written back."""
    config = transformers.LongT5Config(**T5_SMALL, encoder_attention_type=kind, local_radius=2, global_block_size=3)
    theirs = in_full(saved(transformers.LongT5EncoderModel(config), tmp_path / "theirs"))
    opened = weights.load(tmp_path / "theirs")
    ours = opened.model
    assert isinstance(ours, Encoder)
    assert isinstance(ours.stack.layers[1].mixer, Attention if kind == "local" else TransientGlobal)
    tokens, lengths = ids(4, 23, 41), (23, 2, 9, 14)
    found, _ = ours(tokens, Where.ragged(lengths))
    with precise():
        for row, length in enumerate(lengths):
            close(found[row, :length], theirs(tokens[row : row + 1, :length]).last_hidden_state[0], EXACT)
        again = in_full(returns(opened, tmp_path / "ours", theirs))
        assert torch.equal(again(tokens).last_hidden_state, theirs(tokens).last_hidden_state)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_used_like_any_other(kind: str, tmp_path: Path) -> None:
    sized = {"vocab_size": len(WORDS), "local_radius": 3, "global_block_size": 2, "encoder_attention_type": kind}
    ends = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    config = transformers.LongT5Config(**T5_SMALL | sized | ends)
    theirs: Any = saved(transformers.LongT5ForConditionalGeneration(config), tmp_path)
    worded(tmp_path)
    texts = [LONG, "the dog"]
    model = heed.load(tmp_path)
    assert isinstance(model, Text2TextGeneration)
    for text, answer in zip(texts, model.translate(texts, GenerationConfig(max_new_tokens=6)), strict=True):
        wanted = theirs.generate(framed(text), max_new_tokens=6, do_sample=False)[0, 1:].tolist()
        wanted = wanted[: wanted.index(2)] if 2 in wanted else wanted
        assert model.tokenizer.encode(answer) == [token for token in wanted if token > 4]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"encoder_attention_type": "global"}, "encoder_attention_type"),
        ({"local_radius": -1}, "local_radius"),
        ({"global_block_size": 0}, "global_block_size"),
        ({"encoder_attention_type": "transient-global"}, "is missing"),
    ],
)
def test_what_heed_cannot_do_is_refused(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(transformers.LongT5ForConditionalGeneration(transformers.LongT5Config(**T5_SMALL)), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(WeightsError, match=message):
        weights.load(tmp_path)
