"""heed's own layout of a model's weights: every tensor under the name it has in the model, tied ones once.

What the last release wrote is still read: parts of models that were called otherwise then are in `RENAMED`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ..outline import EACH
from ..rename import Same, Table, export, load, must_fit, restore
from .checkpoint import Checkpoint
from .safetensors import DTYPES, Held, Stored
from .safetensors import Tensors as Lazy

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


def write_gathered(held: Mapping[str, Tensor], gather: Callable[[Tensor], Tensor], path: Path | None) -> None:
    """The same of tensors that lie in parts elsewhere: each is gathered when its turn comes, and let go once written.

    Without a path it takes part in the gathering alone, in the same order.
    """
    kinds, end = {dtype: kind for kind, dtype in DTYPES.items()}, 0
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    order = sorted(held, key=lambda name: (-held[name].element_size(), name))  # so that each begins where it may
    for name in order:
        tensor = held[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with nullcontext() if path is None else path.open("wb") as file:
        if file is not None:
            file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            whole = gather(held[name])
            if file is not None:
                file.write(whole.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def fill(model: nn.Module, held: Mapping[str, Tensor]) -> None:
    """Put weights by name into a model; every one must be there and fit."""
    load(model, held, names(model, held))


def must_fill(model: nn.Module, held: Mapping[str, Tensor]) -> None:
    """Raise unless `fill` would do; the model may be without memory."""
    must_fit(model, held if isinstance(held, Lazy) else Held(held), names(model, held))


def read(build: Callable[[], M], folder: Path) -> M:
    """The model of a folder's model.safetensors, ready to use."""
    stored = Stored.of(folder)
    return restore(build, Checkpoint(folder, {}, stored), lambda model: names(model, stored), EACH)


def names(model: nn.Module, held: Iterable[str] = ()) -> Table:
    """Every tensor of the model under its own name, or under the one that it has among the names that are held."""
    before = {current(name): name for name in held if current(name) != name}
    return tuple(Same(before.get(name, name), name) for name in model.state_dict())
