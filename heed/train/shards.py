"""Tensors that are spread over processes, as files: each process writes its part.

shard-00000.safetensors  one file for every process: its rows of each weight, moment and mean
layout.json              each tensor's dtype and shape, and which rows of it stand in which file

`torch.distributed.checkpoint` writes and reads them (`storage.py`). Its own layout of such a folder is a pickle
(`.metadata`), which heed reads from nobody. This one is JSON, typed and compared with the headers of the shards before
anything is read by it: every row must be there, once. What any number of processes wrote any other number reads.
"""

from __future__ import annotations

import re
from collections.abc import KeysView
from itertools import accumulate
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Ge, Lt
from pydantic import Strict
from torch import Tensor

from ..core.config import Config, read_data
from ..weights.formats.safetensors import DTYPES, Stored, Tensors

LAYOUT = "layout.json"
SHARD = re.compile(r"shard-[0-9]{5}\.safetensors")
Size = Annotated[int, Strict(), Ge(0), Lt(1 << 53)]


def shard(rank: int) -> str:
    """The name of a process's file."""
    return f"shard-{rank:05d}.safetensors"


class Rows(Config):
    """Some rows of a tensor, in the file of the process that wrote them; of a number, the number."""

    file: str
    first: Size  # row
    shape: tuple[Size, ...]


class Lie(Config):
    """Where a tensor lies."""

    dtype: str
    shape: tuple[Size, ...]
    rows: tuple[Rows, ...]


class Layout(Config):
    """layout.json, typed."""

    tensors: dict[str, Lie]


class Shards(Tensors):
    """The tensors of a folder; each is put together when it is asked for, and not kept."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.layout = folder, Layout.load(read_data(folder / LAYOUT))
        self.files = sorted({rows.file for lie in self.layout.tensors.values() for rows in lie.rows})
        strange = next((name for name in self.files if not SHARD.fullmatch(name)), None)
        if strange is not None:
            raise ValueError(f"{LAYOUT} names {strange[:100]!r}, which is no shard")
        self._stored = {name: Stored([folder / name]) for name in self.files}
        for name, lie in self.layout.tensors.items():
            self._must_be_whole(name, lie)

    def __getitem__(self, name: str) -> Tensor:
        parts = [self._stored[rows.file][name] for rows in self.layout.tensors[name].rows]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @property
    def names(self) -> KeysView[str]:
        return self.layout.tensors.keys()

    def like(self, name: str) -> Tensor:
        lie = self.layout.tensors[name]
        return torch.empty(lie.shape, dtype=DTYPES[lie.dtype], device="meta")

    def _must_be_whole(self, name: str, lie: Lie) -> None:
        """Raise unless its rows follow one another from the first to the last, and stand in the files as told."""
        if lie.dtype not in DTYPES or not lie.rows:
            raise ValueError(f"{LAYOUT}: {name} is of {lie.dtype[:20]!r} in {len(lie.rows)} parts")
        for rows in lie.rows:
            held = self._stored[rows.file]
            like = held.like(name) if name in held else None
            if like is None or tuple(like.shape) != rows.shape or like.dtype != DTYPES[lie.dtype]:
                raise ValueError(f"{rows.file} does not hold {name} as {LAYOUT} says")
        alike = all(len(rows.shape) == len(lie.shape) and rows.shape[1:] == lie.shape[1:] for rows in lie.rows)
        counts = [rows.shape[0] if rows.shape else 1 for rows in lie.rows]
        firsts = [*accumulate(counts, initial=0)]
        follow = [rows.first for rows in lie.rows] == firsts[:-1]
        if not (alike and follow and firsts[-1] == (lie.shape[0] if lie.shape else 1)):
            raise ValueError(f"{LAYOUT}: the parts of {name} do not make one of shape {list(lie.shape)}")
