"""The decoders that came after GPT-2: folders as golden ones, files as the world has them, and files that lie."""

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
from heed.core.errors import WeightsError
from heed.weights import replay
from heed.weights.rules import Grouped
from tests.weights.live import close, ids
from tests.weights.support import GOLDEN

SINGLE = 3e-6  # float32 beside float32: some ten roundings of a few layers, as a share of the largest magnitude
SMALL = {"vocab_size": 41}
GPT2 = SMALL | {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 32}
HIDDEN = SMALL | {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32}
FALCON = HIDDEN | {"hidden_size": 24, "num_attention_heads": 6}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2 | {"scale_attn_by_inverse_layer_idx": True}),
    "gptj": ("GPTJForCausalLM", GPT2 | {"rotary_dim": 2}),
    "neox": ("GPTNeoXForCausalLM", HIDDEN | {"intermediate_size": 30, "use_parallel_residual": False}),
    "neox_odd": (
        "GPTNeoXForCausalLM",
        HIDDEN | {"intermediate_size": 30, "rope_scaling": {"type": "linear", "factor": 3.0}},
    ),
    "opt": ("OPTForCausalLM", HIDDEN | {"ffn_dim": 30, "enable_bias": False}),
    "opt_post": ("OPTForCausalLM", HIDDEN | {"ffn_dim": 30, "do_layer_norm_before": False}),
    "bigcode": ("GPTBigCodeForCausalLM", GPT2),
    "bigcode_heads": ("GPTBigCodeForCausalLM", GPT2 | {"multi_query": False}),
    "neo": (
        "GPTNeoForCausalLM",
        SMALL
        | {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "max_position_embeddings": 32, "window_size": 3}
        | {"attention_types": [[["local"], 2], [["global"], 1]]},
    ),
    "bloom": ("BloomForCausalLM", SMALL | {"hidden_size": 18, "n_layer": 2, "n_head": 3}),
    "bloom_normed": (
        "BloomForCausalLM",
        SMALL | {"hidden_size": 18, "n_layer": 2, "n_head": 6, "apply_residual_connection_post_layernorm": True},
    ),
    "mpt": ("MptForCausalLM", SMALL | {"d_model": 18, "n_layers": 2, "n_heads": 3, "max_seq_len": 32}),
    "falcon_7b": ("FalconForCausalLM", FALCON),
    "falcon_40b": ("FalconForCausalLM", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon_rw": (
        "FalconForCausalLM",
        FALCON | {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
    ),
}


def made(name: str, folder: Path) -> Any:
    """A random model of the reference library, saved."""
    kind, fields = CASES[name]
    torch.manual_seed(7)
    maker = getattr(reference, kind)
    model = maker(maker.config_class(**json.loads(json.dumps(fields)), initializer_range=0.3)).eval()
    model.save_pretrained(folder)
    return model


def hidden(name: str, gap: Tensor, mask: Tensor) -> Tensor:
    """The part of an output that is about tokens."""
    return (gap.transpose(1, 2) if "attentions" in name else gap)[mask.bool()]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_folders_like_the_golden_ones(name: str, tmp_path: Path) -> None:
    """One row whole, one padded on the left, one on the right: logits, hidden states, weights."""
    looks = "sdpa" if name == "falcon_rw" else "eager"  # its eager form adds ALiBi twice
    model = type(made(name, tmp_path)).from_pretrained(tmp_path, attn_implementation=looks).eval()
    tokens, mask = ids(3, 13, 41), torch.ones(3, 13, dtype=torch.long)
    mask[1, :5] = mask[2, 9:] = 0
    save_file({"input_ids": tokens, "attention_mask": mask}, tmp_path / "inputs.safetensors")
    given = model(tokens, attention_mask=mask, output_hidden_states=True, output_attentions=looks == "eager")
    wanted = {"logits": given.logits} | {f"hidden_states.{i}": x.clone() for i, x in enumerate(given.hidden_states)}
    if looks == "eager":
        wanted |= {f"attentions.{i}": x.contiguous() for i, x in enumerate(given.attentions)}
    save_file(wanted, tmp_path / "outputs.safetensors")
    for key, tensor in replay(tmp_path).items():
        close(hidden(key, tensor, mask), hidden(key, wanted[key], mask), SINGLE)


