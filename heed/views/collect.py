"""Which points of a model show attention weights, of which layer and part they are, and what they show of one text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.contract import Mixer, Where
from ..core.errors import InputError
from ..models.block import Block
from ..models.stack import Stack
from ..parts.look import Look, look, points
from ..pipelines.attentions import POINT, Inspected, is_cross, numbered

ASKED = "asked"  # the weights of a second stream (XLNet), beside those of the first
MOST = 2**24  # pairs of tokens, over all layers looked at, whose weights are held at once
SELF, CROSS, SECOND = "self", "cross", "query stream"


class Place(NamedTuple):
    """Where in a model a module stands: its part, and the depths at which it is called, in order."""

    part: str
    calls: tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """The maps of one layer: a row is a token that looks, a column a token that is looked at."""

    part: str  # self, encoder, decoder, cross ...
    number: int  # its depth within the part
    point: str  # what is looked at
    heads: tuple[int, ...]
    weights: Tensor  # [heads, rows, columns]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def places(model: nn.Module) -> dict[str, Place]:
    """Where the blocks of a model stand, by the name of the block. A block that is shared stands at several depths."""
    found: dict[str, Place] = {}
    before: dict[str, int] = defaultdict(int)  # layers of the stacks of a part that came earlier
    for name, module in model.named_modules():
        if not isinstance(module, Stack):
            continue
        part = name.rpartition("stack")[0].strip(".") or SELF
        part = part.split(".")[0]
        for index in dict.fromkeys(module.order):
            calls = tuple(before[part] + depth for depth, block in enumerate(module.order) if block == index)
            found[f"{name}.blocks.{index}".lstrip(".")] = Place(part, calls)
        before[part] += len(module.order)
    return found


def place_of(name: str, known: dict[str, Place]) -> Place | None:
    """Of anything within a block."""
    pieces = name.split(".")
    return next((known[head] for end in range(len(pieces), 0, -1) if (head := ".".join(pieces[:end])) in known), None)


def weights_of(model: nn.Module) -> dict[str, Place]:
    """The points that show attention weights, and where they stand; what stands in no stack is a layer of its own."""
    known, found, loose = places(model), dict[str, Place](), 0
    for name in points(model):
        last = name.rpartition(".")[2]
        if last not in (POINT, ASKED):
            continue
        place = place_of(name, known)
        if place is None:
            place, loose = Place(name.partition(".")[0] if "." in name else SELF, (loose,)), loose + 1
        part = CROSS if "." in name and is_cross(name) else SECOND if last == ASKED else place.part
        found[name] = Place(part, place.calls)
    return found


def mixers_of(model: nn.Module) -> dict[str, tuple[Mixer[Any], Place]]:
    """The token mixer of every block."""
    known = places(model)
    return {
        f"{name}.mixer": (module.mixer, known[name])
        for name, module in model.named_modules()
        if isinstance(module, Block) and name in known
    }


def shows(mixer: nn.Module) -> bool:
    """Whether there is a point within it that shows its weights."""
    return any(isinstance(part, Look) and name.rpartition(".")[2] == POINT for name, part in mixer.named_modules())


def chosen(known: dict[str, Place], layer: int | None) -> dict[str, Place]:
    """Those of one layer; an unknown one is an error."""
    if layer is None:
        return known
    kept = {name: place for name, place in known.items() if layer in place.calls}
    if not kept:
        last = max(call for place in known.values() for call in place.calls)
        raise InputError(f"there is no layer {layer}; layers are counted from 0 to {last}")
    return kept


@torch.no_grad()
def layers_of(model: Mixer[Any], reading: Inspected, layer: int | None = None, head: int | None = None) -> list[Layer]:
    """The weights of every layer and head, or of one."""
    watched = chosen(weights_of(model), layer)
    must_fit(reading, len(watched))
    with look(model, *watched) as seen:
        reading.run(model)
    found = []
    for name, place in watched.items():
        for call, shown in zip(place.calls, seen[name], strict=False):
            if layer in (None, call) and shown.dim() == 4:
                found.append(_layer(Place(place.part, (call,)), name, shown[0], reading, head))
    if not found:
        raise InputError("nothing was shown: none of these layers computed weights over the tokens of this input")
    return sorted(found, key=lambda one: one.number)


def _layer(place: Place, name: str, weights: Tensor, reading: Inspected, head: int | None) -> Layer:
    count, rows, columns = weights.shape
    if head is not None and not 0 <= head < count:
        raise InputError(
            f"there is no head {head} in layer {place.calls[0]}; its heads are counted from 0 to {count - 1}"
        )
    heads = tuple(range(count)) if head is None else (head,)
    sourced = place.part == CROSS or (reading.source is not None and (reading.ids is None or place.part == "encoder"))
    looking = reading.sources(rows) if sourced and place.part != CROSS else reading.tokens
    seen = reading.sources(columns) if sourced and reading.source is not None else reading.tokens
    return Layer(
        place.part,
        place.calls[0],
        name,
        heads,
        weights[list(heads)].float().cpu(),
        _named(looking, rows),
        _named(seen, columns),
    )


def _named(names: Sequence[str], count: int) -> tuple[str, ...]:
    """The names, if there are as many; what was pooled, cut or added before has numbers."""
    return tuple(names) if len(names) == count else numbered(count)


def must_fit(reading: Inspected, layers: int) -> None:
    """Raise where the maps would be larger than what a machine holds, before anything is computed."""
    lengths = [given.shape[1] for given in (reading.ids, reading.source) if given is not None and given.dim() == 2]
    longest = max(lengths, default=0)
    if longest**2 * layers > MOST:
        most = int((MOST / layers) ** 0.5)
        raise InputError(
            f"{longest:,} tokens make maps of {longest**2:,} pairs in each of {layers} layers; at most {most:,} tokens "
            f"are looked at with so many layers{_fewer(longest, layers)}"
        )


def _fewer(longest: int, layers: int) -> str:
    if layers > 1 and longest**2 <= MOST:
        return "; choose one: layer=0 (--layer 0)"
    return f" ({int(MOST**0.5):,} with one); cut the text"


class Call(NamedTuple):
    """What a mixer was called with."""

    x: Tensor
    where: Where


@torch.no_grad()
def calls_of(model: Mixer[Any], reading: Inspected, names: Sequence[str]) -> dict[str, list[Call]]:
    """What these mixers are called with, while the model reads."""
    found: dict[str, list[Call]] = {name: [] for name in names}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, given: tuple[Any, ...]) -> None:
            found[name].append(Call(given[0].detach(), given[1]))

        return hook

    handles = [model.get_submodule(name).register_forward_pre_hook(keep(name)) for name in names]
    try:
        reading.run(model)
    finally:
        for handle in handles:
            handle.remove()
    return found
