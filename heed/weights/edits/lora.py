"""LoRA: a model learns something new in few weights of its own, which can be kept apart or worked in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ...core.atomic import replacing
from ...core.config import Positive, Share, Size
from ...core.errors import ConfigError, InputError, WeightsError
from ...parts.layers.lora import LoraLinear
from ..formats.export import writing
from ..formats.native import current
from ..formats.safetensors import Stored
from .base import Layer, Patterns, Swap, linears

PARTS = ("a", "b", "scale")  # what is stored of an adapter


class LoRA(Swap):
    """y = W x + alpha/rank · B A x, where only A and B learn, all else is as it was (Hu et al. 2021).

    adapted = edit(model, LoRA(rank=8, on="*.query"))
    save_adapters(adapted, "adapters.safetensors")        # and load_adapters(model, ...), onto any model of this shape
    held = merge(adapted)                                 # W + alpha/rank · B A, as fast as before
    unmerge(adapted, held)
    """

    kind: Literal["lora"] = "lora"
    on: Patterns = ("*.query", "*.value")  # the paper's choice
    rank: Size = 8  # channels between A and B
    alpha: Positive | None = None  # rank: what is learnt counts once
    dropout: Share = 0.0  # of what A reads
    full: Patterns = ()  # weights that learn in full beside the adapters, by name; a head that a base lacks is added

    def apply(self, model: nn.Module) -> None:
        super().apply(model)
        freeze(model)
        weights = dict(model.named_parameters())
        for name in self.model_copy(update={"on": self.full, "but": ()}).chosen(weights, "weight"):
            weights[name].requires_grad_()

    def swapped(self, name: str, layer: Layer) -> nn.Module:
        least = min(layer.in_features, layer.out_features)
        if isinstance(layer, LoraLinear):
            raise ConfigError(
                f"{name} has an adapter already; merge(model) works it in before another one is put there"
            )
        if self.rank > least:
            raise ConfigError(
                f"rank {self.rank} is more than {name} has, which is {layer.out_features} × {layer.in_features}; "
                f"use at most {least}"
            )
        return LoraLinear(layer, self.rank, (self.alpha or self.rank) / self.rank, self.dropout)


def adapters(model: nn.Module) -> dict[str, LoraLinear]:
    """What LoRA put into a model, by name."""
    return {name: layer for name, layer in linears(model).items() if isinstance(layer, LoraLinear)}


def freeze(model: nn.Module) -> None:
    """Only adapters learn."""
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, LoraLinear):
            module.a.requires_grad_()
            module.b.requires_grad_()


@torch.no_grad()
def merge(model: nn.Module) -> dict[str, LoraLinear]:
    """Work the adapters into the weights: W ← W + alpha/r · B A. Gives what `unmerge` needs to take them out again.

    Back and forth a weight keeps its value but for two roundings: |W'' - W| ≤ ε·(|W| + 2|change|), ε = 2⁻²⁴ of float32,
    for sums are rounded to half a unit in their last place, once each way.
    """
    held = adapters(model)
    names = _names(model)
    for name, layer in held.items():
        shared = [other for other in names[id(layer.base.weight)] if not other.startswith(f"{name}.")]
        if type(layer.base) is not nn.Linear:
            raise InputError(
                f"{name} has a {type(layer.base).__name__} below its adapter, which has no room for a change; "
                "use the model as it is"
            )
        if shared:
            raise InputError(f"{name} shares its weight with {shared[0]}, which would change too; untie them first")
    for name, layer in held.items():
        layer.base.weight += layer.change
        model.set_submodule(name, layer.base)
    return held


def taken_off(model: nn.Module) -> dict[str, LoraLinear]:
    """Take the adapters off a model, whose layers are again what they were below them. Gives them by name."""
    held = adapters(model)
    for name, layer in held.items():
        model.set_submodule(name, layer.base)
    return held


@torch.no_grad()
def unmerge(model: nn.Module, held: dict[str, LoraLinear]) -> None:
    """Take adapters out of the weights that `merge` worked them into, and put them in their places again."""
    layers = linears(model)
    for name, layer in held.items():
        if layers.get(name) is not layer.base:
            raise InputError(f"{name} is not the layer that an adapter was merged into; give the model that was merged")
    for name, layer in held.items():
        layer.base.weight -= layer.change
        model.set_submodule(name, layer)


def save_adapters(model: nn.Module, path: Path | str) -> None:
    """The adapters of a model alone, as a safetensors file: all of it or nothing."""
    found = adapters(model)
    if not found:
        raise InputError("this model has no adapters to save; put some in with edit(model, LoRA(...))")
    tensors = {f"{name}.{part}": tensor for name, layer in found.items() for part, tensor in _stored(layer).items()}
    with writing(Path(path)), replacing(Path(path)) as fresh:
        save_file(tensors, fresh, {"format": "pt"})


@torch.no_grad()
def load_adapters(model: nn.Module, path: Path | str) -> None:
    """Adapters from a file onto a model of the same shape, which then learns only through them.

    A layer that has an adapter of this rank already gets the weights, another one gets the adapter.
    """
    held, layers = Stored([Path(path)]), linears(model)
    names = sorted({name.rpartition(".")[0] for name in held})
    problems = [problem for name in names if (problem := _unfit(name, held, layers))]
    if problems or not names:
        raise WeightsError(
            f"{path} holds no adapters for this model:\n  - " + "\n  - ".join(problems or ["it is empty"])
        )
    for name in names:
        a, b, scale = (held[f"{name}.{part}"] for part in PARTS)
        place = current(name)
        layer = layers[place]
        if not isinstance(layer, LoraLinear) or layer.a.shape != a.shape:
            layer = LoraLinear(layer, len(a), 1.0).train(layer.training)
            model.set_submodule(place, layer)
        layer.scale = float(scale)
        layer.a.copy_(a)
        layer.b.copy_(b)
    freeze(model)


def _stored(layer: LoraLinear) -> dict[str, Tensor]:
    scale = torch.tensor([layer.scale], dtype=torch.float64)
    return {"a": layer.a.detach().contiguous(), "b": layer.b.detach().contiguous(), "scale": scale}


def _unfit(name: str, held: Stored, layers: dict[str, Layer]) -> str:
    """What is wrong with an adapter of a file, in words; nothing: it fits."""
    if current(name) not in layers:
        return f"there is no linear layer {name}"
    lacking = [f"{name}.{part}" for part in PARTS if f"{name}.{part}" not in held]
    if lacking:
        return f"{', '.join(lacking)} is missing"
    layer = layers[current(name)]
    reads, writes = layer.in_features, layer.out_features
    a, b = (list(held.like(f"{name}.{part}").shape) for part in ("a", "b"))
    rank = a[0] if a else 0
    fits = [a, b] == [[rank, reads], [writes, rank]] and held.like(f"{name}.scale").numel() == 1
    return "" if fits else f"{name} is {[writes, reads]}, which does not fit a of {a} and b of {b}"


def _names(model: nn.Module) -> dict[int, list[str]]:
    """Every name that a weight goes by."""
    found: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(weight), []).append(name)
    return found
