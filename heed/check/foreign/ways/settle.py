"""What a call that works still has to be asked: whether it makes sense, where heads stand, which lengths it takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from ..calls import Axes, Call, Face
from ..layouts import Layout
from ..words import Role


def sample(call: Call) -> tuple[Tensor, Tensor | None]:
    """A stream to try a call with, and a source where it looks at one."""
    draw, sizes = torch.Generator().manual_seed(0), call.sizes
    rows = 1 if call.axes is Axes.BARE and call.face is Face.HEADS else sizes.rows
    x = torch.randn(rows, sizes.tokens, sizes.width, generator=draw, dtype=torch.float64)
    source = torch.randn(rows, sizes.source, sizes.width, generator=draw, dtype=torch.float64)
    return x, source if call.crossed else None


class NoSense(Exception):
    """A call that can be made, though what is passed is not what is meant: a guess must not become a finding."""


def sane(call: Call) -> bool:
    """Whether a row alone gives what it gives among others, and what is looked at matters."""
    x, source = sample(call)
    alone = call(x[:1], None if source is None else source[:1])
    together = call(x, source)
    if not torch.allclose(alone, together[:1], equal_nan=True):
        return False
    return source is None or not torch.allclose(call(x, source + 1), together, equal_nan=True)


def hides_all(call: Call) -> bool:
    """Whether it is given masks that may hide everything: what True means in them is not known yet."""
    return any(call.signature.roles[name] in (Role.MASK, Role.PADDING) for name in call.made)


def settled(call: Call) -> Call:
    """The same with its axes as an experiment shows them, and bound to the one length that it takes, if there is."""
    call = _turned(call)
    if call.layout is Layout.GRID:
        call = _series(call)
    return _bound(call)


def _reached(call: Call) -> Tensor | None:
    """Which tokens move when the first token of the first row does. [B, T]"""
    x, source = sample(call)
    other = x.clone()
    other[0, 0] += torch.randn(x.shape[2], generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    try:
        with torch.no_grad():
            gap = (call(other, source) - call(x, source)).abs().nan_to_num(1.0).amax(-1)
    except Exception:  # foreign code may raise anything
        return None
    return gap > 1e-9


def _turned(call: Call) -> Call:
    """[rows, tokens, heads, size] where heads would attend to heads otherwise."""
    if call.face is not Face.HEADS or call.axes is not Axes.HEADS_FIRST:
        return call
    moved, other = _reached(call), call.with_(axes=Axes.TOKENS_FIRST)
    turned = _reached(other)
    alone = moved is not None and not bool(moved[0, 1:].any())
    return other if alone and turned is not None and bool(turned[0, 1:].any()) else call


def _series(call: Call) -> Call:
    """A grid in which only one axis is attended along: texts side by side, not an image."""
    moved = _reached(call)
    if moved is None or bool(moved[0].all()):
        return call
    for layout in (Layout.SERIES, Layout.STEPS):
        other = call.with_(layout=layout)
        reached = _reached(other)
        if reached is not None and bool(reached[0].all()) and not bool(reached[1:].any()):
            return other
    return call


def _bound(call: Call) -> Call:
    """A target of one length only is asked nothing about others."""
    x, source = sample(call)
    if source is not None and call.face is Face.POOLED:
        only = call.with_(only=source.shape[1])
        return call if _taken(call, x, source[:, : 4 if call.layout in (Layout.IMAGE, Layout.GRID) else -1]) else only
    shorter = (call.sizes.tokens - 1, 1) if call.layout not in (Layout.IMAGE, Layout.GRID) else (9, 4, 12)
    for tokens in islice((n for n in shorter if n > 0), 3):
        if _taken(call, x[:, :tokens] if tokens <= x.shape[1] else x.repeat(1, 2, 1)[:, :tokens], source):
            return call
    return call.with_(only=call.sizes.tokens, sizes=replace(call.sizes, longest=call.sizes.tokens))


def _taken(call: Call, x: Tensor, source: Tensor | None) -> bool:
    try:
        with torch.no_grad():
            call(x, source)
    except Exception:  # foreign code may raise anything
        return False
    return True
