"""GGUF files that heed writes: heed reads them back, llama.cpp reads them where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import heed
from heed import weights
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError, WeightsError
from heed.runs.convert import convert
from heed.text import Bpe, Byte, Char, Tokenizer, Word
from heed.text.gguf import from_gguf, to_gguf
from heed.text.tokenizer_config import declared
from heed.weights.families import open_
from heed.weights.formats import gguf, gguf_write
from tests.weights.live import close, ids

transformers.utils.logging.disable_progress_bar()

TEXT = "the quick brown fox jumps over the lazy dog, and 12 or 345 cats don't care! " * 20
LLAMA: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **LLAMA},
    "llama, tied, biases": {
        "model_type": "llama",
        **LLAMA,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
        "head_dim": 32,
    },
    "llama 3": {
        "model_type": "llama",
        **LLAMA,
        "max_position_embeddings": 131072,
        "rope_parameters": {**LLAMA3, "rope_theta": 5e5, "original_max_position_embeddings": 8192},
    },
    "llama, linear": {
        "model_type": "llama",
        **LLAMA,
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
    },
    "mistral": {"model_type": "mistral", **LLAMA, "sliding_window": None},
    "arcee": {"model_type": "arcee", **LLAMA},
    "qwen2": {"model_type": "qwen2", **LLAMA},
    "qwen3": {"model_type": "qwen3", **LLAMA, "head_dim": 32},
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 320,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    },
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Bpe(size=300).train([TEXT])


def saved(config: dict[str, Any], folder: Path, tokenizer: Tokenizer) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    tokenizer.save_all(folder)
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_heed_reads_back_what_it_writes(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    theirs = saved(MODELS[name], tmp_path / "theirs", tokenizer)
    tokens, where = ids(2, 11, 300), Where.run(2, 11)
    wanted = theirs(input_ids=tokens).logits
    before = weights.load(tmp_path / "theirs")
    for kind in ("f32", "f16"):
        made = convert(tmp_path / "theirs", tmp_path / f"{kind}.gguf", kind=kind)
        assert made.layout == "gguf"
        assert made.bytes == (tmp_path / f"{kind}.gguf").stat().st_size
        again = open_(gguf.read(tmp_path / f"{kind}.gguf"))
        exact = {key: tensor for key, tensor in before.model.state_dict().items() if tensor.dim() > 1}
        for key, tensor in again.model.state_dict().items():
            kept = kind == "f32" or key not in exact or "position" in key
            assert torch.equal(tensor, before.model.state_dict()[key] if kept else exact[key].half().float()), key
    close(open_(gguf.read(tmp_path / "f32.gguf")).model(tokens, where)[0], wanted, 1e-5)
    with pytest.raises(WeightsError, match="is already there"):
        convert(tmp_path / "theirs", tmp_path / "f16.gguf")


def test_numbers_that_half_precision_cannot_hold_are_not_written_as_infinity(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    saved(MODELS["llama"], tmp_path / "theirs", tokenizer)
    opened = weights.load(tmp_path / "theirs")
    with torch.no_grad():
        opened.model.get_parameter("stack.blocks.1.mixer.value.weight")[3, 5] = 7e4  # float16 ends at 65504
    with pytest.raises(WeightsError, match="blk.1.attn_v.weight holds numbers that float16 cannot; .* --type f32"):
        gguf_write.write(opened, tmp_path / "a.gguf", {}, "f16")
    assert not (tmp_path / "a.gguf").exists()
    gguf_write.write(opened, tmp_path / "a.gguf", {}, "f32")


def within(exact: Tensor, made: Tensor) -> None:
    """A block of 32 weights has one scale, its largest magnitude / 127 in float16: codes round to half a step.

    |w - q·s| ≤ s/2 + 127·s·2^-11: half a step, and what float16 leaves of the scale. Every weight keeps to it.
    """
    blocks, close_to = exact.reshape(-1, 32), made.reshape(-1, 32)
    step = blocks.abs().amax(1, keepdim=True) / 127
    assert bool(((blocks - close_to).abs() <= step * (0.5 + 127 * 2**-11) + 1e-7).all())


@torch.no_grad()
def test_eight_bits_keep_to_their_bound(tokenizer: Tokenizer, tmp_path: Path) -> None:
    theirs = saved(MODELS["llama"], tmp_path / "theirs", tokenizer)
    convert(tmp_path / "theirs", tmp_path / "q8.gguf", kind="q8_0")
    before, after = weights.load(tmp_path / "theirs").model, open_(gguf.read(tmp_path / "q8.gguf")).model
    for key, tensor in before.state_dict().items():
        within(tensor, after.state_dict()[key])
    tokens = ids(2, 11, 300)
    wanted = theirs(input_ids=tokens).logits
    gap = (after(tokens, Where.run(2, 11))[0] - wanted).abs().max().item()
    assert (
        0 < gap < 0.05 * wanted.std().item() * 3
    )  # weights are off by 1/254 of a block's largest at most: some percent
    kept = heed.load(tmp_path / "q8.gguf", quantise="keep")  # the codes are those of heed's own kernels
    assert isinstance(kept.generate("the quick"), str)


def test_rows_that_do_not_divide_are_half(tokenizer: Tokenizer, tmp_path: Path) -> None:
    saved({"model_type": "llama", **LLAMA, "intermediate_size": 40}, tmp_path / "theirs", tokenizer)
    convert(tmp_path / "theirs", tmp_path / "q8.gguf", kind="q8_0")
    kinds = {tensor.name: tensor.kind for tensor in gguf._head(tmp_path / "q8.gguf").tensors}
    assert kinds["blk.0.ffn_down.weight"] == 1
    assert kinds["blk.0.ffn_up.weight"] == 8
    assert kinds["blk.0.attn_norm.weight"] == 0


# --- what cannot be written ---


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "llama", **LLAMA, "hidden_act": "gelu"}, "feedforward.activation gelu would be read as silu"),
        ({"model_type": "mistral", **LLAMA, "sliding_window": 8}, "have a window, which llama.cpp would pass over"),
        (
            {"model_type": "gpt_neox", **LLAMA, "num_key_value_heads": 4},
            "heed writes no GGUF of gpt_neox; it does of llama, arcee",
        ),
    ],
)
def test_what_has_no_word(config: dict[str, Any], told: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    saved(config, tmp_path / "theirs", tokenizer)
    with pytest.raises(WeightsError) as error:
        convert(tmp_path / "theirs", tmp_path / "out.gguf")
    assert told in str(error.value)
    assert not list(tmp_path.glob("*.gguf"))


def test_wrong_options(tokenizer: Tokenizer, tmp_path: Path) -> None:
    saved(MODELS["llama"], tmp_path / "theirs", tokenizer)
    with pytest.raises(ConfigError, match="'q4_k' is not a type that heed writes GGUF with"):
        convert(tmp_path / "theirs", tmp_path / "out.gguf", kind="q4_k")
    with pytest.raises(WeightsError, match=r"--type f16 is for GGUF; let .*out end in .gguf"):
        convert(tmp_path / "theirs", tmp_path / "out", kind="f16")
    with pytest.raises(WeightsError, match=r"its own type is --type q8_0"):
        convert(tmp_path / "theirs", tmp_path / "out.gguf", quantise="int8")
    convert(tmp_path / "theirs", tmp_path / "small", quantise="int8")
    with pytest.raises(WeightsError, match="quantised"):
        convert(tmp_path / "small", tmp_path / "out.gguf")


# --- tokenizers ---


@pytest.mark.parametrize("kind", [Byte(), Char(), Bpe(size=300)], ids=lambda kind: str(kind.kind))
def test_tokenizers_come_back(kind: Byte | Char | Bpe, tmp_path: Path) -> None:
    before = kind.train([TEXT, "Ünïcödé\n\ttabs  spaces"])
    after = from_gguf(to_gguf(before, before.size + 3))
    for text in (TEXT, "don't  ünï\n\n12345 spaces  tabs\t", " a", "a "):
        assert after.encode(text) == before.encode(text)
        assert after.decode(after.encode(text)) == before.decode(before.encode(text))
    assert (after.begin, after.end, after.unknown, after.pad) == (before.begin, before.end, before.unknown, before.pad)
    assert after.size == before.size + 3  # a model may have more rows than tokens


@pytest.mark.parametrize("kind", [Word(), Bpe(size=300, lowercase=True)], ids=["word", "lowercase"])
def test_tokenizers_that_gguf_has_no_word_for(kind: Word | Bpe) -> None:
    with pytest.raises(InputError, match="GGUF has no word for how this tokenizer takes texts apart"):
        to_gguf(kind.train([TEXT]), 400)


def test_what_stands_around_a_text_comes_back(tokenizer: Tokenizer) -> None:
    from heed.text.tokenizer_config import Frame

    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": None}
    framed = declared(tokenizer, names, Frame("bos_token $A", "bos_token $A $B"))
    after = from_gguf(to_gguf(framed, framed.size))
    assert after.framed("the cat").ids == framed.framed("the cat").ids == [1, *tokenizer.encode("the cat")]


# --- llama.cpp ---


@torch.no_grad()
@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="llama_cpp is not installed")
@pytest.mark.parametrize("name", ["llama", "llama, tied, biases", "llama 3", "arcee", "qwen2", "qwen3", "gpt2"])
def test_llama_cpp_computes_the_same(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    import llama_cpp  # type: ignore[import-not-found, unused-ignore]

    theirs = saved(MODELS[name], tmp_path / "theirs", tokenizer)
    convert(tmp_path / "theirs", tmp_path / "out.gguf", kind="f32")
    model = llama_cpp.Llama(str(tmp_path / "out.gguf"), logits_all=True, verbose=False, n_ctx=64, n_threads=1)
    text = "the quick brown fox don't  care"
    tokens = model.tokenize(text.encode(), add_bos=False, special=False)
    assert tokens == tokenizer.encode(text)
    model.eval(tokens)
    made = torch.from_numpy(np.array(model.scores[: len(tokens)]))
    wanted = theirs(input_ids=torch.tensor([tokens])).logits[0]
    model.close()
    close(made, wanted, 5e-3)  # llama.cpp keeps keys and values in float16