def rewritten(folder: Path, config: dict[str, Any], rename: dict[str, str], extra: dict[str, Tensor]) -> None:
    """The same checkpoint in the words of other files: names begin otherwise, more tensors, other keys."""
    old = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": old["model_type"]} | config))
    tensors = load_file(folder / "model.safetensors")
    for before, after in rename.items():
        tensors = {
            after + name.removeprefix(before) if name.startswith(before) else name: t for name, t in tensors.items()
        }
    save_file(tensors | extra, folder / "model.safetensors")


MASK = torch.ones(1, 1, 32, 32, dtype=torch.bool)
OLD: dict[str, tuple[str, dict[str, Any], dict[str, str], dict[str, Tensor]]] = {
    "gpt2 without its head, with masks": (
        "gpt2",
        SMALL
        | {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 32}
        | {"scale_attn_by_inverse_layer_idx": True, "n_inner": None},
        {"transformer.": ""},
        {"h.0.attn.bias": MASK, "h.0.attn.masked_bias": torch.tensor(-1e4)},
    ),
    "pythia": (
        "neox",
        HIDDEN
        | {"intermediate_size": 30, "use_parallel_residual": False, "rotary_pct": 0.25, "rotary_emb_base": 10000}
        | {"rope_scaling": None},
        {},
        {
            "gpt_neox.layers.1.attention.bias": MASK,
            "gpt_neox.layers.1.attention.masked_bias": torch.tensor(-1e9),
            "gpt_neox.layers.1.attention.rotary_emb.inv_freq": torch.ones(1),
        },
    ),
    "neox under its new name": (
        "neox",
        HIDDEN | {"intermediate_size": 30, "use_parallel_residual": False},
        {"embed_out.": "lm_head."},
        {},
    ),
    "bloom without its head": (
        "bloom",
        SMALL | {"n_embed": 18, "num_hidden_layers": 2, "num_attention_heads": 3, "n_inner": None, "pretraining_tp": 4},
        {"transformer.": ""},
        {},
    ),
    "opt without its head": ("opt", HIDDEN | {"ffn_dim": 30, "enable_bias": False}, {"model.": ""}, {}),
    "falcon of old": (
        "falcon_7b",
        SMALL
        | {"n_embed": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "rope_theta": 10000, "rope_scaling": None}
        | {"alibi": None, "bias": None},
        {},
        {},
    ),
    "mpt with ints": (
        "mpt",
        SMALL
        | {"d_model": 18, "n_layers": 2, "n_heads": 3, "logit_scale": None}
        | {"attn_config": {"clip_qkv": 1000, "alibi": True, "attn_impl": "triton", "prefix_lm": False}},
        {},
        {},
    ),
    "neo by layers": (
        "neo",
        SMALL
        | {"hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 3, "max_position_embeddings": 32}
        | {"window_size": 3, "attention_layers": ["local", "local", "global"]},
        {},
        {"transformer.h.0.attn.attention.bias": MASK, "transformer.h.0.attn.attention.masked_bias": torch.tensor(-1e9)},
    ),
}


@pytest.mark.parametrize("title", OLD)
@torch.no_grad()
def test_files_as_the_world_has_them(title: str, tmp_path: Path) -> None:
    name, config, rename, extra = OLD[title]
    model, tokens = made(name, tmp_path), ids(2, 9, 41)
    rewritten(tmp_path, config, rename, extra)
    close(weights.load(tmp_path).model(tokens, Where.run(2, 9))[0], model(tokens).logits, SINGLE)


@pytest.mark.parametrize(("groups", "shares"), [(4, (1, 1, 1)), (1, (4, 1, 1)), (2, (3, 1, 1)), (3, (2, 2, 1))])
@pytest.mark.parametrize("behind", [(), (5,)], ids=["bias", "weight"])
def test_grouped_heads_come_apart_and_together(groups: int, shares: tuple[int, ...], behind: tuple[int, ...]) -> None:
    size, rule = 2, Grouped("theirs", ("query", "key", "value"), groups, shares)
    rows = torch.randn(groups * sum(shares) * size, *behind)
    wanted: list[list[Tensor]] = [[], [], []]
    left = iter(rows)
    for _ in range(groups):
        for part, share in zip(wanted, shares, strict=True):
            part.extend(next(left) for _ in range(share * size))
    parts = rule.split(rows)
    assert all(torch.equal(part, torch.stack(own)) for part, own in zip(parts, wanted, strict=True))
    assert torch.equal(rule.join(parts), rows)


HUGE = 10**9
LIES: list[tuple[str, dict[str, Any], str]] = [
    *((f"{family}/lm", {"n_head": heads}, "does not divide") for family in ("gpt2", "gptj") for heads in (5, HUGE)),
    *((f"{family}/lm", {"n_layer": HUGE}, "layers") for family in ("gpt2", "gptj", "bloom")),
    *((f"{family}/lm", {"n_embd": HUGE}, "width|divide") for family in ("gpt2", "gptj")),
    ("gpt2/lm", {"n_inner": 10**15}, "shape|built"),
    ("gpt2/lm", {"vocab_size": 10**18}, "shape|built"),
    ("gpt2/lm", {"add_cross_attention": True}, "together with its encoder"),
    ("gptj/lm", {"rotary_dim": HUGE}, "only 8 channels"),
    ("gptj/lm", {"rotary_dim": 3}, "two by two"),
    ("gpt_neox/lm", {"num_attention_heads": HUGE}, "does not divide"),
    ("gpt_neox/lm", {"rope_parameters": {"rope_theta": 1e300, "partial_rotary_factor": 0.4}}, "too large"),
    ("gpt_neox/lm", {"num_attention_heads": 32, "rope_parameters": {"partial_rotary_factor": 1.0}}, "even size"),
    ("opt/lm", {"word_embed_proj_dim": HUGE}, "shape|missing|built"),
    ("opt/lm", {"max_position_embeddings": 2**63}, "shape|built"),
    ("gpt_bigcode/lm_mqa", {"n_head": 3}, "does not divide"),
    ("gpt_bigcode/lm_mqa", {"multi_query": False}, "shape"),
    (
        "gpt_neo/lm",
        {"attention_types": [[["global", "local"], HUGE]], "attention_layers": None},
        f"speaks of {2 * HUGE}",
    ),
    ("gpt_neo/lm", {"attention_layers": ["global"]}, "speaks of 1"),
    ("gpt_neo/lm", {"attention_layers": ["global", "lokal"]}, "lokal"),
    ("bloom/lm", {"n_head": HUGE}, "does not divide"),
    ("bloom/lm", {"slow_but_exact": True, "pretraining_tp": 2}, "slow_but_exact"),
    ("mpt/lm", {"n_heads": HUGE}, "does not divide"),
    ("mpt/lm", {"attn_config": {"prefix_lm": True}}, "prefix_lm"),
    ("mpt/lm", {"attn_config": {"alibi": False}, "learned_pos_emb": False}, "no position code"),
    ("mpt/lm", {"attn_config": {"clip_qkv": -1.0}}, "clip"),
    ("mpt/lm", {"norm_type": "rmsnorm"}, "rmsnorm"),
    ("mpt/lm", {"logit_scale": "inv_sqrt_d_model"}, "logit_scale"),
    ("falcon/generate", {"num_attention_heads": HUGE}, "does not divide"),
    ("falcon/generate", {"new_decoder_architecture": True, "num_kv_heads": 3}, "evenly"),
    ("falcon/generate", {"new_decoder_architecture": True, "parallel_attn": False}, "side by side"),
    ("falcon/generate", {"num_ln_in_parallel_attn": 2}, "have 1 norms"),
]


@pytest.mark.parametrize(("case", "changed", "says"), LIES, ids=repr)
def test_configs_that_lie_or_ask_too_much_are_refused_at_once(
    case: str, changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    config = json.loads((GOLDEN / case / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changed))
    (tmp_path / "model.safetensors").symlink_to(GOLDEN / case / "model.safetensors")
    begun = time.process_time()
    with pytest.raises(WeightsError, match=says):
        weights.load(tmp_path)
    assert time.process_time() - begun < 10, "what it claims would take minutes to build"
