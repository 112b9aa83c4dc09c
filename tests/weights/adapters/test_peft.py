"""Adapters beside the library peft, live: what it writes is read here, what is written here it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.weights import Folder
from heed.weights.adapters import PeftAdapter, Tuned, adapted, write_adapter
from heed.weights.edits import merge
from heed.weights.edits.lora import adapters
from tests.weights.live import ids, saved

HF: Any = transformers
VOCABULARY = 40
# Sums of 2·width products in another order: heed splits fused layers, and adds B A x per part. A sum of n products in
# precision ε is off by at most n·ε of its terms; some ten layers of n ≤ 64 follow one another.
EXACT = {torch.float64: 64 * 10 * 2.0**-53, torch.float32: 64 * 10 * 2.0**-24}
# transformers computes rotations (Llama, GPT-NeoX) and root mean squares (Llama, T5) in float32 whatever the weights
# are: each of a few layers is off by some 2⁻²⁴ there.
SINGLE_INSIDE = ("llama", "neox", "t5", "rslora", "patterns")
ROUNDED = 32 * 2.0**-24


def gpt2() -> Any:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
    return HF.GPT2LMHeadModel(HF.GPT2Config(vocab_size=VOCABULARY, **sizes))


def llama() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return HF.LlamaForCausalLM(HF.LlamaConfig(vocab_size=VOCABULARY, intermediate_size=48, **sizes))


def neox() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    return HF.GPTNeoXForCausalLM(HF.GPTNeoXConfig(vocab_size=VOCABULARY, **sizes))


def bert_config() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    return HF.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=32, num_labels=3, **sizes)


def bert() -> Any:
    return HF.BertForSequenceClassification(bert_config())


def t5() -> Any:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return HF.T5ForConditionalGeneration(HF.T5Config(vocab_size=VOCABULARY, **sizes))


def moved(model: Any, seed: int = 7) -> Any:
    """Adapters and modules in full as if they had learnt."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                weight.copy_(torch.randn(weight.shape, generator=draw, dtype=torch.float64) * weight.shape[-1] ** -0.5)
    return model


def theirs(model: Any, tokens: Tensor) -> Tensor:
    if model.config.is_encoder_decoder:
        found: Tensor = model(input_ids=tokens, decoder_input_ids=tokens[:, :5]).logits
        return found
    logits: Tensor = model(input_ids=tokens).logits
    return logits


def ours(model: Any, tokens: Tensor) -> Tensor:
    where = Where.run(*tokens.shape)
    if hasattr(model, "decoder"):
        target = tokens[:, :5]
        given = Where.run(*target.shape).give(encoder_output=model.encode(tokens, where))
        found: Tensor = model(target, given)[0]
        return found
    if "heads" in dict(model.named_children()) and "pooled" in model.heads:
        fields = torch.stack([tokens, torch.zeros_like(tokens)], -1)
        stream = model(fields, where)[0]
        logits: Tensor = model.heads["pooled"](stream, where)
        return logits
    y: Tensor = model(tokens, where)[0]
    return y


