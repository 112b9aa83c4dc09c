"""GGUF files, the format of llama.cpp, presented as Hugging Face checkpoints.

Nothing in a file is trusted: magic, version, counts, lengths, types, offsets and alignment are compared with the file
and with limits before anything of that size is made. A file is read in pieces, never mapped: it may be cut off at any
moment. Tensors are float32 whatever they are stored as, because half precision is slow on most processors.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import KeysView, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from ...core.errors import MissingExtra, WeightsError
from .checkpoint import Checkpoint
from .gguf_metadata import Keys
from .gguf_names import IGNORED, Change, Layout, described, layout
from .safetensors import Tensors

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType

VERSIONS = (2, 3)
DESCRIPTION = 2**28  # bytes of all that comes before the tensors; a vocabulary of 300 000 needs 2**24
ENTRIES = 2**17  # keys or tensors
ITEMS = 2**22  # of all lists together
NAME = 2**16  # bytes
DIMENSIONS = 4
EXPERTS = 2**12
ALIGNMENT, COARSEST = 32, 2**16
PIECE = 2**18  # numbers that are dequantised at once; whole blocks of every kind

SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # GGUF's numbers of types, and struct's letters
TEXT, LIST = 8, 9


@dataclass(frozen=True)
class Described:
    """A tensor as the file describes it."""

    name: str
    shape: tuple[int, ...]  # outermost dimension first, as in torch
    kind: int  # ggml's number of its quantisation
    offset: int  # from the first tensor


@dataclass(frozen=True)
class Head:
    """What comes before the tensors."""

    metadata: dict[str, object]
    tensors: tuple[Described, ...]
    start: int  # of the first tensor
    end: int  # of the file


@dataclass(frozen=True)
class Placed:
    """A tensor in the file, and how it is stored."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    block: int  # numbers in a block
    block_bytes: int
    offset: int  # from the start of the file

    @property
    def nbytes(self) -> int:
        return prod(self.shape) // self.block * self.block_bytes


@dataclass(frozen=True)
class Source:
    """Whence a tensor of the checkpoint comes: a tensor of the file or a part of it, changed or not."""

    placed: Placed
    part: int | None
    change: Change | None
    shape: torch.Size


class Dequantised(Tensors):
    """The tensors under their Hugging Face names; each is read and dequantised when it is asked for."""

    def __init__(self, head: Keys, sources: Mapping[str, Source]) -> None:
        self.head, self.sources = head, sources

    def __getitem__(self, name: str) -> Tensor:
        source = self.sources[name]
        tensor = _floats(self.head.place, source.placed, source.part)
        return tensor if source.change is None else source.change(tensor, self.head).contiguous()

    @property
    def names(self) -> KeysView[str]:
        return self.sources.keys()

    def like(self, name: str) -> Tensor:
        return torch.empty(self.sources[name].shape, dtype=torch.float32, device="meta")


def metadata(path: Path | str) -> dict[str, object]:
    """All that the file says of itself, under GGUF's own keys: numbers, texts, flags and lists of them."""
    return _head(Path(path)).metadata


def stored(path: Path | str) -> dict[str, int]:
    """How many numbers are stored in which way: {"Q8_0": 134515008, "F32": 35136}."""
    place, counted = Path(path), Counter[str]()
    for placed in _placed(place, _head(place)):
        counted[placed.kind.name] += prod(placed.shape)
    return dict(counted)


def read(path: Path | str) -> Checkpoint:
    """The model in a GGUF file, as if it were a Hugging Face folder."""
    place = Path(path)
    head = _head(place)
    _must_be_whole(place, head)
    held = {tensor.name: tensor for tensor in _placed(place, head)}
    shapes = {name: tensor.shape for name, tensor in held.items()}
    keys = Keys(place, head.metadata, shapes, lambda name: _floats(place, held[name]))
    chosen = layout(keys)
    if chosen.tied and _copied(place, held):
        del held["output.weight"]
    config = described(keys, "output.weight" not in held)
    return Checkpoint(place, config, Dequantised(keys, _sources(keys, chosen, held)))


def _must_be_whole(place: Path, head: Head) -> None:
    """Raise if the file is a part of a model, or something to be added to one."""
    parts, what = head.metadata.get("split.count", 1), head.metadata.get("general.type", "model")
    if parts not in (0, 1):
        raise WeightsError(f"{place} is one of {parts} parts of a model; join them with llama-gguf-split --merge")
    if what != "model":
        raise WeightsError(f"{place} holds {what!r}, not a model; give the file of the model itself")


