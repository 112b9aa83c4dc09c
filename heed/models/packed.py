"""Rows of different lengths without their padding: what a token makes of itself is computed for real tokens alone.

All real tokens stand one behind the other, as a single row. Norms, projections and feed-forwards do not mind; attention
is taken row by row or, where rows are short, of padded rows again. What comes out is what padded rows give, for the
price of the tokens that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from ..core.contract import Mixer, Where
from ..core.state import Seen
from ..mixers import Attention
from ..parts.attention.attend import attend
from ..parts.feedforward.mlp import Positionwise
from .block import Block

if TYPE_CHECKING:
    from .stack import Stack

Form: TypeAlias = "Callable[[Attention, Tensor, Tensor, Tensor], Tensor]"  # attention, from queries, keys, values on

LONG = 64  # tokens of a row, on average, from which on attention row by row costs less than attention to padding
FULL = 0.9  # of the places are tokens: then padding costs less than what packing does


def packs(stack: Stack, where: Where) -> bool:
    """Whether there is padding enough, and nothing but what can do without."""
    if not where.span.padded or torch.compiler.is_compiling():
        return False
    if not all(type(block) is Block and all(map(_able, block.parts)) for block in stack.layers):
        return False
    return int(where.real.sum()) < FULL * where.order.numel()


def packed(stack: Stack, x: Tensor, where: Where) -> Tensor:
    """The stream after all blocks; zeros at padding. [B, T, D]"""
    real = where.real
    flat = Where(where.order[real][None], where.position[real][None])
    form = _by_rows(where, flat) if flat.order.numel() >= LONG * len(real) else _side_by_side(where)
    stream = stack.ends.enter(x[real][None])
    for block in stack.layers:
        parts = [_alone(part, flat, form) for part in block.parts]
        stream = block.wiring.whole(stream, parts)
    stream = stack.ends.leave(stream)
    return stream.new_zeros(*x.shape[:2], stream.shape[-1]).index_put((real,), stream[0])


def _able(part: Mixer[Any]) -> bool:
    if type(part) is Attention:
        return not part.weights.watched
    return isinstance(part, Positionwise)


def _alone(part: Mixer[Any], flat: Where, form: Form) -> Callable[[Tensor], Tensor]:
    """The part over all real tokens, without a state."""
    if isinstance(part, Positionwise):
        return part.alone
    assert isinstance(part, Attention)

    def mixed(x: Tensor) -> Tensor:
        query, key = part.position.turn(part.queries(x), flat), part.position.turn(part.keys(x), flat)
        return part.merge(form(part, query, key, part.position.turn_value(part.values(x), flat)))

    return mixed


def _by_rows(where: Where, flat: Where) -> Form:
    """Attention of one row after the other."""
    lengths = where.real.sum(1).tolist()
    both = zip(torch.split(flat.order, lengths, 1), torch.split(flat.position, lengths, 1), strict=True)
    stamps = [Where(order, position) for order, position in both]

    def form(part: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows = zip(stamps, *(torch.split(t, lengths, 1) for t in (query, key, value)), strict=True)
        return torch.cat([_attended(part, row, *three) for row, *three in rows if row.order.numel()], 1)

    return form


def _side_by_side(where: Where) -> Form:
    """Attention of rows with padding behind them."""
    real = where.real

    def form(part: Attention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows = (t.new_zeros(*real.shape, *t.shape[2:]).index_put((real,), t[0]) for t in (query, key, value))
        return _attended(part, where, *rows)[real][None]

    return form


def _attended(part: Attention, where: Where, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    seen = Seen.of(where, key, value)
    query, key = part.position.meet(query, key, where, seen)
    sight, bias = part.mask(where, seen), part.position.bias
    return attend(query, key, value, sight, bias=bias, scale=part.scale, cap=part.cap, dropout=part.drop)
