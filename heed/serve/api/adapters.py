"""Models of which several are served, each with its own adapter (LoRA), over one copy of the weights.

A layer with an adapter has no instructions in the step program, so that these models step row by row.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...core.errors import InputError
from ...runs import ADAPTER, load
from ...weights.edits.lora import adapters, load_adapters

if TYPE_CHECKING:
    from ...pipelines import Pipeline
    from .settings import AdapterSource, ModelSource


def with_adapter(base: Pipeline, source: ModelSource, adapter: AdapterSource) -> Pipeline:
    """The model at `source` with an adapter: a folder of peft's, or a file that `save_adapters` wrote, or its folder.

    What it has in common with `base`, which was read from there, it shares.
    """
    place = Path(adapter.path).expanduser()
    if (place / ADAPTER).is_file():
        found = load(source.path, quantise=source.quantise, adapter=place)
    else:
        found = load(source.path, quantise=source.quantise)
        load_adapters(found.model, file_in(place))
    share(base.model, found.model)
    return found


def file_in(place: Path) -> Path:
    """The adapters of heed's own layout: the file itself, or the only one of a folder."""
    if place.is_file():
        return place
    files = sorted(place.glob("*.safetensors")) if place.is_dir() else []
    if len(files) == 1:
        return files[0]
    held = f"holds {len(files)} .safetensors files" if place.is_dir() else "is not there"
    raise InputError(f"{place} {held}; needed is a folder of peft's ({ADAPTER}), or one file of save_adapters")


@torch.no_grad()
def share(base: nn.Module, adapted: nn.Module) -> int:
    """Let a model have the tensors of its base wherever they are equal. How many bytes are held once now, not twice."""
    wrapped = [f"{name}." for name in adapters(adapted)]
    theirs: dict[str, Tensor] = {**dict(base.named_parameters()), **dict(base.named_buffers())}
    saved = 0
    for place, module in adapted.named_modules():
        for held in (module._parameters, module._buffers):
            for name, own in list(held.items()):
                whole = f"{place}.{name}" if place else name
                there = theirs.get(_below(whole, wrapped))
                if own is None or there is None or there is own or not _same(own, there):
                    continue
                held[name] = there  # a parameter for a parameter, a buffer for a buffer
                saved += there.nbytes
    return saved


def _below(name: str, wrapped: list[str]) -> str:
    """What a tensor is called where there is no adapter around its layer."""
    around = next((prefix for prefix in wrapped if name.startswith(f"{prefix}base.")), None)
    return name if around is None else around + name.removeprefix(f"{around}base.")


def _same(one: Tensor, other: Tensor) -> bool:
    alike = (one.shape, one.dtype, one.device, type(one)) == (other.shape, other.dtype, other.device, type(other))
    return alike and torch.equal(one, other)
