"""How heed run loads a model, what it tells beside the results, and heed info in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from heed.runs.convert import convert
from tests.cli.support import Shell
from tests.pipelines.test_checkpoint import SMALL, made

HF: Any = transformers


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {**SMALL, "hidden_size": 64}
    config = HF.LlamaConfig(**sizes, intermediate_size=96, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
    folder = tmp_path_factory.mktemp("models") / "llama"
    made(HF.LlamaForCausalLM(config), folder, framed=False, chat=True)
    return folder


@pytest.mark.parametrize("words", [("--quantise", "int8"), ("--dtype", "bfloat16"), ("--device", "cpu", "--offline")])
def test_a_model_is_loaded_as_it_is_asked_for(heed: Shell, llama: Path, words: tuple[str, ...]) -> None:
    told = heed("run", llama, "the cat", "--limit", "4", *words)
    assert told.out.startswith("the cat")
    assert not told.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--quantise", "int3"), "did you mean int8?"),
        (("--dtype", "float31"), "float31"),
        (("--device", "cpuu"), "cpuu"),
        (("--temperature", "1", "--beam", "3"), "a beam search does not sample"),
    ],
)
def test_a_model_cannot_be_loaded_so(heed: Shell, llama: Path, words: tuple[str, ...], message: str) -> None:
    told = heed("run", llama, "the cat", *words, code=2).err
    assert told.startswith("heed: ")
    assert message in told


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_device_that_is_not_there(heed: Shell, llama: Path) -> None:
    told = heed("run", llama, "the cat", "--device", "cuda", code=2).err
    assert told.startswith("heed: ")
    assert "cuda" in told


def test_quiet_tells_results_alone(heed: Shell, llama: Path) -> None:
    words = ("run", llama, "the cat", "--temperature", "1", "--limit", "4")
    seed = heed(*words).err.split()[1]
    loud, quiet = heed(*words, "--seed", seed), heed(*words, "--seed", seed, "--quiet")
    assert quiet == (0, loud.out, "")


def test_info_in_words(heed: Shell, llama: Path, tmp_path: Path) -> None:
    told = heed("info", llama).out
    assert f"{llama} is a checkpoint in the Hugging Face layout" in told.replace("\n", " ").replace("  ", " ")
    assert "2 blocks of width 64: attention, 4 heads (2 of keys and values)" in told
    assert "544 bytes per token; 1.11 MB at 2,048 tokens (2 × (2·kv_heads·head_size numbers per token))" in told
    assert "has a template: heed run MODEL --chat" in told
    assert json.loads(heed("info", llama, "--json").out)["memory"]["per_token"] == 544
    convert(llama, tmp_path / "small", quantise="int8", shard=1 << 30)
    small = heed("info", tmp_path / "small").out
    assert "Quantised()" in small
    assert "int8" in small
