"""A training's tensors put back: from files or shards, into a model that lies whole in a process or in parts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..weights.formats import native as own
from ..weights.formats.safetensors import Below
from .average import Average
from .checkpoint import Checkpoint
from .optim import empty_optimizer_state, load_optimizer_state
from .shards import Shards


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer, average: Average) -> None:
    """Weights, moments and means, however they lay and wherever they lie now."""
    average.taken = checkpoint.progress.averaged
    if checkpoint.shards is not None:
        _read(checkpoint.shards, model, optimizer, average)
        return
    weights = dict(model.named_parameters())
    parts = {part: _placed(held, weights) for part, held in checkpoint.tensors.items()}
    own.fill(model, parts["model"])
    load_optimizer_state(optimizer, model, parts["optimizer"])
    average.restore(parts["average"])


def _read(shards: Shards, model: nn.Module, optimizer: torch.optim.Optimizer, average: Average) -> None:
    """Each process reads the rows that it holds, to where they belong."""
    from .storage import read

    parts: dict[str, Mapping[str, Tensor]] = {
        "model": own.tensors(model),
        "optimizer": empty_optimizer_state(optimizer, model, Below(shards, "optimizer.")),
        "average": average.tensors(),
    }
    read(shards, {f"{part}.{name}": tensor for part, held in parts.items() for name, tensor in held.items()})


def _placed(held: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Whole tensors as the weights that they belong to lie: `exp_avg.NAME` to NAME. Numbers are whole anywhere."""
    if all(type(weight) is nn.Parameter and type(weight.data) is Tensor for weight in weights.values()):
        return held
    from .storage import placed

    found = {}
    for name, tensor in held.items():
        like = weights.get(name, weights.get(name.partition(".")[2]))
        found[name] = tensor if like is None or like.shape != tensor.shape else placed(tensor, like)
    return found
