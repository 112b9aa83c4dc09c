"""A checkpoint whose answers are known beforehand, and a server around it.

The tokenizer knows the 256 bytes. The model is a Llama whose layers add nothing, so that the next byte depends on the
last one alone: after any byte that is not named in `CHAIN` comes the first of it, after its last one the first again,
after "!" the end. So greedy answers are "né🎉好 né🎉好 ..." with characters of one to four bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CHAIN = "né🎉好 "
BYTES = 256
BEGIN, END, USER, ASSISTANT, SYSTEM, CALLS, ARGS, PYTHON = range(BYTES, BYTES + 8)
SPECIAL = ("<s>", "</s>", "<user>", "<assistant>", "<system>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")
SIZE = BYTES + 8  # of the vocabulary, and the width: one place per token
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": SIZE,
    "hidden_size": SIZE,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": BEGIN,
    "eos_token_id": END,
    "torch_dtype": "float32",
}
PEAK = 0.5  # a weight of the head: the next byte has a share of 95 %, so that draws differ


def following(index: int) -> int:
    """The token that is most probable after this one."""
    chain = CHAIN.encode()
    if index == ord("!"):
        return END
    return chain[(chain.index(index) + 1) % len(chain)] if index < BYTES and index in chain else chain[0]


def weights() -> dict[str, Any]:
    """The tensors of the checkpoint."""
    one = np.eye(SIZE, dtype=np.float32)
    head = np.zeros((SIZE, SIZE), dtype=np.float32)
    for index in range(SIZE):
        head[following(index), index] = PEAK
    at, half = "model.layers.0.", SIZE // 2
    none = np.zeros
    rng = np.random.default_rng(0)
    return {
        "model.embed_tokens.weight": one,
        "lm_head.weight": head,
        "model.norm.weight": np.ones(SIZE, np.float32),
        at + "input_layernorm.weight": np.ones(SIZE, np.float32),
        at + "post_attention_layernorm.weight": np.ones(SIZE, np.float32),
        at + "self_attn.q_proj.weight": rng.normal(size=(SIZE, SIZE)).astype(np.float32),
        at + "self_attn.k_proj.weight": rng.normal(size=(half, SIZE)).astype(np.float32),
        at + "self_attn.v_proj.weight": rng.normal(size=(half, SIZE)).astype(np.float32),
        at + "self_attn.o_proj.weight": none((SIZE, SIZE), np.float32),
        at + "mlp.gate_proj.weight": none((8, SIZE), np.float32),
        at + "mlp.up_proj.weight": none((8, SIZE), np.float32),
        at + "mlp.down_proj.weight": none((SIZE, 8), np.float32),
    }


def tokenizer() -> Tokenizer:
    """Of bytes, in the alphabet of byte-level BPE."""
    alphabet = {byte: char for char, byte in _alphabet().items()}
    vocabulary = {alphabet[byte]: byte for byte in range(BYTES)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([*SPECIAL])
    return inner


def _alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes are themselves, the others come after 255."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(BYTES) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(BYTES + place): byte for place, byte in enumerate(others)}


def checkpoint(folder: Path, *, chat: bool = True) -> Path:
    """The checkpoint in a new folder."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights(), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer().save(str(folder / "tokenizer.json"))
    told: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told | ({"chat_template": TEMPLATE} if chat else {})))
    return folder


def chained(count: int, last: str = " ") -> str:
    """The first so many bytes of a greedy answer to a prompt that ends so; what is cut is shown as broken."""
    found = bytearray(last.encode()[-1:])
    while len(found) <= count:
        found.append(following(found[-1]))
    return bytes(found[1:]).decode(errors="replace")
