"""Softmax self-attention and cross-attention as instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ...kernels.abi import BOTH_WAYS
from .. import operands
from ..program import must

if TYPE_CHECKING:
    from ...mixers import Attention, Cross
    from ...parts.masks import Causal, Whole, Window
    from .emitter import Emitter

PAIRS = "its score is no plain dot product"


def attention(e: Emitter, part: Attention, source: int, target: int, old: float) -> None:
    """target = old · target + attention(source)."""
    must(part.score is None, part, PAIRS)
    cache, back = e.sight(part)
    query = e.product(part.query, source, "query")
    named = ((part.key, "key"), (part.value, "value"))
    key, value = (e.product(layer, source, e.entry(name)) for layer, name in named)
    if part.clip is not None:
        for register in (query, key, value):
            e.builder.add(operands.Clamp(part.clip), register)
    for norm, register, heads in ((part.query_norm, query, part.heads), (part.key_norm, key, part.kv_heads)):
        if norm is not None:
            e.norm(norm, register, register, groups=int(heads))
    turned = ((query, int(part.heads)), (key, int(part.kv_heads)))
    slopes = e.position(part.position, int(part.head_size), turned)
    must(slopes is None or cache != BOTH_WAYS, part.position, "its scores fall on one side only")
    mixed = _attend(e, part, (query, key, value), (cache, back), part.cap, slopes)
    e.attended(part, key, value)
    _out(e, part, mixed, target, old)


def cross(e: Emitter, part: Cross, source: int, target: int, old: float) -> None:
    """target = old · target + cross(source), whose keys and values were made when the state was started."""
    must(part.score is None, part, PAIRS)
    must(part.clip is None and part.query_norm is None, part, "clipped or normed queries")
    query = e.product(part.query, source, "query")
    mixed = _attend(e, part, (query, -1, -1), (e.builder.cache(source=True), -1), None, None)
    e.attended(part, -1, -1)
    _out(e, part, mixed, target, old)


def _attend(
    e: Emitter,
    part: Attention | Cross,
    three: tuple[int, int, int],
    sight: tuple[int, int],
    cap: float | None,
    slopes: Tensor | None,
) -> int:
    query, key, value = three
    heads, shared, size = int(part.heads), int(part.kv_heads), int(part.head_size)
    cache, back = sight
    mixed = e.builder.register("mixed", heads * size)
    told = operands.Attend(cache, heads, shared, size, size, back, part.scale, cap or 0.0, slopes)
    e.builder.add(told, mixed, query, key=key, value=value)
    return mixed


def _out(e: Emitter, part: Attention | Cross, mixed: int, target: int, old: float) -> None:
    if part.norm is not None:
        e.norm(part.norm, mixed, mixed)
    e.settle(part.out, mixed, target, old)


def causal(mask: Causal) -> tuple[int, int]:
    """Back and ahead: all before, nothing after."""
    return -1, 0


def whole(mask: Whole) -> tuple[int, int]:
    """All on both sides."""
    return -1, -1


def window(mask: Window) -> tuple[int, int]:
    """So many on either side."""
    return mask.back, mask.ahead
