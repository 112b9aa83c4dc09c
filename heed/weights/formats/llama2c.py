"""Checkpoints of llama2.c (.bin), presented as Hugging Face checkpoints of Llama.

A header of seven whole numbers (`Header`) comes first; in version 1 a magic number stands before it and the weights
start at byte 256. They are float32, the tensors of one kind together for all layers. llama2.c turns neighbouring
channels (2c, 2c+1) by one angle, Hugging Face's Llama channels c and c + half: the rows of queries and keys are put
into that order.
"""

from __future__ import annotations

import struct
from collections.abc import KeysView
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from ...core.config import Data
from ...core.errors import WeightsError
from .checkpoint import Checkpoint
from .safetensors import Tensors

MAGIC = 0x616B3432  # "ak42"
SIZES = struct.Struct("<7i")
WEIGHTS_AT = 256  # in version 1
MOST = 2**24  # no number of a header comes near


def halves(tensor: Tensor, heads: int) -> Tensor:
    """Rows of neighbouring channels (2c, 2c+1) of each head, to rows of channels c and c + half."""
    return tensor.reshape(heads, -1, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)


@dataclass(frozen=True)
class Header:
    """The sizes of a model."""

    width: int
    inner: int
    layers: int
    heads: int
    groups: int  # heads of keys and values
    vocabulary: int
    length: int
    tied: bool  # the output is the embedding

    @property
    def size(self) -> int:
        """Of a head."""
        return self.width // self.heads

    @property
    def problem(self) -> str:
        """What cannot be, or nothing."""
        sizes = self.width, self.inner, self.layers, self.heads, self.groups, self.vocabulary, self.length
        if not all(0 < size < MOST for size in sizes):
            return f"the numbers of its header, {sizes}, are not those of a model"
        if self.width % (2 * self.heads):
            return f"its width {self.width} does not divide into {self.heads} heads of even size"
        if self.heads % self.groups:
            return f"its {self.heads} heads cannot share {self.groups} heads of keys and values evenly"
        return ""


@dataclass(frozen=True)
class Kind:
    """Tensors of one shape that lie behind one another: one, or one for each layer."""

    name: str  # with a place for the layer
    shape: tuple[int, ...]
    heads: int = 0  # of rows to be put into another order


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in the file."""

    offset: int
    kind: Kind


class Floats(Tensors):
    """The tensors of a file, each read when it is asked for."""

    def __init__(self, path: Path, places: dict[str, Place]) -> None:
        self._path, self._places = path, places

    def __getitem__(self, name: str) -> Tensor:
        place = self._places[name]
        tensor = torch.empty(place.kind.shape, dtype=torch.float32)
        try:
            with self._path.open("rb") as file:
                file.seek(place.offset)
                count = file.readinto(tensor.numpy().data)
        except OSError as error:
            raise WeightsError(f"{self._path} cannot be read: {error.strerror}") from None
        if count != tensor.nbytes:
            raise WeightsError(f"{self._path} was cut off while it was read; copy it again")
        return halves(tensor, place.kind.heads) if place.kind.heads else tensor

    @property
    def names(self) -> KeysView[str]:
        return self._places.keys()

    def like(self, name: str) -> Tensor:
        return torch.empty(self._places[name].kind.shape, dtype=torch.float32, device="meta")


def read(path: Path | str) -> Checkpoint:
    """The Llama in a .bin file of llama2.c: of the first format, which has no version, or of version 1."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            start = file.read(WEIGHTS_AT)
        held = place.stat().st_size
    except OSError as error:
        raise WeightsError(f"{place} cannot be read: {error.strerror}; give a .bin file of llama2.c") from None
    if len(start) < WEIGHTS_AT:
        raise WeightsError(f"{place} has {held} bytes, too few for a .bin file of llama2.c")
    versioned = struct.unpack_from("<I", start)[0] == MAGIC
    header = _versioned(place, start) if versioned else _first(start)
    if header.problem:
        raise WeightsError(f"{place} is not a .bin file of llama2.c: {header.problem}")
    offset, kinds = (WEIGHTS_AT, _order_1(header)) if versioned else (SIZES.size, _order_0(header))
    end = offset + sum(4 * prod(kind.shape) * _times(kind, header) for kind in kinds)
    if held != end:
        raise WeightsError(f"{place} has {held} bytes, but its header describes {end}; copy it again")
    places = {}
    for kind in kinds:
        for layer in range(_times(kind, header)):
            places[kind.name.format(layer)] = Place(offset, kind)
            offset += 4 * prod(kind.shape)
    places.pop(ANGLES, None)
    return Checkpoint(place, _config(header), Floats(place, places))


