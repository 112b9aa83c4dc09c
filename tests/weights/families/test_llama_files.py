"""Llama and its descendants: files as the world has them, rules that depend on the length, and files that lie."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as reference
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import InputError, WeightsError
from heed.mixers import LatentAttention
from heed.models import Decoder
from heed.weights import replay
from heed.weights.rename import Fused
from heed.weights.rules import Stacked
from tests.weights.live import close, ids

SINGLE = 3e-6  # float32 beside float32: some ten roundings of a few layers, as a share of the largest magnitude
LENGTH = 32
SMALL: dict[str, Any] = {
    "vocab_size": 41,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH,
}
SPARSE = SMALL | {"moe_intermediate_size": 9, "num_experts_per_tok": 2, "num_experts": 4}
DEEPSEEK = SMALL | {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 9,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 8,
    "q_lora_rank": 10,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 5,
}
DIVISORS = {"short_factor": [1.0, 2.0, 1.5], "long_factor": [2.0, 3.0, 5.0]}
FIELDS: dict[str, dict[str, Any]] = {
    "Llama": SMALL,
    "Mistral": SMALL,
    "Qwen2": SMALL,
    "Qwen3": SMALL | {"head_dim": 6},
    "Gemma": SMALL | {"head_dim": 6},
    "Gemma2": SMALL | {"head_dim": 6},
    "Phi3": SMALL | {"pad_token_id": None},
    "Mixtral": SMALL | {"num_local_experts": 4},
    "Qwen2Moe": SPARSE | {"shared_expert_intermediate_size": 7},
    "Qwen3Moe": SPARSE | {"head_dim": 6},
    "DeepseekV3": DEEPSEEK,
}


def made(name: str, folder: Path, stored: dict[str, Any] | None = None, **fields: Any) -> Any:
    """A random model of the reference library, saved."""
    torch.manual_seed(7)
    maker = getattr(reference, f"{name}ForCausalLM")
    config = maker.config_class(**json.loads(json.dumps(FIELDS[name] | fields)), initializer_range=0.3)
    model = maker(config).eval()
    model.set_experts_implementation("eager")  # its fused form wants sizes that are multiples of four
    model.save_pretrained(folder, **(stored or {}))
    return model


def rewrite(folder: Path, change: dict[str, Any], drop: tuple[str, ...] = ()) -> None:
    """Other words in config.json."""
    config = json.loads((folder / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in drop}
    (folder / "config.json").write_text(json.dumps(kept | change))


@torch.no_grad()
def same(folder: Path, model: Any, length: int = 11) -> None:
    tokens = ids(2, length, 41)
    made, _ = weights.load(folder).model(tokens, Where.run(2, length))
    close(made, model(input_ids=tokens).logits, SINGLE)


OLD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "theta": ({"rope_theta": 500.0}, {"rope_theta": 500, "rope_scaling": None}),
    "linear": (
        {"rope_theta": 500.0, "rope_type": "linear", "factor": 4.0},
        {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4}},
    ),
    "llama3": (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        | {"rope_theta": 1e4, "original_max_position_embeddings": 8},
        {
            "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}
            | {"original_max_position_embeddings": 8, "finetuned": True}
        },
    ),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 1e4},
        {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 8},
    ),
}


@pytest.mark.parametrize("kind", OLD)
def test_rotations_in_the_words_of_old_files(kind: str, tmp_path: Path) -> None:
    new, old = OLD[kind]
    model = made("Llama", tmp_path, rope_parameters=new)
    rewrite(tmp_path, old, ("rope_parameters", "original_max_position_embeddings"))
    same(tmp_path, model)


def test_nothing_where_a_default_is_meant(tmp_path: Path) -> None:
    model = made("Llama", tmp_path, num_key_value_heads=4)
    nothing = {"head_dim": None, "num_key_value_heads": None, "rope_scaling": None}
    rewrite(tmp_path, nothing | {"partial_rotary_factor": 0.5})  # which says nothing to a Llama
    same(tmp_path, model)


@pytest.mark.parametrize("name", FIELDS)
def test_what_a_config_leaves_out_is_what_the_reference_takes(name: str, tmp_path: Path) -> None:
    """Fields that change what is computed have the same defaults: those that are left at them may be missing."""
    model = made(name, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    plain = type(model.config)()
    drop = tuple(key for key, value in config.items() if key != "model_type" and getattr(plain, key, value) == value)
    rewrite(tmp_path, {}, (*drop, "rope_parameters", "layer_types"))
    same(tmp_path, model)


@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
def test_a_model_saved_without_its_head(name: str, tmp_path: Path) -> None:
    """No prefix, and old files hold the frequencies too."""
    model = made(name, tmp_path / "whole", tie_word_embeddings=True)
    model.model.save_pretrained(tmp_path / "bare")
    tensors = load_file(tmp_path / "bare" / "model.safetensors")
    assert "embed_tokens.weight" in tensors
    save_file(tensors | {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)}, tmp_path / "bare/model.safetensors")
    rewrite(tmp_path / "bare", {})
    same(tmp_path / "bare", model)


@pytest.mark.parametrize("name", ["Mixtral", "Qwen2Moe", "Qwen3Moe", "DeepseekV3"])
def test_experts_in_two_tensors_per_layer(name: str, tmp_path: Path) -> None:
    model = made(name, tmp_path / "theirs", {"save_original_format": False})
    stored = load_file(tmp_path / "theirs" / "model.safetensors")
    assert any(key.endswith("mlp.experts.gate_up_proj") for key in stored)
    same(tmp_path / "theirs", model)
    weights.write(weights.load(tmp_path / "theirs"), tmp_path / "ours")
    written = load_file(tmp_path / "ours" / "model.safetensors")
    assert written.keys() == stored.keys()
    assert all(torch.equal(written[key], stored[key]) for key in stored)


def test_a_stack_comes_apart_and_together() -> None:
    rule = Stacked("stack", ("a", "b", "c", "d"), each=2)
    stack = torch.randn(2, 6, 5)
    assert [part.shape for part in rule.split(stack)] == [(3, 5)] * 4
    assert torch.equal(rule.join(rule.split(stack)), stack)
    assert torch.equal(rule.split(stack)[2], Fused("", ("a", "b")).split(stack[1])[0])


@pytest.mark.parametrize("name", ["Mixtral", "Qwen2Moe", "Qwen3Moe"])
@torch.no_grad()
def test_routers_and_the_loss_that_counts_them(name: str, tmp_path: Path) -> None:
    """One row whole, one padded on the left; one of the layers may have no experts."""
    further: dict[str, Any] = {} if name == "Mixtral" else {"decoder_sparse_step": 2, "num_hidden_layers": 3}
    model = made(name, tmp_path, output_router_logits=True, router_aux_loss_coef=0.3, **further)
    tokens, mask = ids(2, 9, 41), torch.ones(2, 9, dtype=torch.long)
    mask[1, :4] = 0
    labels = tokens.masked_fill(mask == 0, -100)
    labels[1, 4] = -100  # the first token is predicted from padding, which means nothing
    save_file({"input_ids": tokens, "attention_mask": mask, "labels": labels}, tmp_path / "inputs.safetensors")
    given = model(tokens, attention_mask=mask, labels=labels)
    outputs = replay(tmp_path)
    close(outputs["aux_loss"], given.aux_loss, SINGLE)
    close(outputs["loss"], given.loss, SINGLE)
    for number, logits in enumerate(given.router_logits):
        close(outputs[f"router_logits.{number}"][mask.flatten() == 1], logits[mask.flatten() == 1], SINGLE)
    assert len(given.router_logits) == sum(key.startswith("router_logits") for key in outputs)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
@torch.no_grad()
def test_a_declared_length_is_what_the_reference_does_at_that_length(kind: str, tmp_path: Path) -> None:
    """In one call. Cut into calls the reference gives other numbers, because its old keys turned at another speed."""
    further = DIVISORS | {"original_max_position_embeddings": 16} if kind == "longrope" else {}
    rope = {"rope_type": kind, "factor": 4.0, "rope_theta": 1e4, **further}
    model = made("Llama", tmp_path, rope_parameters=rope, max_position_embeddings=16)
    same(tmp_path, model, 16)
    with pytest.raises(InputError, match="position 20 is outside 0 to 15.*declare the length"):
        weights.load(tmp_path).model(ids(1, 21, 41), Where.run(1, 21))
    rewrite(tmp_path, {"rope_parameters": rope | {"length": 21}})
    same(tmp_path, model, 21)
    ours, tokens = weights.load(tmp_path).model, ids(1, 21, 41)
    whole, _ = ours(tokens, Where.run(1, 21))
    first, state = ours(tokens[:, :9], Where.run(1, 9), ours.start(1))
    rest, _ = ours(tokens[:, 9:], Where.run(1, 12, start=9), state)
    close(torch.cat((first, rest), 1), whole, SINGLE)


@pytest.mark.parametrize("called", ["su", "yarn", "longrope"])
def test_long_phi_by_its_old_names(called: str, tmp_path: Path) -> None:
    rope = {"rope_type": "longrope", **DIVISORS, "rope_theta": 1e4}
    model = made("Phi3", tmp_path, rope_parameters=rope, original_max_position_embeddings=16)
    rewrite(tmp_path, {"rope_scaling": {"type": called, **DIVISORS}, "rope_theta": 10000}, ("rope_parameters",))
    same(tmp_path, model)
    rewrite(tmp_path, {"rope_scaling": {"type": called, **DIVISORS, "length": 21}})
    same(tmp_path, model, 21)


def test_yarn_of_deepseek_makes_its_scores_grow(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7, "rope_theta": 1e4}
    model = made("DeepseekV3", tmp_path, rope_parameters=rope | {"original_max_position_embeddings": 8})
    same(tmp_path, model)
    ours = weights.load(tmp_path).model
    assert isinstance(ours, Decoder)
    mixer = ours.stack.layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    assert mixer.scale == pytest.approx(model.model.layers[0].self_attn.scaling, rel=1e-12)
    assert mixer.scale > 1.5 * 10**-0.5


def test_layers_that_look_further_ahead_are_left_out(tmp_path: Path) -> None:
    model = made("DeepseekV3", tmp_path, num_nextn_predict_layers=1)
    names = ("eh_proj", "enorm", "mlp.experts.0.up_proj")
    ahead = {f"model.layers.2.{name}.weight": torch.ones(3, 3) for name in names}
    plain = load_file(tmp_path / "model.safetensors")
    save_file(plain | ahead, tmp_path / "model.safetensors")
    same(tmp_path, model)
    save_file(plain | {"model.layers.3.enorm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"model.layers.3.enorm.weight \[3\] is unknown"):
        weights.load(tmp_path)


def test_eight_bits_are_refused(tmp_path: Path) -> None:
    made("DeepseekV3", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    scales = {f"{name}_scale_inv": torch.ones(1, 1)}
    save_file(tensors | {name: tensors[name].to(torch.float8_e4m3fn)} | scales, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="holds numbers of 8 bits.*convert the checkpoint to bfloat16"):
        weights.load(tmp_path)


@pytest.mark.parametrize("name", ["Llama", "Mixtral", "DeepseekV3"])
def test_half_precision_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    model = made(name, tmp_path / "full").bfloat16()
    model.save_pretrained(tmp_path / "half")
    stored = load_file(tmp_path / "half" / "model.safetensors")
    weights.write(weights.load(tmp_path / "half"), tmp_path / "ours")
    written = load_file(tmp_path / "ours" / "model.safetensors")
    assert written.keys() == stored.keys()
    assert all(torch.equal(written[key], stored[key]) and written[key].dtype == stored[key].dtype for key in stored)


FAR = 10**9
LIES: list[tuple[str, dict[str, Any], str]] = [
    ("Llama", {"num_hidden_layers": FAR}, "claims 1000000000 layers"),
    ("Llama", {"head_dim": FAR}, "claims a width of 4000000000 in its attention"),
    ("Llama", {"num_attention_heads": FAR}, "claims a width of 6000000000 in its attention"),
    ("Llama", {"num_attention_heads": FAR, "head_dim": None}, "width 24 does not divide into 1000000000 heads"),
    ("Llama", {"hidden_size": 4 * FAR, "head_dim": None}, "claims"),
    ("Llama", {"max_position_embeddings": 10**400}, "no text is longer"),
    ("Llama", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "one rotation of one axis"),
    ("Llama", {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 1]}}, "not mrope_section"),
    ("Llama", {"rope_parameters": {"rope_type": "linear"}}, "which needs factor"),
    ("Llama", {"rope_parameters": {"rope_type": "proportional"}}, "rope_type is 'proportional'"),
    ("Llama", {"rope_parameters": {"rope_type": "longrope", **DIVISORS, "short_factor": [1.0]}}, "needed are 3"),
    ("Llama", {"hidden_act": "snake"}, "the activation 'snake' is not one of"),
    ("Qwen2", {"layer_types": ["full_attention"]}, "layer_types names 1 layers, but there are 2"),
    ("Qwen3", {"layer_types": ["sliding_attention"] * 2}, "which needs a sliding_window"),
    ("Qwen3", {"layer_types": ["linear_attention"] * 2}, "it must be 'full_attention' or 'sliding_attention'"),
    ("Gemma2", {"use_bidirectional_attention": True}, "looking back"),
    ("Mixtral", {"num_local_experts": FAR}, r"claims 1000000000 experts, but has a router of the shape \[4, 24\]"),
    ("Mixtral", {"num_experts_per_tok": 5}, "5 experts per token are more than there are"),
    ("Qwen3Moe", {"num_experts": FAR, "num_local_experts": FAR}, "claims 1000000000 experts"),
    ("DeepseekV3", {"n_routed_experts": FAR}, "claims 1000000000 experts"),
    ("DeepseekV3", {"n_group": 4}, "groups must be equal"),
    ("DeepseekV3", {"kv_lora_rank": FAR}, "claims a width of"),
    ("DeepseekV3", {"qk_rope_head_dim": FAR}, "claims a width of"),
    ("DeepseekV3", {"num_key_value_heads": 2}, "as many heads of keys as of queries"),
    ("DeepseekV3", {"topk_method": "greedy"}, "topk_method is 'greedy'"),
]


@pytest.mark.parametrize(("name", "change", "words"), LIES, ids=[f"{name} {change}"[:60] for name, change, _ in LIES])
def test_a_config_that_lies_is_found_out_soon(name: str, change: dict[str, Any], words: str, tmp_path: Path) -> None:
    made(name, tmp_path)
    rewrite(tmp_path, change)
    begin = time.process_time()
    with pytest.raises(WeightsError, match=words):
        weights.load(tmp_path)
    assert time.process_time() - begin < 10, "what it claims would take minutes to build"


def test_experts_without_a_router_are_refused(tmp_path: Path) -> None:
    made("Mixtral", tmp_path)
    tensors: dict[str, Tensor] = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith("gate.weight")}
    save_file(kept, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="claims 4 experts, but has no router"):
        weights.load(tmp_path)