LORA = {"r": 3, "lora_alpha": 5, "lora_dropout": 0.1}
CASES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "gpt2": (gpt2, {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    "llama": (llama, {"target_modules": ["q_proj", "v_proj", "down_proj"]}),
    "neox": (neox, {"target_modules": ["query_key_value"]}),
    "bert": (bert, {"target_modules": ["query", "value", "intermediate.dense"], "task_type": "SEQ_CLS"}),
    "t5": (t5, {"target_modules": ["q", "v", "wi"]}),
    "rslora": (llama, {"target_modules": ["q_proj", "o_proj"], "use_rslora": True}),
    "patterns": (
        llama,
        {
            "target_modules": ["q_proj", "v_proj"],
            "rank_pattern": {"layers.1.self_attn.q_proj": 6, "v_proj": 2},
            "alpha_pattern": {"q_proj": 9},
        },
    ),
    "one layer": (gpt2, {"target_modules": ["c_attn"], "layers_to_transform": [1], "fan_in_fan_out": True}),
}


def made(case: str, folder: Path, dtype: torch.dtype) -> tuple[Any, Path, Path]:
    """A base, and an adapter of it, both on the disk; and the two in peft."""
    build, settings = CASES[case]
    base = saved(build(), folder / "base").to(dtype)
    base.save_pretrained(folder / "base")
    torch.manual_seed(0)
    model = moved(peft.get_peft_model(base, peft.LoraConfig(**{**LORA, **settings}))).eval()
    model.save_pretrained(folder / "adapter")
    return model, folder / "base", folder / "adapter"


def near(found: Tensor, wanted: Tensor, case: str = "gpt2") -> None:
    assert found.dtype == wanted.dtype
    gap = (found - wanted).abs().max().item() / max(1.0, wanted.abs().max().item())
    bound = max(EXACT[wanted.dtype], ROUNDED if case in SINGLE_INSIDE else 0.0)
    assert gap <= bound, f"differs by {gap:.3g}"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_an_adapter_of_theirs_says_the_same_here(case: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model, base, folder = made(case, tmp_path, dtype)
    tokens = ids(2, 9, VOCABULARY)
    wanted = theirs(model, tokens)
    with model.disable_adapter():
        assert (theirs(model, tokens) - wanted).abs().max() > 1e-3  # it has learnt something
    opened = adapted(Folder.open(base).checkpoint, PeftAdapter.open(folder))
    near(ours(opened.model, tokens), wanted, case)
    merge(opened.model)
    assert not adapters(opened.model)
    near(ours(opened.model, tokens), theirs(model.merge_and_unload(), tokens), case)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_an_adapter_of_ours_says_the_same_there(case: str, tmp_path: Path) -> None:
    _, base, folder = made(case, tmp_path, torch.float64)
    checkpoint, tokens = Folder.open(base).checkpoint, ids(2, 9, VOCABULARY)
    opened = adapted(checkpoint, PeftAdapter.open(folder))
    draw = torch.Generator().manual_seed(3)
    for layer in adapters(opened.model).values():  # every part of a fused layer by an A of its own
        layer.a.copy_(torch.randn(layer.a.shape, generator=draw, dtype=torch.float64))
    wanted = ours(opened.model, tokens)
    task = CASES[case][1].get("task_type")
    told = Tuned(opened.model, opened.table, opened.config, checkpoint.tensors, str(base), task)
    write_adapter(told, tmp_path / "written")
    bare = CASES[case][0]()
    bare = type(bare).from_pretrained(base, dtype=torch.float64)
    again = peft.PeftModel.from_pretrained(bare, tmp_path / "written").eval()
    near(theirs(again, tokens), wanted, case)
    back = adapted(checkpoint, PeftAdapter.open(tmp_path / "written"))
    near(ours(back.model, tokens), wanted, case)


@torch.no_grad()
def test_what_was_read_is_written_as_it_was(tmp_path: Path) -> None:
    _, base, folder = made("gpt2", tmp_path, torch.float64)
    checkpoint = Folder.open(base).checkpoint
    opened = adapted(checkpoint, PeftAdapter.open(folder))
    write_adapter(Tuned(opened.model, opened.table, opened.config, checkpoint.tensors, "base"), tmp_path / "written")
    before, after = (load_file(one / "adapter_model.safetensors") for one in (folder, tmp_path / "written"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)  # one A of three parts stays one A


@torch.no_grad()
def test_a_head_comes_along_onto_a_base_without_one(tmp_path: Path) -> None:
    model, base, folder = made("bert", tmp_path, torch.float64)
    HF.BertModel.from_pretrained(base, dtype=torch.float64).save_pretrained(tmp_path / "bare")
    opened = adapted(Folder.open(tmp_path / "bare").checkpoint, PeftAdapter.open(folder))
    tokens = ids(2, 9, VOCABULARY)
    near(ours(opened.model, tokens), theirs(model, tokens))
    assert opened.config["architectures"] == ["BertForSequenceClassification"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dora": ({"use_dora": True}, "use_dora is 'True'"),
    "bias": ({"bias": "all"}, "bias is 'all'"),
    "type": ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
    "pissa": ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
    "lora bias": ({"lora_bias": True}, "lora_bias is 'True'"),
    "tokens": ({"trainable_token_indices": [3]}, "trainable_token_indices"),
    "parameters": ({"target_parameters": ["x"]}, "target_parameters"),
    "of tomorrow": ({"use_wonder": {"a": 1}}, "use_wonder"),
    "a pattern": ({"alpha_pattern": {"(a+)+$": 3}}, r"the pattern '\(a\+\)\+\$'"),
    "rank": ({"r": 4}, r"has A of \[3, 32\] and B of \[32, 3\]; with rank 4"),
    "no rank": ({"r": 0}, "r is 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_heed_lacks_is_refused_by_name(case: str, tmp_path: Path) -> None:
    _, base, folder = made("llama", tmp_path, torch.float32)
    path, (change, words) = folder / "adapter_config.json", REFUSED[case]
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(WeightsError, match=words):
        adapted(Folder.open(base).checkpoint, PeftAdapter.open(folder))


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    _, base, folder = made("llama", tmp_path, torch.float32)
    path, checkpoint = folder / "adapter_model.safetensors", Folder.open(base).checkpoint
    whole = load_file(path)
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    broken = {
        rf"{stem}.lora_B.weight is missing": {n: t for n, t in whole.items() if n != f"{stem}.lora_B.weight"},
        r"is \[32, 32\], which does not fit A of \[3, 7\]": {**whole, f"{stem}.lora_A.weight": torch.zeros(3, 7)},
        "does not begin with base_model.model.": {**whole, "x": torch.zeros(1)},
        "neither lora_A nor lora_B, nor of modules_to_save": {**whole, "base_model.model.x.weight": torch.zeros(1)},
        "there is no linear layer model.layers.7.self_attn.q_proj": {
            **whole,
            f"{stem.replace('0', '7')}.lora_A.weight": torch.zeros(3, 32),
            f"{stem.replace('0', '7')}.lora_B.weight": torch.zeros(32, 3),
        },
        "holds torch.int32": {**whole, f"{stem}.lora_A.weight": torch.zeros(3, 32, dtype=torch.int32)},
    }
    for words, tensors in broken.items():
        save_file(tensors, path)
        with pytest.raises(WeightsError, match=words):
            adapted(checkpoint, PeftAdapter.open(folder))
    path.rename(folder / "adapter_model.bin")
    with pytest.raises(WeightsError, match=r"adapter_model.bin is a pickle, which heed does not open"):
        PeftAdapter.open(folder)


@torch.no_grad()
def test_a_base_that_has_moved_is_not_the_base(tmp_path: Path) -> None:
    _, base, folder = made("llama", tmp_path, torch.float32)
    checkpoint = Folder.open(base).checkpoint
    opened = adapted(checkpoint, PeftAdapter.open(folder))
    opened.model.get_parameter("stack.ends.final.weight").data = torch.full((32,), 1.5)
    with pytest.raises(WeightsError, match=r"model.norm.weight is not as the base"):
        write_adapter(Tuned(opened.model, opened.table, opened.config, checkpoint.tensors, "b"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
