"""Tokens that stand in their places, but that nobody looks at.

Padding ends a row, and a row is as long as its tokens. Where a pattern is laid over the width of a batch instead, as
reference libraries do, hidden tokens are part of the row: they are veiled. What they get themselves, if anything, is as
in the reference of the mixer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


class Veil(nn.Module):
    """Which tokens of a mixer are shown; None = all of them, as always but in a replay."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: Tensor | None = None  # [B, T]


@contextmanager
def veiled(model: nn.Module, shown: Tensor) -> Iterator[None]:
    """While this lasts, the mixers of a model that have a veil hide the tokens that are not shown. [B, T]"""
    veils = [part for part in model.modules() if isinstance(part, Veil)]
    for veil in veils:
        veil.shown = None if bool(shown.all()) else shown
    try:
        yield
    finally:
        for veil in veils:
            veil.shown = None
