"""How strongly each output of a mixer depends on each of its inputs: the norms of the blocks of its Jacobian.

    influence[i, j] = ‖∂y_i / ∂x_j‖_F

It is there for any mixer, also where no matrix of weights is (LSTM, RWKV, Mamba). For a random vector v of signs the
mean of ‖vᵀ ∂y_i/∂x_j‖² is the square of that norm, so a few of them give it quickly; all unit vectors give it exactly.
What a token cannot see has a gradient of exactly zero, either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..core.contract import Given, Mixer, Where
from ..core.errors import InputError
from ..core.state import Seen
from ..pipelines.attentions import Inspected
from .collect import SELF, Call, Layer, Place, calls_of, chosen, mixers_of, must_fit

PROBES = 8
AT_ONCE = 2**20  # numbers of a batch of rows, each of which asks about another output
PREFIX = "influence"  # of the part that such maps are


def influence_of(
    mixer: Mixer[Any], x: Tensor, where: Where, *, probes: int = PROBES, exact: bool = False, seed: int = 0
) -> Tensor:
    """Of one mixer on one row of a stream, [1, T, D]: who is influenced by whom, [T, T]."""
    if probes < 1:
        raise InputError(f"influence needs at least one probe, not {probes}; {PROBES} are usual, exact=True takes all")
    tokens = x.shape[1]
    with torch.no_grad():
        y, _ = mixer(x, where)
    outputs, width = y.shape[1:]
    asked = _units(width, y) if exact else _signs(probes, outputs, width, y, seed)
    squares = torch.zeros(outputs, tokens, dtype=torch.float64)
    pairs = [(probe, output) for probe in range(len(asked)) for output in range(outputs)]
    step = max(1, AT_ONCE // max(1, tokens * x.shape[2]))
    for begin in range(0, len(pairs), step):
        some = pairs[begin : begin + step]
        rows = len(some)
        live = x.detach().expand(rows, *x.shape[1:]).clone().requires_grad_()
        with torch.enable_grad():
            y, _ = mixer(live, _expanded(where, rows))
            told = [
                y[row, output] @ asked[probe][min(output, len(asked[probe]) - 1)]
                for row, (probe, output) in enumerate(some)
            ]
            total = torch.stack(told).sum()
            moved = (
                torch.autograd.grad(total, live, allow_unused=True, materialize_grads=True)[0]
                if total.requires_grad
                else torch.zeros_like(live)
            )
        for row, (_, output) in enumerate(some):
            squares[output] += moved[row].double().square().sum(-1).cpu()
    return (squares if exact else squares / probes).sqrt().float()


def _signs(probes: int, outputs: int, width: int, like: Tensor, seed: int) -> Tensor:
    """Random vectors of +1 and -1, others for each output. [probes, outputs, width]"""
    draw = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (probes, outputs, width), generator=draw) * 2 - 1
    return signs.to(like)


def _units(width: int, like: Tensor) -> Tensor:
    """All unit vectors, the same for each output. [width, 1, width]"""
    return torch.eye(width, dtype=like.dtype, device=like.device)[:, None]


def _expanded(where: Where, rows: int) -> Where:
    """The same tokens in so many rows, with all that they were given."""

    def seen(entries: Seen | None) -> Seen | None:
        if entries is None:
            return None
        parts = (part.expand(rows, *part.shape[1:]) for part in entries.parts)
        return Seen(entries.order.expand(rows, -1), entries.position.expand(rows, -1), *parts)

    def row(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.expand(rows, -1)

    told = where.given
    given = Given(
        seen(told.encoder_output), seen(told.shared), seen(told.neighbours), row(told.marked), row(told.segment)
    )
    many = Where(where.order.expand(rows, -1), where.position.expand(rows, -1), given)
    many.known(where.span)
    return many


def influences_of(
    model: Mixer[Any],
    reading: Inspected,
    names: Sequence[str] | None = None,
    *,
    layer: int | None = None,
    exact: bool = False,
    seed: int = 0,
) -> list[Layer]:
    """Of the mixers of a model, or of these, each on the stream that it gets: a layer each, of one head."""
    known = {name: place for name, (_, place) in mixers_of(model).items() if names is None or name in names}
    if not known:
        raise InputError(
            "this model has no stack of blocks whose mixers could be asked for their influence; "
            "heed.views.influence_of(mixer, x, where) asks one"
        )
    wanted = chosen(known, layer)
    must_fit(reading, len(wanted))
    calls = calls_of(model, reading, list(wanted))
    mixers, found = mixers_of(model), []
    for name, place in wanted.items():
        for depth, call in zip(place.calls, calls[name], strict=False):
            if layer in (None, depth):
                found.append(_layer(name, mixers[name][0], Place(place.part, (depth,)), call, reading, exact, seed))
    return sorted(found, key=lambda one: one.number)


def _layer(name: str, mixer: Mixer[Any], place: Place, call: Call, reading: Inspected, exact: bool, seed: int) -> Layer:
    found = influence_of(mixer, call.x, replace(call.where), exact=exact, seed=seed)
    of_source = reading.source is not None and (reading.ids is None or place.part == "encoder")
    names = tuple(reading.sources(len(found)) if of_source else reading.tokens)
    names = names if len(names) == len(found) else tuple(map(str, range(len(found))))
    part = PREFIX if place.part == SELF else f"{PREFIX}, {place.part}"
    return Layer(part, place.calls[0], name, (0,), found[None], names, names)


def correlation(one: Tensor, other: Tensor) -> float:
    """Pearson's, over all pairs of tokens. [T, T] twice"""
    both = torch.stack((one.double().flatten(), other.double().flatten()))
    return float(torch.corrcoef(both)[0, 1])
