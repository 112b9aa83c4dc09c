"""A checkpoint as a GGUF file, which llama.cpp and heed read: the tables of `gguf_names` backwards.

What was written is read again before the file gets its name: a setting that GGUF has no word for would come back as
another, and is told instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from ...core.atomic import replacing
from ...core.config import Data, nearest
from ...core.errors import ConfigError, MissingExtra, WeightsError
from ...mixers import Attention
from ...models import Decoder
from ...parts.masks import Causal
from ...parts.positions import Linear, Llama3, Rope, Yarn
from ..families import kind_of
from ..families.base import Opened, understood
from ..home.plain import differences, plain
from ..rename import exported
from . import gguf as reader
from .gguf_metadata import FACTORS
from .gguf_names import LAYOUTS

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType, GGUFWriter

Stored: TypeAlias = Literal["f32", "f16", "q8_0"]
STORED: tuple[Stored, ...] = get_args(Stored)
ARCHITECTURES = {  # by model_type; llama.cpp reads Mistral as a Llama
    **{name: name for name in ("llama", "arcee", "qwen2", "qwen3", "gpt2")},
    "mistral": "llama",
}
BLOCK = 32  # weights of q8_0 that share a scale
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7}  # llama.cpp's numbers


def stored_as(name: str) -> Stored:
    """The type of this name."""
    found = next((kind for kind in STORED if kind == name), None)
    if found is None:
        raise ConfigError(f"{name!r} is not a type that heed writes GGUF with{nearest(name, STORED)}")
    return found


def write(opened: Opened, path: Path, tokens: Mapping[str, object], kind: Stored = "f16") -> int:
    """Write the file, all of it or nothing; `tokens`: the metadata of its tokenizer. Gives the number of tensors."""
    try:
        from gguf import GGUFWriter
    except ImportError:
        raise MissingExtra.of("gguf", "weights") from None
    shape, architecture = _must_fit(opened)
    with replacing(path) as fresh:
        writer = GGUFWriter(fresh, architecture)
        _describe(writer, {**_sizes(opened.config, shape), **tokens}, architecture, kind)
        count = 0
        for name, tensor in _named(opened, shape, architecture):
            _add(writer, name, tensor, kind)
            count += 1
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        _must_return(fresh, shape)
    return count


def _must_fit(opened: Opened) -> tuple[Decoder.Config, str]:
    """The shape and the architecture, if GGUF and llama.cpp have one for it."""
    kind, shape = str(opened.config.get("model_type")), opened.shape
    if kind not in ARCHITECTURES or not isinstance(shape, Decoder.Config) or opened.edits:
        edited = " that was edited or quantised" if opened.edits else ""
        raise WeightsError(
            f"heed writes no GGUF of {kind}{edited}; it does of {', '.join(ARCHITECTURES)}. A folder works: give an "
            "OUT without .gguf"
        )
    mixers = [shape.mixer_of(block) for block in range(shape.blocks)]
    if not all(isinstance(mixer, Attention.Config) and isinstance(mixer.mask, Causal) for mixer in mixers):
        raise WeightsError("some layers have a window, which llama.cpp would pass over in GGUF; write a folder instead")
    return shape, ARCHITECTURES[kind]


def _must_return(path: Path, shape: Decoder.Config) -> None:
    """Raise if the file, read again, describes another model."""
    try:
        checkpoint = reader.read(path)
        again = understood(kind_of(checkpoint), checkpoint).shape
    except WeightsError as error:
        raise WeightsError(f"GGUF cannot hold this model: {error}; write a folder instead") from None
    found = differences(plain(shape), plain(again))
    if found:
        told = "; ".join(f"{one.place} {one.ours} would be read as {one.theirs}" for one in found[:4])
        raise WeightsError(
            f"GGUF has no word for a setting of this model: {told}. A folder holds it: OUT without .gguf"
        )


# --- metadata ---


def _sizes(config: Data, shape: Decoder.Config) -> dict[str, object]:
    """What llama.cpp calls the sizes of a model, without the architecture before each."""
    mixer = shape.mixer_of(0)
    assert isinstance(mixer, Attention.Config)
    size = mixer.size(shape.width)
    sizes: dict[str, object] = {
        "vocab_size": shape.tokens,
        "context_length": int(config.get("max_position_embeddings") or config.get("n_positions") or 2048),
        "embedding_length": shape.width,
        "block_count": shape.depth,
        "feed_forward_length": _inner(shape),
        "attention.head_count": mixer.heads,
        "attention.head_count_kv": mixer.kv_heads or mixer.heads,
    }
    eps = shape.norm.dump()["eps"]
    if shape.norm.dump()["kind"] == "layernorm":
        return {**sizes, "attention.layer_norm_epsilon": eps}
    sizes |= {"attention.layer_norm_rms_epsilon": eps, "attention.key_length": size, "attention.value_length": size}
    return {**sizes, **_rotation(mixer, size)}


def _inner(shape: Decoder.Config) -> int:
    hidden = plain(shape)["feedforward"][0].get("hidden")
    assert isinstance(hidden, int)
    return hidden


def _rotation(mixer: Attention.Config, size: int) -> dict[str, object]:
    rope = mixer.position
    if not isinstance(rope, Rope.Config):
        return {}
    told: dict[str, object] = {"rope.freq_base": float(rope.base), "rope.dimension_count": size}
    match rope.scaling:
        case Linear(factor=factor):
            return {**told, "rope.scaling.type": "linear", "rope.scaling.factor": float(factor)}
        case Yarn(factor=factor, original=original):
            stretched = {"rope.scaling.type": "yarn", "rope.scaling.factor": float(factor)}
            return {**told, **stretched, "rope.scaling.original_context_length": original}
    return told


def _describe(writer: GGUFWriter, keys: Mapping[str, object], architecture: str, kind: Stored) -> None:
    writer.add_file_type(FILE_TYPES[kind])
    if kind == "q8_0":
        writer.add_quantization_version(2)
    add: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in keys.items():
        add[type(value)](key if key.startswith("tokenizer.") else f"{architecture}.{key}", value)


# --- tensors ---


def _named(opened: Opened, shape: Decoder.Config, architecture: str) -> Iterator[tuple[str, Tensor]]:
    """Every tensor under its name in GGUF, laid out as llama.cpp has it."""
    names = {theirs: ours for ours, theirs in LAYOUTS[architecture].names.items()}
    mixer = shape.mixer_of(0)
    assert isinstance(mixer, Attention.Config)
    for name, tensor in exported(opened.model, opened.table):
        stem, _, leaf = name.rpartition(".")
        pattern = ".".join("#" if part.isdecimal() else part for part in stem.split("."))
        place = names[pattern]
        laid = _laid_out(tensor.detach().float().cpu(), place, mixer, architecture)
        for number in filter(str.isdecimal, stem.split(".")):
            place = place.replace("#", number, 1)
        yield f"{place}.{leaf}", laid
    if isinstance(mixer.position, Rope.Config) and isinstance(mixer.position.scaling, Llama3):
        yield FACTORS, _factors(mixer.position, mixer.position.scaling, mixer.size(shape.width))


def _laid_out(tensor: Tensor, place: str, mixer: Attention.Config, architecture: str) -> Tensor:
    if architecture == "gpt2":
        return tensor.mT if place.startswith("blk.") and tensor.dim() > 1 else tensor
    if architecture in ("llama", "arcee") and place in ("blk.#.attn_q", "blk.#.attn_k"):
        return _pairs(tensor, mixer.heads if place.endswith("q") else mixer.kv_heads or mixer.heads)
    return tensor


def _pairs(rows: Tensor, heads: int) -> Tensor:
    """Rows c and c + n/2 of a head, which turn together, side by side: what the reader's `halves` undoes."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _factors(rope: Rope.Config, rule: Llama3, size: int) -> Tensor:
    """What each frequency of Llama 3 is divided by. [size / 2]"""
    frequency = rope.base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    slowed = torch.tensor(rule.apply(tuple(frequency.tolist()), rope.base), dtype=torch.float64)
    return (frequency / slowed).float()


def _add(writer: GGUFWriter, name: str, tensor: Tensor, kind: Stored) -> None:
    data = np.ascontiguousarray(tensor.numpy())
    chosen = _kind(name, data, kind)
    from gguf import quantize

    if chosen.name == "F16" and np.abs(data).max(initial=0) > np.finfo(np.float16).max:
        raise WeightsError(f"{name} holds numbers that float16 cannot; write it with --type f32")
    writer.add_tensor(name, quantize(data, chosen), raw_dtype=chosen)


def _kind(name: str, data: np.ndarray[Any, Any], kind: Stored) -> GGMLQuantizationType:
    """Vectors and tables of positions stay float32, as llama.cpp wants them; rows that do not divide are float16."""
    from gguf import GGMLQuantizationType as Types

    if data.ndim < 2 or name == "position_embd.weight" or kind == "f32":
        return Types.F32
    return Types.Q8_0 if kind == "q8_0" and data.shape[-1] % BLOCK == 0 else Types.F16
