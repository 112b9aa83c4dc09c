"""Tensors on disk: safetensors files, one or many, read tensor by tensor.

Nothing in a file is trusted: only safetensors are opened, never a pickle; an index may name files beside it only; what
a header claims is compared with the file before anything of that size is made.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, KeysView, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...core.config import nearest, read_data
from ...core.errors import ConfigError, WeightsError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PLACEHOLDER = "_empty"  # stands in the weights of a mechanism that has none
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
LONGEST = 200  # characters of a file's name; systems take some 255 bytes
FRESH = 1 << 24  # bytes of a mapping: pages that were read count as memory while a tensor of it is held

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,  # no weight is, but what a checkpoint may hold beside its weights
}


class Tensors(Mapping[str, Tensor]):
    """Tensors by name; each is read when it is asked for, and not kept."""

    @property
    @abstractmethod
    def names(self) -> KeysView[str]:
        """What there is."""

    @abstractmethod
    def like(self, name: str) -> Tensor:
        """A tensor of this shape and dtype on the meta device; nothing is read."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names  # a mapping would read the tensor to find out

    @property
    def dtype(self) -> torch.dtype | None:
        """The precision of the weights: that of the first that is not made of whole numbers."""
        return next((like.dtype for like in map(self.like, self) if like.is_floating_point()), None)


class Held(Tensors):
    """Tensors that are in memory anyway."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    @property
    def names(self) -> KeysView[str]:
        return self._tensors.keys()

    def like(self, name: str) -> Tensor:
        return torch.empty_like(self._tensors[name], device="meta")


class Cast(Tensors):
    """Tensors in another precision; whole numbers stay as they are."""

    def __init__(self, tensors: Tensors, dtype: torch.dtype) -> None:
        self._tensors, self._dtype = tensors, dtype

    def __getitem__(self, name: str) -> Tensor:
        return self._cast(self._tensors[name])

    @property
    def names(self) -> KeysView[str]:
        return self._tensors.keys()

    def like(self, name: str) -> Tensor:
        return self._cast(self._tensors.like(name))

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


class Below(Tensors):
    """Those of some tensors whose names begin so, without that beginning: the tensors of one part of a model."""

    def __init__(self, tensors: Tensors, prefix: str) -> None:
        self._tensors, self._prefix = tensors, prefix
        self._names = dict.fromkeys(name.removeprefix(prefix) for name in tensors if name.startswith(prefix))

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[f"{self._prefix}{name}"]

    @property
    def names(self) -> KeysView[str]:
        return self._names.keys()

    def like(self, name: str) -> Tensor:
        return self._tensors.like(f"{self._prefix}{name}")


class Stored(Tensors):
    """Tensors in safetensors files. They are mapped: the pages of a file are read when they are first computed with.

    What is written to them stays in this process. A file may be replaced while it is in use, but not overwritten.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._likes: dict[str, tuple[Path, Tensor]] = {}
        for path in files:
            for name, like in _header(path).items():
                if name in self._likes:
                    raise WeightsError(f"{path} and {self._likes[name][0].name} both hold {name}; copy them again")
                self._likes[name] = path, like
        self._open: tuple[Path, Any] | None = None
        self._read = 0

    @classmethod
    def of(cls, folder: Path) -> Stored:
        """The weights of a folder: in one file, or in several that an index names."""
        if (folder / WEIGHTS).is_file():
            return cls([folder / WEIGHTS])
        if (folder / INDEX).is_file():
            return cls._sharded(folder / INDEX)
        raise WeightsError(_missing(folder))

    @classmethod
    def _sharded(cls, index: Path) -> Stored:
        shards = shards_of(index)
        others = sorted({name for name in shards.values() if not name.endswith(".safetensors")})
        if others:
            raise WeightsError(f"{index} names {others[0]!r}, which is not a safetensors file; only those are opened")
        lost = sorted({name for name in shards.values() if not (index.parent / name).is_file()})
        if lost:
            raise WeightsError(f"{index} names files that are not there: {', '.join(lost)}; copy them, too")
        stored = cls([index.parent / name for name in sorted(set(shards.values()))])
        wrong = [name for name, file in shards.items() if name not in stored or stored._likes[name][0].name != file]
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise WeightsError(f"{index} names tensors that its files do not hold: {', '.join(wrong[:5])}{more}")
        return stored

    def __getitem__(self, name: str) -> Tensor:
        path, like = self._likes[name]
        with opened(path):
            if self._open is None or self._open[0] != path or self._read > FRESH:
                self._open, self._read = (path, safe_open(path, "pt")), 0
            self._read += like.nbytes
            tensor: Tensor = self._open[1].get_tensor(name)
            return tensor

    @property
    def names(self) -> KeysView[str]:
        return self._likes.keys()

    def like(self, name: str) -> Tensor:
        return self._likes[name][1]


def shards_of(index: Path) -> dict[str, str]:
    """Which file holds each tensor, by an index. Only files beside the index may be named."""
    try:
        found = read_data(index).get("weight_map")
    except ConfigError as error:
        raise WeightsError(str(error)) from None
    if not isinstance(found, dict) or not found or not all(isinstance(file, str) for file in found.values()):
        raise WeightsError(f"{index} must hold a weight_map: which file holds each tensor")
    for file in sorted(set(found.values())):
        strange = file in ("", ".", "..") or "\\" in file or "\0" in file or len(file) > LONGEST
        if strange or file != Path(file).name:
            raise WeightsError(f"{index} names the file {file[:LONGEST]!r}; only files beside the index are read")
    return found


def _missing(folder: Path) -> str:
    """Why there are no weights, and what to do."""
    try:
        beside = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        return f"{folder} cannot be read: {error.strerror}"
    pickled = [name for name in beside if name.endswith(PICKLED)]
    if pickled:
        return (
            f"{folder} holds only pickled weights ({', '.join(pickled[:3])}), which could run code when opened; "
            f"convert them first: heed convert {folder} OUT"
        )
    near = nearest(WEIGHTS, beside) if beside else "; the folder is empty"
    return f"{folder} holds neither {WEIGHTS} nor {INDEX}{near}"


def _header(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file on the meta device."""
    with opened(path), safe_open(path, "pt") as file:
        found = {}
        for name in file.keys():  # noqa: SIM118  # not a dict
            part = file.get_slice(name)
            kind = part.get_dtype()
            if kind not in DTYPES:
                raise WeightsError(f"{path}: {name} is stored as {kind}, which heed does not read")
            if name != PLACEHOLDER:
                found[name] = torch.empty(part.get_shape(), dtype=DTYPES[kind], device="meta")
        return found


@contextmanager
def opened(path: Path) -> Iterator[None]:
    """Whatever safetensors finds wrong, as one kind of error and with the path."""
    if not path.is_file():
        raise WeightsError(f"{path} is not a file; a folder to read needs it")
    try:
        yield
    except WeightsError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, OverflowError, TypeError) as error:
        raise WeightsError(f"{path} is not a whole safetensors file ({error}); copy it again") from None
