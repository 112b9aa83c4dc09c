"""What a model is, told from configs and headers: no weight is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import heed
from heed.core.contract import Where
from heed.core.errors import RunError, WeightsError
from heed.core.state import nbytes
from heed.runs.convert import convert
from heed.runs.info import info, source
from heed.train import train
from heed.weights.formats.gguf import Dequantised
from heed.weights.formats.safetensors import Stored
from tests.pipelines.test_checkpoint import BERT, SMALL, made
from tests.train.support import language_model, trained
from tests.weights.formats.test_gguf_families import CASES
from tests.weights.formats.test_gguf_quantised import packed
from tests.weights.support import GOLDEN

HF: Any = transformers


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a tensor is an error."""

    def fail(self: object, name: str) -> None:
        raise AssertionError(f"{name} was read")

    monkeypatch.setattr(Stored, "__getitem__", fail)
    monkeypatch.setattr(Dequantised, "__getitem__", fail)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    config = HF.LlamaConfig(**SMALL, intermediate_size=40, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
    made(HF.LlamaForCausalLM(config), tmp_path / "llama", framed=False, chat=True)
    return tmp_path / "llama"


@pytest.mark.usefixtures("unread")
def test_a_checkpoint_in_the_hugging_face_layout(llama: Path) -> None:
    told = info(llama)
    assert (told.what, told.family, told.model) == ("a checkpoint in the Hugging Face layout", "llama", "decoder")
    theirs = HF.LlamaForCausalLM.from_pretrained(llama)
    assert told.parameters == sum(one.numel() for one in theirs.parameters())
    assert told.stored == {"float32": told.parameters}
    assert told.bytes == (llama / "model.safetensors").stat().st_size
    (layers,) = told.layers
    assert (layers.depth, layers.width, layers.mixers, layers.heads, layers.kv_heads) == (2, 24, ("attention",), 4, 2)
    assert (told.vocabulary, told.context) == (theirs.config.vocab_size, 2048)
    assert told.chat_template
    assert source(llama).chats
    assert {"generate", "chat"} <= set(told.can)
    assert told.training is None


def test_the_state_is_as_large_as_it_says(llama: Path) -> None:
    told = info(llama).memory
    assert told is not None
    assert told.law == "2 × (2·kv_heads·head_size numbers per token)"
    model = heed.load(llama).model
    state = model.start(1)
    _, state = model(torch.zeros(1, 5, dtype=torch.long), Where.run(1, 5), state)
    held = nbytes(state)
    assert (told.fixed, told.per_token, told.later) == (0, held // 5, held // 5)


def test_a_quantised_checkpoint_tells_what_it_was(tmp_path: Path) -> None:
    config = HF.LlamaConfig(
        **{**SMALL, "hidden_size": 64}, intermediate_size=96, num_key_value_heads=2, bos_token_id=1, eos_token_id=2
    )
    made(HF.LlamaForCausalLM(config), tmp_path / "llama", framed=False, chat=True)
    convert(tmp_path / "llama", tmp_path / "int8", quantise="int8", shard=1 << 30)
    one, two = info(tmp_path / "llama"), info(tmp_path / "int8")
    assert two.what == "a checkpoint that heed quantised"
    assert (two.parameters, two.family, two.context, two.can) == (one.parameters, one.family, one.context, one.can)
    assert two.edits == ("Quantised()",)
    assert "int8" in two.stored
    assert two.bytes < one.bytes


@pytest.mark.usefixtures("unread")
def test_a_gguf_file(tmp_path: Path) -> None:
    told = info(packed(CASES["llama"], tmp_path))
    assert (told.what, told.family, told.model) == ("a GGUF file", "llama", "decoder")
    assert {"Q8_0", "Q4_0", "F32"} == set(told.stored)
    assert told.bytes == (tmp_path / "packed.gguf").stat().st_size
    assert told.context == 128
    assert told.tokenizer == ""
    assert not told.chat_template


@pytest.mark.usefixtures("unread")
def test_an_encoder_does_not_stream(tmp_path: Path) -> None:
    made(HF.BertForMaskedLM(HF.BertConfig(**BERT)), tmp_path / "bert")
    told = info(tmp_path / "bert")
    assert told.memory is None
    assert "fill" in told.can
    assert "generate" not in told.can
    assert told.tokenizer.startswith("WordLevel, ")


def test_a_run_tells_its_training(tmp_path: Path) -> None:
    run = trained(tmp_path / "run").run
    told = info(run.path)
    assert told.what == "a run of heed's"
    assert told.training is not None
    assert told.training["steps"] == 6
    assert told.training["data"]["kind"] == "dates"
    assert told.training["last"]["step"] == 6
    assert [layers.place for layers in told.layers] == ["encoder", "decoder"]
    assert told.memory is not None
    assert told.memory.per_source > 0
    assert told.parameters == sum(one.numel() for one in heed.load(run.path).model.parameters())
    assert not told.chat_template


def test_a_run_without_weights_yet(tmp_path: Path) -> None:
    run = train(language_model(), tmp_path / "run").run
    (run.path / "model.safetensors").unlink()
    told = info(run.path)
    assert (told.bytes, told.stored, told.context) == (0, {}, 24)


@pytest.mark.parametrize(("family", "case"), [("t5", "seq2seq"), ("mistral", "lm_window5"), ("rwkv", "lm_state")])
def test_laws_of_growth(family: str, case: str) -> None:
    memory = info(GOLDEN / family / case).memory
    assert memory is not None
    match family:
        case "t5":
            assert memory.per_token == memory.per_source > 0 == memory.fixed
        case "mistral":
            assert memory.per_token > 0 == memory.later  # the window is full
        case "rwkv":
            assert memory.fixed > 0 == memory.per_token


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a folder or a file"):
        info(tmp_path / "gone")
    with pytest.raises(RunError, match="holds no config.json"):
        info(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(WeightsError, match="is not a .gguf file; heed convert"):
        info(tmp_path / "a.bin")
    with pytest.raises(WeightsError, match="laid out by its authors"):
        info(GOLDEN / "retnet" / "lm_three_forms")
