"""A model that learnt by LoRA as an adapter folder of peft's, for the checkpoint that it began as."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ...core.atomic import appearing
from ...core.config import Data
from ...core.errors import InputError, WeightsError
from ...parts.layers.lora import LoraLinear
from ..edits.lora import taken_off
from ..formats.export import new_folder, writing
from ..formats.folder import CONFIG as MODEL
from ..formats.safetensors import Tensors
from ..rename import Plan, Table
from .config import CONFIG, WEIGHTS
from .layout import Module, Modules
from .read import STEM, A, B, placed

WHOLE = "heads"  # what a model is asked by learns in full


@dataclass(frozen=True)
class Tuned:
    """A model with adapters, the table of its layout, and the checkpoint below it."""

    model: nn.Module
    table: Table
    config: Data  # config.json of the whole model, with its head
    base: Tensors  # the weights that it began with: all that has no adapter must be as it was
    named: str  # what others find that checkpoint by
    task: str | None = None  # SEQ_CLS, CAUSAL_LM ...


@dataclass(frozen=True)
class LowRank:
    """The adapter of one of their layers: scale · B A."""

    a: Tensor  # [rank, in]
    b: Tensor  # [out, rank]
    scale: float

    @property
    def rank(self) -> int:
        return len(self.a)

    @property
    def alpha(self) -> float:
        return self.scale * self.rank


def write_adapter(tuned: Tuned, folder: Path | str, beside: Callable[[Path], None] = lambda folder: None) -> None:
    """A new folder that peft loads onto the base: all of it appears, or nothing. `beside` writes what else.

    The model is left without its adapters.
    """
    place = new_folder(folder)
    found = taken_off(tuned.model)
    if not found:
        raise InputError("this model has no adapters to write; it learnt in full: write it as a whole")
    modules = Modules(tuned.model, tuned.table)
    pairs = dict(_pairs(modules, found))
    whole = dict(_whole(tuned))
    tensors = {f"{STEM}{name}": tensor for name, tensor in whole.items()}
    for name, pair in pairs.items():
        tensors |= {f"{STEM}{name}{A}": pair.a, f"{STEM}{name}{B}": pair.b}
    transposed = any(modules.module(name).transposed for name in pairs)
    config = {**_config(pairs, modules.names), "fan_in_fan_out": transposed, "modules_to_save": _owners(whole)}
    with writing(place), appearing(place) as fresh:
        told = {**config, "base_model_name_or_path": tuned.named, "task_type": tuned.task}
        (fresh / CONFIG).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        (fresh / MODEL).write_text(json.dumps(tuned.config, indent=2) + "\n", encoding="utf-8")
        save_file({name: one.detach().cpu().contiguous() for name, one in tensors.items()}, fresh / WEIGHTS)
        beside(fresh)


def _pairs(modules: Modules, found: Mapping[str, LoraLinear]) -> Iterator[tuple[str, LowRank]]:
    """The adapters by their names. Every one of ours must be part of a layer that has a name there."""
    left = set(found)
    for name in modules.names:
        held = {one: found[one] for one in modules.targets(name) if one in found}
        if held:
            yield name, _joined(modules.module(name), held)
            left -= held.keys()
    if left:
        raise WeightsError(f"{min(left)} has an adapter, but no layer of its own in this layout; convert the model")


def _joined(module: Module, held: Mapping[str, LoraLinear]) -> LowRank:
    """One adapter of several: their A stand below one another, and each B writes its own rows by its own channels.

        [q]         [B_q  0 ] [A_q]
        [k]  =  s · [ 0   0 ] [A_v] x
        [v]         [ 0  B_v]

    Layers that share one A, as they do when they came from such a file, have it once.
    """
    layers = list(held.values())
    scale = layers[0].scale
    if all(layer.a.shape == layers[0].a.shape and torch.equal(layer.a, layers[0].a) for layer in layers):
        firsts, a = [0] * len(layers), layers[0].a.detach()
    else:
        firsts = [sum(len(layer.a) for layer in layers[:number]) for number in range(len(layers))]
        a = torch.cat([layer.a.detach() for layer in layers])
    rows = {part.name: part.rows for part in module.parts}
    b = a.new_zeros(module.rows, len(a))
    for first, (name, layer) in zip(firsts, held.items(), strict=True):
        b[rows[name], first : first + len(layer.a)] = layer.b.detach() * (layer.scale / scale)
    return LowRank(a, b, scale)


def _whole(tuned: Tuned) -> Iterator[tuple[str, Tensor]]:
    """What the base lacks of the head, in full. All else without an adapter must be as the base has it."""
    plan, seen = Plan(tuned.model, tuned.table), set[int]()
    for link in plan.links:
        parts = {id(plan.held[name]) for name in link.ours}
        if parts <= seen:  # tied to what was looked at already
            continue
        seen |= parts
        made, name = link.rule.join([plan.held[name].detach() for name in link.ours]), placed(link.theirs, tuned.base)
        if name in tuned.base and _same(made, tuned.base[name]):
            continue
        if all(WHOLE in ours.split(".") for ours in link.ours):
            yield link.theirs, made
        else:
            raise WeightsError(
                f"{link.theirs} is not as the base {tuned.named} has it, so an adapter of it would not be this model; "
                "convert the whole model, or fine-tune from the checkpoint itself, not from a run"
            )


def _same(made: Tensor, stored: Tensor) -> bool:
    return made.shape == stored.shape and torch.equal(made.cpu(), stored.to(made.dtype))


def _config(pairs: Mapping[str, LowRank], names: Sequence[str]) -> Data:
    """The settings that most layers have, and those of the others by name."""
    rank = Counter(pair.rank for pair in pairs.values()).most_common(1)[0][0]
    alpha = Counter(pair.alpha for pair in pairs.values()).most_common(1)[0][0]
    return {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": _short(alpha),
        "rank_pattern": {name: pair.rank for name, pair in pairs.items() if pair.rank != rank},
        "alpha_pattern": {name: _short(pair.alpha) for name, pair in pairs.items() if pair.alpha != alpha},
        "target_modules": sorted({_target(name, pairs, names) for name in pairs}),
        "lora_dropout": 0.0,
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }


def _target(name: str, pairs: Mapping[str, LowRank], names: Sequence[str]) -> str:
    """The last part of a layer's name, if all layers that end so have an adapter; else the whole."""
    last = name.rpartition(".")[2]
    alike = [one for one in names if one.rpartition(".")[2] == last]
    return last if all(one in pairs for one in alike) else name


def _owners(whole: Mapping[str, Tensor]) -> list[str] | None:
    """The modules that hold these tensors: the outermost of a head, else the layer itself."""
    found = set()
    for name in whole:
        owner = name.rpartition(".")[0]
        found.add(owner if "pooler" in owner else owner.partition(".")[0])
    return sorted(found) or None


def _short(number: float) -> float:
    return int(number) if number == int(number) else number
