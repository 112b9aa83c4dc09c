"""Dropout while training: what drawing the zeros costs beside torch's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch.autograd import grad

from benchmarks.measure import race
from benchmarks.report import Row, Target, compared
from heed.parts.layers.dropout import dropped

SHARE = 0.1
SHAPES = {"the stream of 64 sentences of 32 tokens": (64, 32, 512), "their hidden channels": (64, 32, 2048)}


def rows(rounds: int | None) -> Iterator[Row]:
    """Forward and backward, float32, a tenth dropped."""
    torch.manual_seed(0)
    for what, shape in SHAPES.items():
        x, upstream = torch.randn(shape, requires_grad=True), torch.randn(shape)
        samples = race(
            {
                "heed": lambda x=x, g=upstream: grad(dropped(x, SHARE), x, g),  # type: ignore[misc]
                "torch": lambda x=x, g=upstream: grad(F.dropout(x, SHARE), x, g),  # type: ignore[misc]
            },
            rounds or 20,
        )
        yield compared(f"{what}, {shape}; peer: torch's dropout", samples["heed"], samples["torch"], Target(0.6))
