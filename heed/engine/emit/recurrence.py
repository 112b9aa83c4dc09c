"""Retention and RWKV's weighted means as instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...kernels.abi import Mode
from .. import operands
from ..program import must

if TYPE_CHECKING:
    from ...mixers import Retention, Rwkv
    from .emitter import Emitter


def retention(e: Emitter, part: Retention, source: int, target: int, old: float) -> None:
    """norm(q S) ⊙ silu(gate x), S = γ S + kᵀ v"""
    must(e.token_by_token, part, "rows are long: chunks of torch are quicker than one token after the other")
    must(type(part.divisor).__name__ == "Undivided", part.divisor, "a divisor has no instruction")
    query, key = (e.product(layer, source, name) for layer, name in ((part.query, "query"), (part.key, "key")))
    value = e.product(part.value, source, "value")
    heads, size, wide = int(part.heads), int(part.head_size), int(part.value_size)
    e.position(part.position, size, ((query, heads), (key, heads)))
    mixed = e.builder.register("mixed", heads * wide)
    gamma = torch.tensor(part.fade, dtype=torch.float64, device="cpu").exp().float()
    told = operands.Retain(e.builder.cell(), heads, size, wide, part.scale, gamma)
    e.builder.add(told, mixed, query, key=key, value=value)
    e.norm(part.norm, mixed, mixed, groups=heads)
    e.multiply(part.gate, source, mixed, Mode.TIMES, "silu")
    e.settle(part.out, mixed, target, old)


def rwkv(e: Emitter, part: Rwkv, source: int, target: int, old: float) -> None:
    """σ(receptance x) ⊙ wkv, of tokens mixed with the one before"""
    last, above, below, level = (e.builder.cell() for _ in range(4))
    mixes = [shifted(e, mix, source, last, name) for mix, name in ((part.mix_key, "a"), (part.mix_value, "b"))]
    key, value = (
        e.product(layer, register, name)
        for layer, register, name in zip((part.key, part.value), mixes, ("key", "value"), strict=True)
    )
    mixed = e.builder.register("mixed", int(part.hidden))
    e.builder.add(operands.Wkv(above, below, level, part.decay, part.bonus), mixed, key=key, value=value)
    gate = shifted(e, part.mix_receptance, source, last, "a")
    e.multiply(part.receptance, gate, mixed, Mode.TIMES, "sigmoid")
    e.builder.add(operands.Keep(last), -1, source)
    e.settle(part.out, mixed, target, old)


def shifted(e: Emitter, share: Tensor, source: int, last: int, name: str) -> int:
    """The token and the one before it, mixed."""
    to = e.builder.register(f"shifted {name}", e.builder.widths[source])
    e.builder.add(operands.Shift(last, share), to, source)
    return to