def _first(start: bytes) -> Header:
    """Without a version: a vocabulary below 0 says that the output has a table of its own."""
    width, inner, layers, heads, groups, vocabulary, length = SIZES.unpack_from(start)
    return Header(width, inner, layers, heads, groups, abs(vocabulary), length, vocabulary > 0)


def _versioned(place: Path, start: bytes) -> Header:
    version = struct.unpack_from("<i", start, 4)[0]
    if version != 1:
        raise WeightsError(
            f"{place} is of version {version} of llama2.c's format; heed reads 0 and 1, export it as such"
        )
    width, inner, layers, heads, groups, vocabulary, length = SIZES.unpack_from(start, 8)
    return Header(width, inner, layers, heads, groups, vocabulary, length, bool(start[8 + SIZES.size]))


# --- the order of the tensors ---

LAYER = "model.layers.{}."
ANGLES = "angles"  # cosines and sines, which are computed


def _times(kind: Kind, header: Header) -> int:
    return header.layers if kind.name.startswith(LAYER) else 1


def _order_0(header: Header) -> list[Kind]:
    kinds = _kinds(header)
    names = ("embed", "norm 1", "q", "k", "v", "o", "norm 2", "gate", "down", "up", "norm")
    angles = Kind(ANGLES, (2, header.length, header.size // 2))
    return [*(kinds[name] for name in names), angles, *([] if header.tied else [kinds["output"]])]


def _order_1(header: Header) -> list[Kind]:
    kinds = _kinds(header)
    names = ("norm 1", "norm 2", "norm", "embed", "q", "k", "v", "o", "gate", "down", "up")
    return [*(kinds[name] for name in names), *([] if header.tied else [kinds["output"]])]


def _kinds(header: Header) -> dict[str, Kind]:
    width, inner, keys = header.width, header.inner, header.groups * header.size
    attention, feedforward = f"{LAYER}self_attn.", f"{LAYER}mlp."
    return {
        "embed": Kind("model.embed_tokens.weight", (header.vocabulary, width)),
        "norm 1": Kind(f"{LAYER}input_layernorm.weight", (width,)),
        "q": Kind(f"{attention}q_proj.weight", (width, width), header.heads),
        "k": Kind(f"{attention}k_proj.weight", (keys, width), header.groups),
        "v": Kind(f"{attention}v_proj.weight", (keys, width)),
        "o": Kind(f"{attention}o_proj.weight", (width, width)),
        "norm 2": Kind(f"{LAYER}post_attention_layernorm.weight", (width,)),
        "gate": Kind(f"{feedforward}gate_proj.weight", (inner, width)),
        "down": Kind(f"{feedforward}down_proj.weight", (width, inner)),
        "up": Kind(f"{feedforward}up_proj.weight", (inner, width)),
        "norm": Kind("model.norm.weight", (width,)),
        "output": Kind("lm_head.weight", (header.vocabulary, width)),
    }


def _config(header: Header) -> Data:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": header.vocabulary,
        "tie_word_embeddings": header.tied,
        "hidden_size": header.width,
        "intermediate_size": header.inner,
        "num_hidden_layers": header.layers,
        "num_attention_heads": header.heads,
        "num_key_value_heads": header.groups,
        "head_dim": header.size,
        "max_position_embeddings": header.length,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": [1, 2],  # stories end where the next would begin
    }
