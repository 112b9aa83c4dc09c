"""Statements: the fast forms of `attend` equal the written-out one, looking changes nothing, cuts change nothing."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

import tomli_w
import torch
from torch import Tensor

from ..core.cases import distance, gradients_of
from ..core.config import Config, kind_of
from ..core.contract import Given, Mixer, Where
from ..core.laws import BOUND, Finding
from ..mixers.attention import SAMPLE_MASKS
from ..parts.attention.attend import attend, written_out
from ..parts.attention.sdpa import How, pays
from ..parts.look import look, points
from ..parts.masks import Causal, Mask, Segments, Sight, Window
from ..parts.scores import ScoreConfig, pool
from .base import largest

EXACT = 1e-13  # float64, relative: sums of a few hundred terms in another order


def round_trips(sample: Config) -> Finding:
    """A configuration written as plain data, JSON and TOML comes back equal."""
    kind = type(sample)
    data = sample.dump()
    same = all(
        kind.load(read) == sample for read in (data, json.loads(json.dumps(data)), tomllib.loads(tomli_w.dumps(data)))
    )
    return Finding("config round trip", 0.0 if same else 1.0, 0.0, "equal" if same else "comes back different")


def looking(mixer: Mixer[Any], x: Tensor, where: Where) -> Finding:
    """The output with every point watched, against the output with none: equal to the last bit."""
    if not points(mixer):
        return Finding("looking changes nothing", 0.0, 0.0, "has no points to look at")
    with torch.no_grad():
        plain, _ = mixer(x, where)
        with look(mixer) as seen:
            watched, _ = mixer(x, where)
    shown = sum(bool(tensors) for tensors in seen.values())
    error = float((plain - watched).abs().max()) if shown else float("inf")
    return Finding("looking changes nothing", error, 0.0, f"{shown} points shown")


def over_ids(model: Mixer[Any], tokens: Tensor, given: Given) -> Finding:
    """A model over token ids: one call, against two, and against one with ids in its padding that do not exist."""
    rows, length = tokens.shape
    some, first = length - 2, length // 2
    late = torch.arange(length) >= some
    with torch.no_grad():
        whole, _ = model(tokens, Where.run(rows, length).beside(given))
        short, _ = model(tokens[:, :some], Where.run(rows, some).beside(given))
        ragged = Where.ragged([some] * rows, width=length)
        padded, _ = model(tokens.masked_fill(late, -100), ragged.beside(given))
        error = distance(short, padded[:, :some])
        if model.streams:
            begun, state = model(tokens[:, :first], Where.run(rows, first), model.start(rows, given))
            rest, _ = model(tokens[:, first:], Where.run(rows, length - first, start=first), state)
            error = max(error, distance(whole, torch.cat((begun, rest), 1)))
    return Finding("ids", error, BOUND, "over token ids")


def fused() -> list[Finding]:
    """The fused kernel, over masks, heads, key heads, biases and scales: values and gradients."""
    cases = [(mask, heads, kv) for mask in (Causal(), *SAMPLE_MASKS) for heads, kv in ((4, 4), (4, 2), (4, 1))]
    return [
        _equal(f"{mask!r} with {heads}/{kv} heads{', bias' if bias else ''}", sight, heads, kv, bias=bias)
        for mask, heads, kv in cases
        for sight in _sights(mask, 12)
        for bias in (False, True)
    ]


def banded() -> list[Finding]:
    """The block-by-block form of masks that reach only so far, at lengths where it is used."""
    masks: tuple[Mask, ...] = (Window(back=0), Window(back=5), Window(back=33), Window(back=40, ahead=17))
    masks += (Causal() & Segments(length=7, memory=5), Window(back=3) | (Causal() & Segments(length=9)))
    return [
        _equal(f"{mask!r}, 400 tokens", sight, 4, 2)
        if pays(sight, How(None, 1.0))
        else Finding("attend", inf, EXACT, f"{mask!r}, 400 tokens: the form is not taken")
        for mask in masks
        for sight in _sights(mask, 400)
    ]


def blind() -> list[Finding]:
    """A token that sees nothing gets zeros, and every gradient is finite, in both forms."""
    visible = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    visible[0, :, 2] = False
    visible[1] = False
    query, key, value = _tensors(2, 5, 7, 4, 2)
    outputs = {"attend": attend(query, key, value, visible), "written out": written_out(query, key, value, visible)[0]}
    found = []
    for name, y in outputs.items():
        gradients = torch.autograd.grad(y.square().sum(), (query, key, value), retain_graph=True)
        finite = all(bool(g.isfinite().all()) for g in gradients)
        error = float(torch.cat([y[0, 2].flatten(), y[1].flatten()]).detach().abs().max()) if finite else float("inf")
        found.append(Finding("blind", error, 0.0, name if finite else f"{name}: a gradient is not finite"))
    return found


def pooled(configs: Iterable[type[ScoreConfig]]) -> list[Finding]:
    """Weights of a score sum to one, or are all zero where nothing is visible; gradients are finite everywhere.

    None is below zero or lies on what is hidden, and they are those that values are summed with.
    """
    found = []
    visible = torch.tensor([[True] * 5, [True, False, True, True, False], [False] * 5])
    needed = {"additive": {"hidden": 7}, "location": {"length": 9}}
    for config in configs:
        score = config.load(needed.get(kind_of(config), {})).build(3, 3).double()
        query, key, value = (torch.randn(n, 3, generator=_seed(), dtype=torch.float64) for n in (3, 5, 5))
        query, key = (0.2 * query).requires_grad_(), (0.2 * key).requires_grad_()
        y, weight = pool(score, query, key, value, visible)
        wanted = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
        finite = all(bool(slope.isfinite().all()) for slope in gradients_of(y.square().sum(), (query, key)))
        off = (weight.sum(-1) - wanted, weight.clamp(max=0.0), weight[~visible], y - weight @ value)
        error = largest(float(part.detach().abs().max()) for part in off) if finite else inf
        found.append(Finding("pooled", error, EXACT, kind_of(config)))
    return found


ATTEND: dict[str, Callable[[], list[Finding]]] = {
    "fused = written out": fused,
    "banded = written out": banded,
    "a query that sees nothing gets zeros": blind,
}


def _sights(mask: Mask, tokens: int) -> Iterator[Sight]:
    """Whole rows, ragged rows, the last tokens looking back at all, and whole rows looking at other, ragged ones."""
    whole = Where.run(2, tokens)
    yield mask(whole, whole)
    ragged = Where.ragged([tokens, tokens // 2])
    yield mask(ragged, ragged)
    yield mask(Where.run(2, tokens // 3, start=tokens - tokens // 3), whole)
    yield mask(whole, ragged)


def _equal(words: str, sight: Sight, heads: int, kv_heads: int, *, bias: bool = False) -> Finding:
    tokens, keys = sight.query.shape[1], sight.key.shape[1]
    query, key, value = _tensors(2, tokens, keys, heads, kv_heads)
    added = torch.randn(1, heads, tokens, keys, generator=_seed(), dtype=torch.float64) if bias else None
    inputs = (query, key, value) if added is None else (query, key, value, added.requires_grad_())
    fast = attend(query, key, value, sight, bias=added, scale=0.7)
    slow, _ = written_out(query, key, value, sight, bias=added, scale=0.7)
    target = torch.linspace(-1, 1, slow.numel(), dtype=slow.dtype).view_as(slow)
    pairs = zip(
        (fast, *torch.autograd.grad((fast * target).sum(), inputs)),
        (slow, *torch.autograd.grad((slow * target).sum(), inputs)),
        strict=True,
    )
    error = largest(float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1)) for a, b in pairs)
    return Finding("attend", error, EXACT, words)


def _tensors(rows: int, tokens: int, keys: int, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = _seed()
    shapes = ((rows, tokens, heads, 6), (rows, keys, kv_heads, 6), (rows, keys, kv_heads, 6))
    query, key, value = (torch.randn(s, generator=draw, dtype=torch.float64).requires_grad_() for s in shapes)
    return query, key, value


def _seed() -> torch.Generator:
    return torch.Generator().manual_seed(7)
