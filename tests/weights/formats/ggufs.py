"""What the tests of GGUF share: files made on the spot by the gguf package, and the keys that a tiny model needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf

LLAMA_KEYS: dict[str, Any] = {
    "context_length": 64,
    "embedding_length": 48,
    "feed_forward_length": 64,
    "attention.head_count": 6,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 10000.0,
}
PLAIN_KEYS: dict[str, Any] = {
    "context_length": 64,
    "embedding_length": 48,
    "feed_forward_length": 192,
    "attention.head_count": 6,
    "attention.layer_norm_epsilon": 1e-5,
}


def write(path: Path, architecture: str, keys: dict[str, Any], tensors: dict[str, Any]) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        full = key if key.startswith(("tokenizer.", "general.", "split.")) else f"{architecture}.{key}"
        kinds: dict[type, Callable[[str, Any], None]] = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
            list: writer.add_array,
        }
        kinds[type(value)](full, value)
    for name, tensor in tensors.items():
        kind, data = tensor if isinstance(tensor, tuple) else (None, tensor.contiguous().numpy())
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny(path: Path, tensors: dict[str, Any], keys: dict[str, Any] | None = None) -> Path:
    """A Llama that consists of these tensors."""
    return write(path, "llama", {"block_count": 1} | LLAMA_KEYS | (keys or {}), tensors)
