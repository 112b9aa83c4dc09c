"""heed's own layout: every tensor under the name it has in the model, tied ones once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from safetensors.torch import save_file
from torch import Tensor, nn

from ..rename import Same, Table, export, load, restore
from .checkpoint import Checkpoint
from .safetensors import Stored

M = TypeVar("M", bound=nn.Module)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name. They share their memory with the model."""
    return export(model, names(model))


def write(model: nn.Module, path: Path) -> None:
    """The weights as a safetensors file."""
    save_file({name: tensor.contiguous() for name, tensor in tensors(model).items()}, path, {"format": "pt"})


def fill(model: nn.Module, held: Mapping[str, Tensor]) -> None:
    """Put weights by name into a model; every one must be there and fit."""
    load(model, held, names(model))


def read(build: Callable[[], M], folder: Path) -> M:
    """The model of a folder's model.safetensors, ready to use."""
    return restore(build, Checkpoint(folder, {}, Stored.of(folder)), names)


def names(model: nn.Module) -> Table:
    """Every tensor of the model under its own name."""
    return tuple(Same(name, name) for name in model.state_dict())
