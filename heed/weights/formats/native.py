"""heed's own layout of a model's weights: every tensor under the name it has in the model, tied ones once.

What the last release wrote is still read: parts of models that were called otherwise then are in `RENAMED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from safetensors.torch import save_file
from torch import Tensor, nn

from ..outline import EACH
from ..rename import Same, Table, export, load, must_fit, restore
from .checkpoint import Checkpoint
from .safetensors import Held, Stored

M = TypeVar("M", bound=nn.Module)

# Parts of a tensor's name, between its dots: as the last release wrote them, and as they are now.
RENAMED = {"front": "embeddings"}


def current(name: str) -> str:
    """The name that a tensor of the last release has now: stack.front.table → stack.embeddings.table."""
    return ".".join(RENAMED.get(part, part) for part in name.split("."))


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name. They share their memory with the model."""
    return export(model, names(model))


def write(model: nn.Module, path: Path) -> None:
    """The weights as a safetensors file."""
    save_file({name: tensor.contiguous() for name, tensor in tensors(model).items()}, path, {"format": "pt"})


def fill(model: nn.Module, held: Mapping[str, Tensor]) -> None:
    """Put weights by name into a model; every one must be there and fit."""
    load(model, held, names(model, held))


def must_fill(model: nn.Module, held: Mapping[str, Tensor]) -> None:
    """Raise unless `fill` would do; the model may be without memory."""
    must_fit(model, Held(held), names(model, held))


def read(build: Callable[[], M], folder: Path) -> M:
    """The model of a folder's model.safetensors, ready to use."""
    stored = Stored.of(folder)
    return restore(build, Checkpoint(folder, {}, stored), lambda model: names(model, stored), EACH)


def names(model: nn.Module, held: Iterable[str] = ()) -> Table:
    """Every tensor of the model under its own name, or under the one that it has among the names that are held."""
    before = {current(name): name for name in held if current(name) != name}
    return tuple(Same(before.get(name, name), name) for name in model.state_dict())
