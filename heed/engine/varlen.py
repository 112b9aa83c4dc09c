"""Varlen rows: ragged rows without their padding. What a token makes of itself is computed for real tokens alone.

All real tokens stand one behind the other, as a single row. Norms, projections and feed-forwards do not mind; attention
is taken row by row or, where rows are short, of padded rows again. What comes out is what padded rows give, gradients
included, for the price of the tokens that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import Tensor

from ..core.contract import Mixer, Where
from ..core.state import Seen
from ..parts.feedforward.mlp import Positionwise
from .emit.table import BLOCK, name_of

if TYPE_CHECKING:
    from ..mixers import Attention
    from ..models.stack import Stack

Attending: TypeAlias = "Callable[[Attention, Tensor, Tensor, Tensor], Tensor]"  # from queries, keys and values on

SPLIT = frozenset({"heed.mixers.attention:Attention"})  # these very classes: `project`, `attend_to` and `merge` are all
LONG = 64  # tokens of a row, on average, from which on attention row by row costs less than attention to padding
FULL = 0.9  # of the places are tokens: then padding costs less than what taking it out does


def pays(stack: Stack, where: Where) -> bool:
    """Whether there is padding enough, and nothing but what can do without."""
    if not where.span.padded or torch.compiler.is_compiling():
        return False
    if not all(name_of(type(block)) == BLOCK and all(map(_able, block.parts)) for block in stack.layers):
        return False
    return int(where.real.sum()) < FULL * where.order.numel()


def varlen(stack: Stack, x: Tensor, where: Where) -> Tensor:
    """The stream after all blocks; zeros at padding. [B, T, D]"""
    real = where.real
    flat = Where(where.order[real][None], where.position[real][None])
    attending = _by_rows(where, flat) if flat.order.numel() >= LONG * len(real) else _side_by_side(where)
    stream = stack.ends.enter(x[real][None])
    for block in stack.layers:
        parts = [_alone(part, flat, attending) for part in block.parts]
        stream = block.wiring.whole(stream, parts)
    stream = stack.ends.leave(stream)
    return stream.new_zeros(*x.shape[:2], stream.shape[-1]).index_put((real,), stream[0])


def _able(part: Mixer[Any]) -> bool:
    if isinstance(part, Positionwise):
        return True
    return name_of(type(part)) in SPLIT and not cast("Attention", part).weights.watched


def _alone(part: Mixer[Any], flat: Where, attending: Attending) -> Callable[[Tensor], Tensor]:
    """The part over all real tokens, without a state."""
    if isinstance(part, Positionwise):
        return part.alone

    attention = cast("Attention", part)

    def mixed(x: Tensor) -> Tensor:
        return attention.merge(attending(attention, *attention.project(x, flat)))

    return mixed


def _by_rows(where: Where, flat: Where) -> Attending:
    """Attention of one row after the other."""
    lengths = where.real.sum(1).tolist()
    both = zip(torch.split(flat.order, lengths, 1), torch.split(flat.position, lengths, 1), strict=True)
    stamps = [Where(order, position) for order, position in both]

    def attending(part: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows = zip(stamps, *(torch.split(t, lengths, 1) for t in (query, key, value)), strict=True)
        return torch.cat([part.attend_to(q, row, Seen.of(row, k, v)) for row, q, k, v in rows if row.order.numel()], 1)

    return attending


def _side_by_side(where: Where) -> Attending:
    """Attention of rows with padding behind them."""
    real = where.real

    def attending(part: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows = (t.new_zeros(*real.shape, *t.shape[2:]).index_put((real,), t[0]) for t in (query, key, value))
        q, k, v = rows
        return part.attend_to(q, where, Seen.of(where, k, v))[real][None]

    return attending
