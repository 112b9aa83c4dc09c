"""A checkpoint in the Hugging Face layout, made on the spot, loaded and asked to write.

Its weights are counted, not trained: the embeddings are one-hot, the blocks add nothing, and the head holds the
logarithms of how often each character follows each other one. That is a bigram model in the shape of a Llama.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

import heed
from heed.text import Char

TEXT = "she sells sea shells by the sea shore. the shells she sells are sea shells, i am sure. " * 3

folder = Path(tempfile.mkdtemp())
tokenizer = Char().train([TEXT])
tokenizer.save_all(folder)

size = tokenizer.size + tokenizer.size % 2  # rotations take channels two by two
counts = torch.full((size, size), 1e-4)
for before, after in zip(tokenizer.encode(TEXT), tokenizer.encode(TEXT)[1:], strict=False):
    counts[after, before] += 1
zeros, ones = torch.zeros(size, size), torch.ones(size)
block = "model.layers.0."
tensors = {
    "model.embed_tokens.weight": torch.eye(size),
    **{f"{block}self_attn.{part}_proj.weight": zeros.clone() for part in "qkvo"},
    **{f"{block}mlp.{part}_proj.weight": zeros.clone() for part in ("gate", "up", "down")},
    **{f"{block}{norm}_layernorm.weight": ones.clone() for norm in ("input", "post_attention")},
    "model.norm.weight": ones.clone(),  # which makes √size of a one
    "lm_head.weight": (counts / counts.sum(0)).log() / size**0.5,
}
save_file(tensors, folder / "model.safetensors")
config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": size, "hidden_size": size}
config |= {"intermediate_size": size, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
config |= {"max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
(folder / "config.json").write_text(json.dumps(config))

model = heed.load(folder)
print(sorted(path.name for path in folder.iterdir()))
for seed in range(3):
    print("she" + model.generate("she", max_new_tokens=50, temperature=0.7, seed=seed))
