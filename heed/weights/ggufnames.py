"""What GGUF calls things, per architecture, and what their Hugging Face family calls them: tables and little else.

llama.cpp renames the tensors that it converts and rearranges some. `names` renames them back and `changes` undoes the
rearranging; `config` says the metadata in the words of a config.json. In a name `#` stands for a number, the same on
both sides, and `*` for the number of a part, where GGUF holds several tensors in one (experts).

Adding an architecture = a `Layout` and its line in `LAYOUTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from ..core.config import Data, nearest
from ..core.errors import WeightsError
from .ggufkeys import Keys
from .llama2c import halves

Change: TypeAlias = Callable[[Tensor, Keys], Tensor]
Names: TypeAlias = "dict[str, str]"

SPECIAL = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
IGNORED = ("rope_freqs", "blk.#.attn_rot_embd", "dec.blk.0.cross_attn_rel_b")  # read elsewhere, computed, never used
GEMMA2_27B = 46  # layers; the only Gemma 2 that scales its scores by the width of a head's share of the stream


@dataclass(frozen=True)
class Layout:
    """How one architecture is laid out."""

    kind: str  # model_type of the Hugging Face family
    model: str  # its class there
    names: Names  # of tensors, without .weight and .bias
    config: Callable[[Keys], Data]
    changes: Mapping[str, Change] = field(default_factory=dict)  # by GGUF's name
    tied: bool = False  # its authors tie the output to the embedding; old converters wrote that table twice


def layout(keys: Keys) -> Layout:
    """The layout of a file, by its architecture and by what sets the variants of one apart."""
    name = keys.architecture
    if name not in LAYOUTS:
        raise WeightsError(
            f"{keys.place} holds a model of the architecture {name!r}, which heed does not read from GGUF"
            f"{nearest(name, LAYOUTS)}"
        )
    if name == "llama" and keys.get("expert_count", 0) != 0:
        return MIXTRAL
    if name == "falcon" and "blk.0.attn_norm_2.weight" in keys.shapes:
        return FALCON_TWO_NORMS
    return LAYOUTS[name]


def described(keys: Keys, tied: bool) -> Data:
    """The config.json that the model would have in a Hugging Face folder."""
    _same_depth(keys)
    chosen = layout(keys)
    vocabulary = keys.rows("token_embd.weight")
    stated: Data = {
        "model_type": chosen.kind,
        "architectures": [chosen.model],
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
    }
    for name, theirs in SPECIAL.items():
        token = keys.metadata.get(f"tokenizer.ggml.{theirs}_token_id")
        if isinstance(token, int) and 0 <= token < vocabulary:  # some files write 2**32 - 1 for none
            stated[name] = token
    return stated | chosen.config(keys)


def _same_depth(keys: Keys) -> None:
    """Raise unless the blocks that are claimed are there: to build them costs time."""
    for stem, key in {"blk": "block_count", "enc.blk": "block_count", "dec.blk": "decoder_block_count"}.items():
        held = {name.removeprefix(f"{stem}.").split(".")[0] for name in keys.shapes if name.startswith(f"{stem}.")}
        claimed = keys.size(key, keys.depth)
        if held and len(held) != claimed:
            raise WeightsError(f"{keys.place} claims {claimed} blocks, but holds tensors of {len(held)} ({stem}.*)")


# --- the metadata in the words of a config.json ---


def _decoder(keys: Keys) -> Data:
    """What Llama and its kin share."""
    size = keys.head_size
    if keys.size("rope.dimension_count", size) != size:
        raise keys.wrong("rope.dimension_count", f"{size}, the size of a head")
    return {
        "hidden_size": keys.width,
        "intermediate_size": keys.size("feed_forward_length"),
        "num_hidden_layers": keys.depth,
        "num_attention_heads": keys.heads,
        "num_key_value_heads": keys.groups,
        "head_dim": size,
        "max_position_embeddings": keys.length,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_parameters": keys.rope(size),
        "attention_bias": "blk.0.attn_q.bias" in keys.shapes,
        "hidden_act": "silu",
    }


def _llama(keys: Keys) -> Data:
    config = _decoder(keys) | {"mlp_bias": "blk.0.ffn_up.bias" in keys.shapes}
    if not keys.get("attention.sliding_window", 0):
        return config
    return config | {  # a Llama with a window is a Mistral
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": keys.size("attention.sliding_window"),
    }


def _mixtral(keys: Keys) -> Data:
    used = keys.size("expert_used_count")
    return _decoder(keys) | {"num_local_experts": keys.size("expert_count"), "num_experts_per_tok": used}


def _gemma2(keys: Keys) -> Data:
    scaled_by = keys.width // keys.heads if keys.depth == GEMMA2_27B else keys.head_size  # as llama.cpp has it
    return _decoder(keys) | {
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_act": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scaled_by,
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0),
        "sliding_window": keys.size("attention.sliding_window", 4096),
        "layer_types": [("sliding_attention", "full_attention")[layer % 2] for layer in range(keys.depth)],
    }


def _gpt2(keys: Keys) -> Data:
    return {
        "n_embd": keys.width,
        "n_layer": keys.depth,
        "n_head": keys.heads,
        "n_inner": keys.inner,
        "n_positions": keys.length,
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


def _starcoder(keys: Keys) -> Data:
    several = keys.rows("blk.0.attn_qkv.weight") == 3 * keys.width
    return _gpt2(keys) | {"multi_query": not several, "activation_function": "gelu_pytorch_tanh"}


def _gptneox(keys: Keys) -> Data:
    size = keys.head_size
    turned = keys.size("rope.dimension_count", size)
    parallel = keys.get("use_parallel_residual")
    if not isinstance(parallel, bool):
        raise keys.wrong("use_parallel_residual", "true or false")
    return {
        "hidden_size": keys.width,
        "intermediate_size": keys.size("feed_forward_length"),
        "num_hidden_layers": keys.depth,
        "num_attention_heads": keys.heads,
        "max_position_embeddings": keys.length,
        "layer_norm_eps": keys.number("attention.layer_norm_epsilon"),
        "rope_parameters": keys.rope(turned) | {"partial_rotary_factor": turned / size},
        "use_parallel_residual": parallel,
        "attention_bias": "blk.0.attn_qkv.bias" in keys.shapes,
        "hidden_act": "gelu",
    }


def _falcon(keys: Keys) -> Data:
    two = "blk.0.attn_norm_2.weight" in keys.shapes
    grouped = keys.groups > 1
    return {
        "hidden_size": keys.width,
        "ffn_hidden_size": keys.inner,
        "num_hidden_layers": keys.depth,
        "num_attention_heads": keys.heads,
        "num_kv_heads": keys.groups,
        "multi_query": not grouped,
        "new_decoder_architecture": two or grouped,
        "num_ln_in_parallel_attn": 2 if two else 1,
        "parallel_attn": True,
        "bias": False,
        "alibi": False,
        "max_position_embeddings": keys.length,
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "rope_parameters": keys.rope(keys.head_size),
        "activation": "gelu",
    }


def _bloom(keys: Keys) -> Data:
    return {
        "hidden_size": keys.width,
        "n_layer": keys.depth,
        "n_head": keys.heads,
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
    }


def _mpt(keys: Keys) -> Data:
    if keys.groups != keys.heads:
        raise keys.wrong("attention.head_count_kv", f"{keys.heads}, as many as heads: its family has no other")
    clipped, bias = (keys.get(f"attention.{name}", 0) for name in ("clamp_kqv", "max_alibi_bias"))
    return {
        "d_model": keys.width,
        "n_layers": keys.depth,
        "n_heads": keys.heads,
        "expansion_ratio": keys.inner // keys.width,
        "max_seq_len": keys.length,
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "no_bias": not any(name.endswith(".bias") for name in keys.shapes),
        "attn_config": {
            "alibi": bool(bias),
            "alibi_bias_max": keys.number("attention.max_alibi_bias") if bias else 8,
            "clip_qkv": keys.number("attention.clamp_kqv") if clipped else None,
        },
    }


def _bert(keys: Keys) -> Data:
    return {
        "hidden_size": keys.width,
        "intermediate_size": keys.inner,
        "num_hidden_layers": keys.depth,
        "num_attention_heads": keys.heads,
        "max_position_embeddings": keys.rows("position_embd.weight"),
        "type_vocab_size": keys.rows("token_types.weight"),
        "layer_norm_eps": keys.number("attention.layer_norm_epsilon"),
        "hidden_act": "gelu",
    }


def _t5(keys: Keys) -> Data:
    gated = "enc.blk.0.ffn_gate.weight" in keys.shapes
    start = keys.get("decoder_start_token_id", 0)
    return {
        "is_encoder_decoder": True,
        "d_model": keys.width,
        "d_kv": keys.head_size,
        "d_ff": keys.size("feed_forward_length"),
        "num_layers": keys.depth,
        "num_decoder_layers": keys.size("decoder_block_count", keys.depth),
        "num_heads": keys.heads,
        "relative_attention_num_buckets": keys.size("attention.relative_buckets_count"),
        "relative_attention_max_distance": 128,  # not in the file; llama.cpp has it fixed
        "layer_norm_epsilon": keys.number("attention.layer_norm_rms_epsilon"),
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "scale_decoder_outputs": "output.weight" not in keys.shapes,
        **({"decoder_start_token_id": start} if isinstance(start, int) and start >= 0 else {}),
    }


# --- what llama.cpp rearranges, undone ---


def _query(tensor: Tensor, keys: Keys) -> Tensor:
    return halves(tensor, keys.heads)


def _key(tensor: Tensor, keys: Keys) -> Tensor:
    return halves(tensor, keys.groups)


def _turned(tensor: Tensor, keys: Keys) -> Tensor:
    """[out, in] as GPT-2 stores it: [in, out]."""
    return tensor.mT if tensor.dim() > 1 else tensor


def _by_head(tensor: Tensor, keys: Keys) -> Tensor:
    """Queries, keys and values below one another, to a query, a key and a value for each head in turn."""
    return tensor.reshape(3, keys.heads, -1, *tensor.shape[1:]).transpose(0, 1).reshape(tensor.shape)


def _by_group(tensor: Tensor, keys: Keys) -> Tensor:
    """The same where several heads share a key and a value: the heads' queries, their key, their value."""
    heads, groups = keys.heads, keys.groups
    size = tensor.shape[0] // (heads + 2 * groups)
    query, key, value = tensor.split([heads * size, groups * size, groups * size])
    parts = [part.reshape(groups, -1, size, *tensor.shape[1:]) for part in (query, key, value)]
    return torch.cat(parts, 1).reshape(tensor.shape)


def _less_one(tensor: Tensor, keys: Keys) -> Tensor:
    """Gemma's gains are stored as what is added to 1."""
    return tensor - 1


# --- names ---


def _table(outer: Names, block: str, inner: Names, blk: str = "blk") -> Names:
    return outer | {f"{blk}.#.{theirs}": f"{block}.#.{ours}" for theirs, ours in inner.items()}


ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ATTENTION = {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"} | {"attn_output": "self_attn.o_proj"}
GATED = {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
NORMED = {f"attn_{part}_norm": f"self_attn.{part}_norm" for part in "qk"}
GEMMA_NORMS = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
EXPERTS = {"ffn_gate_inp": "block_sparse_moe.gate"} | {
    f"ffn_{theirs}{stacked}": f"block_sparse_moe.experts.{number}.{ours}"
    for theirs, ours in {"gate": "w1", "down": "w2", "up": "w3"}.items()
    for stacked, number in {"_exps": "*", ".#": "#"}.items()  # old files hold one tensor for each expert
}
GPT2_ENDS = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f"}
GPT2_BLOCK = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
FUSED = {  # GPT-NeoX, Falcon and BLOOM
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
