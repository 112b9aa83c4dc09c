"""What GGUF calls things, per architecture, and what their Hugging Face family calls them: tables and little else.

llama.cpp renames the tensors that it converts and rearranges some. `names` renames them back and `changes` undoes the
rearranging; `config` says the metadata in the words of a config.json. In a name `#` stands for a number, the same on
both sides, and `*` for the number of a part, where GGUF holds several tensors in one (experts).

Adding an architecture = a `Layout` and its line in `LAYOUTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor

from ...core.config import Data, nearest
from ...core.errors import WeightsError
from . import gguf_metadata as said
from .gguf_metadata import Keys
from .llama2c import halves

Change: TypeAlias = Callable[[Tensor, Keys], Tensor]
Names: TypeAlias = "dict[str, str]"

SPECIAL = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
IGNORED = ("rope_freqs", "blk.#.attn_rot_embd", "dec.blk.0.cross_attn_rel_b")  # read elsewhere, computed, never used


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
    if name == "t5" and "enc.blk.0.ffn_gate.weight" in keys.shapes:
        return T5_GATED
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
        if claimed > len(keys.shapes) or (held and len(held) != claimed):
            raise WeightsError(f"{keys.place} claims {claimed} blocks, but holds tensors of {len(held)} ({stem}.*)")


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
    query, key, value = torch.split(tensor, [heads * size, groups * size, groups * size])
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
GPT2 = _table(
    {
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    "transformer.h",
    {
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
)
FUSED = {  # Falcon and BLOOM
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
FUSED_ENDS = {"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "output": "lm_head"}
BLOOM_ENDS = {"token_embd_norm": "transformer.word_embeddings_layernorm"}
TWO_NORMS = {"blk.#.attn_norm": "transformer.h.#.ln_mlp", "blk.#.attn_norm_2": "transformer.h.#.ln_attn"}
NEOX = _table(
    {"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out"},
    "gpt_neox.layers",
    {name: theirs.replace("self_attention", "attention") for name, theirs in FUSED.items()},
)
MPT = _table(
    {"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"},
    "transformer.blocks",
    {
        "attn_norm": "norm_1",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.out_proj",
        "ffn_norm": "norm_2",
        "ffn_up": "ffn.up_proj",
        "ffn_down": "ffn.down_proj",
    },
)
BERT = _table(
    {
        "token_embd": "embeddings.word_embeddings",
        "position_embd": "embeddings.position_embeddings",
        "token_types": "embeddings.token_type_embeddings",
        "token_embd_norm": "embeddings.LayerNorm",
    },
    "encoder.layer",
    {
        "attn_q": "attention.self.query",
        "attn_k": "attention.self.key",
        "attn_v": "attention.self.value",
        "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm",
        "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense",
        "layer_output_norm": "output.LayerNorm",
    },
)


def _t5(side: str, feedforward: Names) -> Names:
    """The encoder or the decoder of a T5; the feed-forward is the last sublayer of a block."""
    short, last = side[:3], {"encoder": 1, "decoder": 2}[side]
    cross = {f"cross_attn_{part}": f"layer.1.EncDecAttention.{part}" for part in "qkvo"}
    return _table(
        {
            f"{short}.output_norm": f"{side}.final_layer_norm",
            f"{short}.blk.0.attn_rel_b": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        },
        f"{side}.block",
        {f"attn_{part}": f"layer.0.SelfAttention.{part}" for part in "qkvo"}
        | {"attn_norm": "layer.0.layer_norm", "ffn_norm": f"layer.{last}.layer_norm"}
        | (cross | {"cross_attn_norm": "layer.1.layer_norm"} if side == "decoder" else {})
        | {theirs: f"layer.{last}.DenseReluDense.{ours}" for theirs, ours in feedforward.items()},
        f"{short}.blk",
    )


def _both(feedforward: Names) -> Names:
    ends = {"token_embd": "shared", "output": "lm_head"}
    return ends | _t5("encoder", feedforward) | _t5("decoder", feedforward)


LLAMA = Layout(
    kind="llama",
    model="LlamaForCausalLM",
    names=_table(ENDS, "model.layers", ATTENTION | GATED | NORMS),
    config=said.llama,
    changes={"blk.#.attn_q": _query, "blk.#.attn_k": _key},
)
ARCEE = replace(
    LLAMA,
    kind="arcee",
    model="ArceeForCausalLM",
    names=_table(
        ENDS, "model.layers", ATTENTION | {f"ffn_{part}": f"mlp.{part}_proj" for part in ("up", "down")} | NORMS
    ),
    config=said.arcee,
)
MIXTRAL = replace(
    LLAMA,
    kind="mixtral",
    model="MixtralForCausalLM",
    names=_table(ENDS, "model.layers", ATTENTION | EXPERTS | NORMS),
    config=said.mixtral,
)
FALCON = Layout(
    kind="falcon",
    model="FalconForCausalLM",
    names=_table(FUSED_ENDS, "transformer.h", FUSED),
    config=said.falcon,
    changes={"blk.#.attn_qkv": _by_group},
    tied=True,
)
FALCON_TWO_NORMS = replace(FALCON, names=FALCON.names | TWO_NORMS)
T5 = Layout(
    kind="t5",
    model="T5ForConditionalGeneration",
    names=_both({"ffn_up": "wi", "ffn_down": "wo"}),
    config=said.t5,
)
T5_GATED = replace(T5, names=_both({"ffn_gate": "wi_0", "ffn_up": "wi_1", "ffn_down": "wo"}))
LAYOUTS: dict[str, Layout] = {
    "llama": LLAMA,
    "arcee": ARCEE,
    "qwen2": Layout(
        kind="qwen2",
        model="Qwen2ForCausalLM",
        names=_table(ENDS, "model.layers", ATTENTION | GATED | NORMS),
        config=said.decoder,
    ),
    "qwen3": Layout(
        kind="qwen3",
        model="Qwen3ForCausalLM",
        names=_table(ENDS, "model.layers", ATTENTION | GATED | NORMS | NORMED),
        config=said.decoder,
    ),
    "gemma2": Layout(
        kind="gemma2",
        model="Gemma2ForCausalLM",
        names=_table(ENDS, "model.layers", ATTENTION | GATED | GEMMA_NORMS),
        config=said.gemma2,
        changes={"output_norm": _less_one} | {f"blk.#.{norm}": _less_one for norm in GEMMA_NORMS},
        tied=True,
    ),
    "gpt2": Layout(
        kind="gpt2",
        model="GPT2LMHeadModel",
        names=GPT2,
        config=said.gpt2,
        changes={f"blk.#.{name}": _turned for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")},
        tied=True,
    ),
    "starcoder": Layout(
        kind="gpt_bigcode", model="GPTBigCodeForCausalLM", names=GPT2, config=said.starcoder, tied=True
    ),
    "gptneox": Layout(
        kind="gpt_neox",
        model="GPTNeoXForCausalLM",
        names=NEOX,
        config=said.gptneox,
        changes={"blk.#.attn_qkv": _by_head},
    ),
    "falcon": FALCON,
    "bloom": Layout(
        kind="bloom",
        model="BloomForCausalLM",
        names=_table(FUSED_ENDS | BLOOM_ENDS, "transformer.h", FUSED),
        config=said.bloom,
        changes={"blk.#.attn_qkv": _by_head},
        tied=True,
    ),
    "mpt": Layout(kind="mpt", model="MptForCausalLM", names=MPT, config=said.mpt, tied=True),
    "bert": Layout(kind="bert", model="BertModel", names=BERT, config=said.bert),
    "t5": T5,
}
