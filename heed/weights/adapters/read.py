"""An adapter folder of peft's, read onto the checkpoint that it was learnt for. Nothing in it is trusted."""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ...core.config import Data, read_data
from ...core.errors import ConfigError, WeightsError
from ...parts.layers.lora import LoraLinear
from ..edits.base import plain
from ..edits.lora import freeze
from ..families import open_
from ..families.base import Opened
from ..formats.checkpoint import Checkpoint
from ..formats.folder import CONFIG as MODEL
from ..formats.safetensors import Held, Stored, Tensors
from ..home.heads import ENDINGS, named_after
from .config import CONFIG, PICKLED, WEIGHTS, AdapterConfig
from .layout import Modules

STEM = "base_model.model."
A, B = ".lora_A.weight", ".lora_B.weight"
SHOWN = 12  # problems that a message lists


class Over(Tensors):
    """Tensors of a base, some of them replaced or added."""

    def __init__(self, base: Tensors, over: Tensors) -> None:
        self._base, self._over = base, over

    def __getitem__(self, name: str) -> Tensor:
        return self._over[name] if name in self._over else self._base[name]

    @property
    def names(self) -> KeysView[str]:
        return dict.fromkeys((*self._base, *self._over)).keys()

    def like(self, name: str) -> Tensor:
        return self._over.like(name) if name in self._over else self._base.like(name)


class Without(Tensors):
    """Tensors but for one."""

    def __init__(self, base: Tensors, left_out: str) -> None:
        self._base, self._left_out = base, left_out

    def __getitem__(self, name: str) -> Tensor:
        if name == self._left_out:
            raise KeyError(name)
        return self._base[name]

    @property
    def names(self) -> KeysView[str]:
        return {name: None for name in self._base if name != self._left_out}.keys()

    def like(self, name: str) -> Tensor:
        return self._base.like(name)


@dataclass(frozen=True)
class PeftAdapter:
    """What an adapter folder holds."""

    path: Path
    config: AdapterConfig
    tensors: Stored
    told: Data  # config.json of the whole model, if one lies beside: names of classes

    @classmethod
    def is_there(cls, path: Path) -> bool:
        """Whether this is such a folder."""
        return (path / CONFIG).is_file()

    @classmethod
    def open(cls, path: Path | str) -> PeftAdapter:
        """The folder at `path`; only safetensors are opened."""
        folder = Path(path)
        if not cls.is_there(folder):
            raise WeightsError(f"{path} holds no {CONFIG}; an adapter is a folder with that and {WEIGHTS}")
        if not (folder / WEIGHTS).is_file():
            pickled = (folder / PICKLED).is_file()
            more = f"; {PICKLED} is a pickle, which heed does not open: save it again with peft" if pickled else ""
            raise WeightsError(f"{folder / WEIGHTS} is missing{more}")
        try:
            config = AdapterConfig.checked(read_data(folder / CONFIG))
            told = read_data(folder / MODEL) if (folder / MODEL).is_file() else {}
        except ConfigError as error:
            raise WeightsError(f"{folder / CONFIG}: {error}") from None
        return cls(folder, config, Stored([folder / WEIGHTS]), told)

    @property
    def modules(self) -> list[str]:
        """The layers that have an adapter, under peft's names without what stands before all of them."""
        return sorted({_bare(name).removesuffix(end) for name in self.tensors for end in (A, B) if name.endswith(end)})

    @property
    def whole(self) -> list[str]:
        """Tensors that are no part of an adapter: of modules that learnt in full."""
        return sorted(name for name in self.tensors if not name.endswith((A, B)))

    def scale(self, module: str) -> float:
        """How often counts what a layer has learnt."""
        return self.config.scale_of(module)

    def pair(self, module: str) -> tuple[Tensor, Tensor]:
        """A [rank, in] and B [out, rank]."""
        return self.tensors[f"{STEM}{module}{A}"], self.tensors[f"{STEM}{module}{B}"]

    def problems(self) -> Iterator[str]:
        """What the file itself is wrong in."""
        for name in self.tensors:
            if not name.startswith(STEM):
                yield f"{name} does not begin with {STEM}"
            elif not self.tensors.like(name).is_floating_point():
                yield f"{name} holds {self.tensors.like(name).dtype}, needed are floating-point numbers"
        for name in self.whole:
            owner = _bare(name).rpartition(".")[0]
            if not any(_holds(owner, saved) for saved in self.config.modules_to_save):
                saved = ", ".join(self.config.modules_to_save) or "none"
                yield f"{name} is neither lora_A nor lora_B, nor of modules_to_save ({saved})"
        for module in self.modules:
            names = [f"{STEM}{module}{end}" for end in (A, B)]
            lacking = [name for name in names if name not in self.tensors]
            if lacking:
                yield f"{lacking[0]} is missing"
                continue
            a, b = (list(self.tensors.like(name).shape) for name in names)
            rank = self.config.rank_of(module)
            if len(a) != 2 or len(b) != 2 or a[0] != rank or b[1] != rank:
                yield f"{module} has A of {a} and B of {b}; with rank {rank} they are [{rank}, in] and [out, {rank}]"


