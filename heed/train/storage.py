"""Tensors that are spread over processes, through `torch.distributed.checkpoint` to heed's shards and back.

Its planner says who writes what, and who reads which rows of what others wrote; here is what is done to files. This
file is imported by sharded trainings alone: torch takes a second to import what it needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from ..core.errors import RunError
from ..weights.formats.safetensors import DTYPES
from .shards import LAYOUT, Shards, shard

NAMES = {dtype: name for name, dtype in DTYPES.items()}


def gathered(tensor: Tensor) -> Tensor:
    """All of a tensor, in every process; what is not spread is whole anyway."""
    if not isinstance(tensor, DTensor):
        return tensor
    whole: Tensor = tensor.full_tensor()
    return whole


def placed(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor as `like` lies in the processes, which all have it."""
    if not isinstance(like, DTensor):
        return value
    rows = value.chunk(like.device_mesh.size())
    mine = rows[like.device_mesh.get_local_rank()] if like.device_mesh.get_local_rank() < len(rows) else value[:0]
    return DTensor.from_local(
        mine.to(like.device), like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def write(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """All processes write what they hold; what all of them hold, one of them."""
    with _as_one_error():
        save(dict(tensors), storage_writer=_Writer(folder))


def read(shards: Shards, tensors: Mapping[str, Tensor]) -> None:
    """Fill these, which may be spread over the processes that there are now; each reads what it holds."""
    try:
        with _as_one_error(), catch_warnings():
            filterwarnings("ignore", message="torch.distributed is disabled")  # by itself a process reads all of it
            load(dict(tensors), storage_reader=_Reader(shards), no_dist=not distributed.is_initialized())
    except OSError as error:
        raise RunError(f"{shards.folder} could not be read: {error}; copy it again, or remove it") from None


@contextmanager
def _as_one_error() -> Iterator[None]:
    """What went wrong in any process, told in all of them."""
    try:
        yield
    except CheckpointException as error:
        rank, (failure, _) = min(error.failures.items())
        raise OSError(f"process {rank}: {failure}") from failure


class _Writer(StorageWriter):
    """What a process holds as one safetensors file; the leading one writes the layout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def reset(self, checkpoint_id: Any = None) -> None:
        """Each writer writes once."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to do."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        rank, tensors, results = distributed.get_rank(), dict[str, Tensor](), []
        for item in plan.items:
            held = planner.resolve_data(item)
            assert isinstance(held, Tensor)  # heed saves nothing else
            tensors[item.index.fqn] = held.detach().cpu().contiguous()
            results.append(WriteResult(item.index, held.nbytes, (shard(rank), tuple(held.shape))))
        save_file(tensors, self.folder / shard(rank), {"format": "pt"})
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        each = sorted((one.index.fqn, one.index.offset or (0,), *one.storage_data) for rank in results for one in rank)
        found = {}
        for name, parts in groupby(each, key=lambda part: part[0]):
            told = metadata.state_dict_metadata[name]
            assert isinstance(told, TensorStorageMetadata)
            rows = [{"file": file, "first": first, "shape": shape} for _, (first, *_), file, shape in parts]
            found[name] = {"dtype": NAMES[told.properties.dtype], "shape": [*told.size], "rows": rows}
        (self.folder / LAYOUT).write_text(json.dumps({"tensors": found}, indent=1), encoding="utf-8")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, Path)


class _Reader(StorageReader):
    """Rows of safetensors files, by a layout that was found whole."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards

    def reset(self, checkpoint_id: Any = None) -> None:
        """Each reader reads once."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        known, files = dict[str, Any](), dict[MetadataIndex, str]()
        for name, lie in self.shards.layout.tensors.items():
            chunks = []
            for rows in lie.rows:
                offset = torch.Size([rows.first, *[0] * (len(lie.shape) - 1)] if lie.shape else [])
                chunks.append(ChunkStorageMetadata(offset, torch.Size(rows.shape)))
                files[MetadataIndex(name, offset)] = rows.file
            known[name] = TensorStorageMetadata(TensorProperties(DTYPES[lie.dtype]), torch.Size(lie.shape), chunks)
        return Metadata(known, storage_data=files)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._files: Mapping[MetadataIndex, str] = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for file, items in groupby(sorted(plan.items, key=self._file), key=self._file):
            with safe_open(self.shards.folder / file, "pt") as opened:
                for item in items:
                    name = item.storage_index.fqn
                    begins, lengths = item.storage_offsets, item.lengths
                    where = tuple(slice(begin, begin + each) for begin, each in zip(begins, lengths, strict=True))
                    target = planner.resolve_tensor(item).detach()
                    target.copy_(opened.get_slice(name)[where] if where else opened.get_tensor(name))
                    planner.commit_tensor(item, target)
        return _done(None)

    def _file(self, item: ReadItem) -> str:
        return self._files[item.storage_index]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, Path)


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future
