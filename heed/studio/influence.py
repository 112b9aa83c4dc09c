"""Influence, for any mixer: how much each output depends on each input, |∂y_i/∂x_j|, beside whatever weights it has.

The norm of a block of the Jacobian is exact with one backward pass per channel. A random vector of signs gives it in
one, on average: E |v J|² = |J|² (Frobenius). Rows are independent (law 3), so the outputs of one sequence are asked as
rows of one call: row i is only asked about its output i.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.contract import Given, Mixer, Where
from ..core.errors import InputError
from .maps import Floats

PROBES = 4
MOST = 512  # tokens: each of them is a row of a call
HELD = 1 << 22  # numbers of an input that is repeated as rows


@dataclass(frozen=True)
class Influence:
    """|∂y_i/∂x_j| of one mixer on one input. [T, T]"""

    norms: Floats
    probes: int  # 0: exact

    def correlation(self, weights: Floats) -> float | None:
        """With weights of the same pairs, over the pairs where either is not zero; None if one of them is constant."""
        met = (self.norms > 0) | (weights != 0)
        ours, theirs = self.norms[met].astype(np.float64), np.abs(weights[met]).astype(np.float64)
        if ours.size < 2 or not ours.std() or not theirs.std():
            return None
        return float(np.corrcoef(ours, theirs)[0, 1])


def influence(mixer: Mixer[Any], x: Tensor, where: Where, *, probes: int = PROBES, seed: int = 0) -> Influence:
    """Of a mixer on the sequence x [1, T, width]; `probes`: random vectors, or 0 for every channel."""
    tokens = x.shape[1]
    if tokens > MOST:
        raise InputError(
            f"the text has {tokens:,} tokens; influence is computed for at most {MOST}, because every one of them is "
            "asked about all others. Give a shorter text"
        )
    step = max(1, HELD // max(1, x.shape[1] * x.shape[2]))
    squares = torch.zeros(tokens, tokens, dtype=torch.float64)
    for begin in range(0, tokens, step):
        asked = torch.arange(begin, min(begin + step, tokens), device=x.device)
        squares[begin : begin + len(asked)] = _asked(mixer, x, where, asked, probes, seed)
    return Influence(squares.sqrt().float().numpy(), probes)


def _asked(mixer: Mixer[Any], x: Tensor, where: Where, asked: Tensor, probes: int, seed: int) -> Tensor:
    """The squared norms of these outputs' blocks. [outputs, T]"""
    rows = len(asked)
    found = torch.zeros(rows, x.shape[1], dtype=torch.float64)
    with torch.enable_grad():
        fed = x.detach().expand(rows, -1, -1).clone().requires_grad_()
        y, _ = mixer(fed, _repeated(where, rows))
        if not y.requires_grad:
            return found  # nothing depends on the input
        vectors = list(_vectors(y.shape[-1], probes, seed, y))
        for vector in vectors:
            told = torch.zeros_like(y)
            told[torch.arange(rows, device=y.device), asked] = vector
            (gradient,) = torch.autograd.grad(y, fed, told, retain_graph=True, allow_unused=True)
            if gradient is not None:
                found += gradient.double().square().sum(-1).cpu()
    return found / (probes or 1)


def _vectors(width: int, probes: int, seed: int, like: Tensor) -> Iterator[Tensor]:
    """Signs that are drawn, or the axes one by one."""
    drawn = torch.Generator().manual_seed(seed)
    for _ in range(probes):
        yield (torch.randint(0, 2, (width,), generator=drawn) * 2 - 1).to(like)
    if not probes:
        yield from torch.eye(width, dtype=like.dtype, device=like.device)


def _repeated(where: Where, rows: int) -> Where:
    """The same tokens in several rows."""
    given = where.given
    if any(one is not None for one in (given.encoder_output, given.shared, given.neighbours)):
        where = where.beside(Given(marked=given.marked, segment=given.segment))
    marked = None if given.marked is None else given.marked.expand(rows, -1)
    segment = None if given.segment is None else given.segment.expand(rows, -1)
    many = Where(where.order.expand(rows, -1), where.position.expand(rows, -1), Given(marked=marked, segment=segment))
    many.known(where.span)
    return many