def adapted(base: Checkpoint, adapter: PeftAdapter) -> Opened:
    """The model of a base with these adapters, which then learns only through them; and with its modules in full."""
    _raise(adapter, list(adapter.problems()))
    opened = open_(_dressed(base, adapter))
    modules = Modules(opened.model, opened.table)
    known = {module: _place(module, modules.names) for module in adapter.modules}
    problems = [problem for module, place in known.items() for problem in _unfit(adapter, module, place, modules)]
    if not known and not adapter.whole:
        problems.append("it is empty")
    _raise(adapter, problems)
    with torch.no_grad():
        for module, place in known.items():
            if place is not None:
                _put(opened, adapter, module, modules, place)
    freeze(opened.model)
    return opened


def _put(opened: Opened, adapter: PeftAdapter, module: str, modules: Modules, place: str) -> None:
    """The adapter of one of their layers on each of ours: all of them read by A, each writes by its rows of B."""
    a, b = adapter.pair(module)
    for part in modules.module(place).parts:
        base = plain(part.name, modules.layers[part.name], "an adapter")
        layer = LoraLinear(base, len(a), adapter.scale(module)).train(base.training)
        layer.a.copy_(a)
        layer.b.copy_(b[part.rows])
        opened.model.set_submodule(part.name, layer)


def _unfit(adapter: PeftAdapter, module: str, place: str | None, modules: Modules) -> Iterator[str]:
    """What is wrong with one adapter for this model, in words."""
    if place is None:
        near = sorted({name.rpartition(".")[2] for name in modules.names})
        yield f"there is no linear layer {module} in this model; its layers end in {', '.join(near[:SHOWN])}"
        return
    try:
        parts = modules.module(place).parts
        for part in parts:
            plain(part.name, modules.layers[part.name], "an adapter")
    except (WeightsError, ConfigError) as error:
        yield f"{module}: {error}"
        return
    reads, writes = modules.layers[parts[0].name].in_features, sum(len(part.rows) for part in parts)
    a, b = (list(adapter.tensors.like(f"{STEM}{module}{end}").shape) for end in (A, B))
    if a[1] != reads or b[0] != writes:
        yield f"{module} is {[writes, reads]}, which does not fit A of {a} and B of {b}"


def _dressed(base: Checkpoint, adapter: PeftAdapter) -> Checkpoint:
    """The base with the modules that learnt in full: a head that it may not have had."""
    if not adapter.whole:
        return base
    full = {placed(_bare(name), base.tensors): adapter.tensors[name] for name in adapter.whole}
    tensors: Tensors = Over(base.tensors, Held(full))
    if "score.weight" in full:  # a decoder that tells classes writes no texts
        tensors = Without(tensors, "lm_head.weight")
    told: Data = {key: adapter.told[key] for key in ("id2label", "label2id", "problem_type") if key in adapter.told}
    ending = ENDINGS.get(adapter.config.task_type or "")
    classes: Data = {} if ending is None else {"architectures": [named_after(base.config, ending)]}
    return replace(base, config={**base.config, **classes, **told}, tensors=tensors)


def _place(module: str, names: list[str]) -> str | None:
    """The name of a layer in the checkpoint, saved with what stands before all names or without."""
    known = set(names)
    stems = {name.partition(".")[0] for name in names}
    several = (module, module.partition(".")[2], *sorted(f"{stem}.{module}" for stem in stems))
    return next((one for one in several if one in known), None)


def placed(name: str, tensors: Tensors) -> str:
    """The same for a tensor; one that is new keeps its name."""
    return _place(name, list(tensors)) or name


def _bare(name: str) -> str:
    return name.removeprefix(STEM)


def _holds(owner: str, saved: str) -> bool:
    """Whether a module is one of those that were saved in full, or within one."""
    return f".{saved}." in f".{owner}."


def _raise(adapter: PeftAdapter, problems: list[str]) -> None:
    if problems:
        shown = "\n  - ".join(problems[:SHOWN])
        more = f"\n  and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise WeightsError(f"{adapter.path} holds no adapter for this model:\n  - {shown}{more}")