def _sources(keys: Keys, chosen: Layout, held: Mapping[str, Placed]) -> dict[str, Source]:
    """Every tensor of the file under its Hugging Face name; unknown names are told together."""
    found: dict[str, Source] = {}
    strange = []
    for name, placed in held.items():
        stem, _, leaf = name.rpartition(".")
        pattern = ".".join("#" if part.isdecimal() else part for part in stem.split("."))
        theirs = chosen.names.get(stem, chosen.names.get(pattern))
        if theirs is None or leaf not in ("weight", "bias"):
            strange += [] if {stem, pattern} & set(IGNORED) else [name]
            continue
        for number in filter(str.isdecimal, stem.split(".")):
            theirs = theirs.replace("#", number, 1)
        for part in _parts(keys, placed) if "*" in theirs else (None,):
            source = _source(keys, placed, part, chosen.changes.get(pattern))
            if found.setdefault(f"{theirs}.{leaf}".replace("*", str(part)), source) is not source:
                raise WeightsError(f"{keys.place} holds {name} twice: alone and stacked with others")
    if strange:
        more = f" and {len(strange) - 5} more" if len(strange) > 5 else ""
        raise WeightsError(
            f"{keys.place} holds tensors that heed does not know in {keys.architecture}: {', '.join(strange[:5])}{more}"
        )
    return found


def _parts(keys: Keys, placed: Placed) -> range:
    """The experts that lie in one tensor."""
    count = keys.size("expert_count")
    if len(placed.shape) != 3 or placed.shape[0] != count or count > EXPERTS:
        raise WeightsError(f"{keys.place}: {placed.name} has the shape {list(placed.shape)} for {count} experts")
    return range(count)


def _source(keys: Keys, placed: Placed, part: int | None, change: Change | None) -> Source:
    """Tried out without memory first: the sizes in the metadata may not fit the tensor."""
    like = torch.empty(placed.shape if part is None else placed.shape[1:], device="meta")
    try:
        return Source(placed, part, change, like.shape if change is None else change(like, keys).shape)
    except (RuntimeError, ArithmeticError, IndexError) as error:
        raise WeightsError(
            f"{keys.place}: {placed.name} has the shape {list(placed.shape)}, which does not fit {keys.heads} heads "
            f"and {keys.groups} of keys and values ({error})"
        ) from None


# --- tensors ---


def _placed(place: Path, head: Head) -> list[Placed]:
    """The tensors where they lie. They must be in the file, apart, and stored in a way that the gguf package knows."""
    try:
        from gguf import GGML_QUANT_SIZES, dequantize
    except ImportError:
        raise MissingExtra.of("gguf", "weights") from None
    sizes = {int(kind): (kind, *blocks) for kind, blocks in GGML_QUANT_SIZES.items()}
    found: list[Placed] = []
    for tensor in head.tensors:
        if tensor.kind not in sizes:
            raise WeightsError(f"{place}: {tensor.name} is stored as number {tensor.kind}, a type unknown to gguf")
        kind, block, size = sizes[tensor.kind]
        if tensor.shape[-1] % block:
            raise WeightsError(
                f"{place}: {tensor.name} has rows of {tensor.shape[-1]} numbers; {kind.name} stores blocks of {block}"
            )
        found.append(Placed(tensor.name, tensor.shape, kind, block, size, head.start + tensor.offset))
    free = head.start
    for placed in sorted(found, key=lambda placed: placed.offset):
        if placed.offset < free:
            raise WeightsError(f"{place}: {placed.name} overlaps the tensor before it; copy the file again")
        free = placed.offset + placed.nbytes
        if free > head.end:
            raise WeightsError(f"{place} ends within {placed.name}, at byte {head.end} of {free}; copy it again")
    for kind, example in {placed.kind: placed for placed in found}.items():
        try:
            dequantize(np.zeros(example.block_bytes, np.uint8), kind)
        except NotImplementedError:
            raise WeightsError(
                f"{place}: {example.name} is stored as {kind.name}, which gguf cannot dequantise"
            ) from None
    return found


def _floats(place: Path, placed: Placed, part: int | None = None) -> Tensor:
    """A tensor, or one part of it, in float32."""
    from gguf import dequantize

    shape = placed.shape if part is None else placed.shape[1:]
    count = prod(shape)
    floats = np.empty(count, np.float32)
    first = (part or 0) * count
    for at in range(0, count, PIECE):
        many = min(PIECE, count - at)
        raw = stored_bytes(place, placed, first + at, many)
        with np.errstate(all="ignore"):  # a scale that is infinite gives numbers that are not, without a word
            floats[at : at + many] = dequantize(np.frombuffer(raw, np.uint8), placed.kind)
    return torch.from_numpy(floats).reshape(shape)


