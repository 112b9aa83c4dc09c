"""Residual connections as instructions: what each part reads, and how what it gives is added to the stream."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .. import operands

if TYPE_CHECKING:
    from ...core.contract import Mixer
    from ...parts.residual.wired import (
        NormedWired,
        ParallelWired,
        PostWired,
        PreWired,
        RescaledWired,
        SandwichWired,
    )
    from .emitter import Emitter

    Parts = Sequence[Mixer[Any]]


def post(e: Emitter, wiring: PostWired, parts: Parts, stream: int) -> None:
    """x ← norm(alpha · x + part(x))"""
    for norm, part in zip(wiring.norms, parts, strict=True):
        e.part(part, stream, stream, wiring.alpha)
        e.norm(norm, stream, stream)


def pre(e: Emitter, wiring: PreWired, parts: Parts, stream: int) -> None:
    """x ← alpha · x + part(norm(x))"""
    normed = e.like(stream, "normed")
    for norm, part in zip(wiring.norms, parts, strict=True):
        e.norm(norm, stream, normed)
        e.part(part, normed, stream, wiring.alpha)


def normed(e: Emitter, wiring: NormedWired, parts: Parts, stream: int) -> None:
    """x ← norm(x); x ← x + part(x)"""
    for norm, part in zip(wiring.norms, parts, strict=True):
        e.norm(norm, stream, stream)
        e.part(part, stream, stream)


def sandwich(e: Emitter, wiring: SandwichWired, parts: Parts, stream: int) -> None:
    """x ← x + after(part(before(x)))"""
    normed, beside = e.like(stream, "normed"), e.like(stream, "beside")
    for (before, after), part in zip(list(pairwise(wiring.norms))[::2], parts, strict=True):
        e.norm(before, stream, normed)
        e.part(part, normed, beside, 0.0)
        e.norm(after, beside, beside)
        e.builder.add(operands.Add(1.0, 1.0), stream, beside)


def parallel(e: Emitter, wiring: ParallelWired, parts: Parts, stream: int) -> None:
    """x ← x + Σ part(norm(x))"""
    normed = [e.like(stream, name) for name, _ in zip(("normed", "second", "third"), wiring.norms, strict=False)]
    for norm, register in zip(wiring.norms, normed, strict=True):
        e.norm(norm, stream, register)
    for place, part in enumerate(parts):
        e.part(part, normed[place % len(normed)], stream)


def rescaled(e: Emitter, wiring: RescaledWired, parts: Parts, stream: int) -> None:
    """x ← (x + share · part(norm(x))) · last"""
    normed, beside = e.like(stream, "normed"), e.like(stream, "beside")
    for norm, part in zip(wiring.norms, parts, strict=True):
        e.norm(norm, stream, normed)
        e.part(part, normed, beside, 0.0)
        e.builder.add(operands.Add(1.0, wiring.share), stream, beside)
    if wiring.last != 1.0:
        e.builder.add(operands.Add(wiring.last, 0.0), stream, stream)
