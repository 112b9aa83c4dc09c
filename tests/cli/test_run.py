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


def test_a_file_of_prompts_is_answered_by_a_file(heed: Shell, llama: Path, tmp_path: Path) -> None:
    chat = {"messages": [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "the cat"}]}
    lines = [
        {"prompt": "the cat"},
        {"custom_id": "b", "url": "/v1/chat/completions", "body": {**chat, "max_tokens": 3}},
        {"prompt": 3},
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = heed("run", llama, "--batch", source, "--out", target, "--limit", "4", code=1)
    assert not told.out
    assert "lines: 3 of 3" in told.err
    assert "1 of 3 lines have errors as answers" in told.err
    first, second, third = map(json.loads, target.read_text().splitlines())
    assert heed("run", llama, "the cat", "--limit", "4").out == f"the cat{first['text']}\n"
    assert second["response"]["body"]["choices"][0]["message"]["role"] == "assistant"
    assert second["response"]["body"]["usage"]["completion_tokens"] <= 3
    assert "prompt is 3" in third["error"]
    assert heed("run", llama, "--batch", source, "--out", target, "--quiet").err == ""  # all is done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch", "x"), "give both"),
        (("--out", "x"), "give both"),
        (("--batch", "x", "--out", "y", "the cat"), "no prompts"),
        (("--batch", "x", "--out", "y", "--num-beams", "2"), "do not go with --batch"),
        (("--batch", "none", "--out", "y"), "none cannot be read"),
    ],
)
def test_what_is_no_batch(
    heed: Shell, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in heed("run", llama, *words, code=2).err
    assert not list(tmp_path.iterdir())