def stored_bytes(place: Path, placed: Placed, first: int, count: int) -> bytes:
    """What so many numbers are stored as."""
    offset, size = (number // placed.block * placed.block_bytes for number in (first, count))
    try:
        with place.open("rb") as file:
            file.seek(placed.offset + offset)
            raw = file.read(size)
    except OSError as error:
        raise WeightsError(f"{place} cannot be read: {error.strerror}") from None
    if len(raw) != size:
        raise WeightsError(f"{place} was cut off while it was read; copy it again")
    return raw


def _copied(place: Path, held: Mapping[str, Placed]) -> bool:
    """Whether the output is the embedding once more, byte by byte."""
    one, two = held.get("token_embd.weight"), held.get("output.weight")
    if one is None or two is None or (one.kind, one.shape) != (two.kind, two.shape):
        return False
    total = prod(one.shape)
    return all(
        stored_bytes(place, one, at, min(PIECE, total - at)) == stored_bytes(place, two, at, min(PIECE, total - at))
        for at in range(0, total, PIECE)
    )


# --- what comes before the tensors ---


def _head(place: Path) -> Head:
    try:
        with place.open("rb") as file:
            return _Scan(place, file, place.stat().st_size).head()
    except OSError as error:
        raise WeightsError(f"{place} cannot be read: {error.strerror}; give a GGUF file") from None


class _Scan:
    """A file read from its beginning. Whatever it claims is checked before it is believed."""

    def __init__(self, place: Path, file: BinaryIO, size: int) -> None:
        self.place, self.file, self.size = place, file, size
        self.at, self.items = 0, ITEMS

    def head(self) -> Head:
        if self.take(4) != b"GGUF":
            raise WeightsError(f"{self.place} is not a GGUF file: it does not begin with GGUF")
        version = self.number("I")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            reason = "its bytes are in the order of another machine" if swapped else f"its version is {version}"
            raise WeightsError(f"{self.place} cannot be read: {reason}; heed reads GGUF of versions 2 and 3")
        tensors, keys = self.count("tensors"), self.count("keys")
        metadata: dict[str, object] = {}
        for _ in range(keys):
            key = self.name()
            if key in metadata:
                raise self.wrong(f"it has the key {key} twice")
            metadata[key] = self.value(self.number("I"))
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= COARSEST or alignment & (alignment - 1):
            raise self.wrong(f"general.alignment is {alignment!r}; needed is a power of 2 up to {COARSEST}")
        described = tuple(self.tensor(alignment) for _ in range(tensors))
        if len({tensor.name for tensor in described}) != tensors:
            raise self.wrong("two of its tensors have one name")
        return Head(metadata, described, -(-self.at // alignment) * alignment, self.size)

    def tensor(self, alignment: int) -> Described:
        name = self.name()
        dimensions = self.number("I")
        if not 0 < dimensions <= DIMENSIONS:
            raise self.wrong(f"{name} has {dimensions} dimensions; at most {DIMENSIONS} are possible")
        shape = tuple(self.number("Q") for _ in range(dimensions))[::-1]
        kind, offset = self.number("I"), self.number("Q")
        if not all(shape) or offset % alignment:
            raise self.wrong(f"{name} has the shape {list(shape)} and lies at {offset}, in steps of {alignment}")
        return Described(name, shape, kind, offset)

    def value(self, kind: int) -> object:
        """One value of the metadata: a number, a flag, a text or a list of them."""
        if kind == TEXT:
            return self.text(DESCRIPTION)
        if kind == LIST:
            return self.list_()
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        raise self.wrong(f"a value is of type {kind}, which GGUF does not have")

    def list_(self) -> list[object]:
        kind, count = self.number("I"), self.number("Q")
        if count > self.items:
            raise self.wrong(f"its lists hold more than {ITEMS} items")
        self.items -= count
        if kind == TEXT:
            return [self.text() for _ in range(count)]
        if kind in SCALARS:
            width = struct.calcsize(SCALARS[kind])
            return list(struct.unpack(f"<{count}{SCALARS[kind]}", self.take(count * width)))
        raise self.wrong(f"a list holds values of type {kind}, which heed does not read")

    def name(self) -> str:
        """A text that may be shown as it is."""
        name = self.text()
        if name and name.isprintable():
            return name
        raise self.wrong(f"something in it is called {name[:60]!r}")

    def text(self, longest: int = NAME) -> str:
        length = self.number("Q")
        if length > longest:
            raise self.wrong(f"a text of {length} bytes is longer than {longest}")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.wrong("a text in it is not UTF-8") from None

    def count(self, what: str) -> int:
        number: int = self.number("Q")
        if number > ENTRIES:
            raise self.wrong(f"it claims {number} {what}; heed reads at most {ENTRIES}")
        return number

    def number(self, letter: str) -> Any:
        """One number, of the type that struct gives this letter."""
        return struct.unpack(f"<{letter}", self.take(struct.calcsize(letter)))[0]

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > min(self.size, DESCRIPTION) - self.at:
            raise self.wrong(f"it ends, or grows beyond {DESCRIPTION} bytes, before its description does")
        raw = self.file.read(count)
        if len(raw) != count:
            raise self.wrong("it was cut off while it was read")
        self.at += count
        return raw

    def wrong(self, what: str) -> WeightsError:
        return WeightsError(f"{self.place} is not a whole GGUF file: {what}; copy it again")
