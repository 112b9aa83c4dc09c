"""Feed-forwards as instructions: plain, gated, and RWKV's channel mix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.abi import Mode
from .. import operands
from .recurrence import shifted

if TYPE_CHECKING:
    from ...parts.feedforward.channel_mix import ChannelMix
    from ...parts.feedforward.mlp import FeedForward, Gated
    from .emitter import Emitter


def feedforward(e: Emitter, part: FeedForward, source: int, target: int, old: float) -> None:
    """down(act(up x))"""
    hidden = e.product(part.up, source, "hidden", activation=part.activation)
    _down(e, part, hidden, target, old)


def gated(e: Emitter, part: Gated, source: int, target: int, old: float) -> None:
    """down(act(gate x) ⊙ up x)"""
    hidden = e.product(part.gate, source, "hidden", activation=part.activation)
    e.multiply(part.up, source, hidden, Mode.TIMES)
    _down(e, part, hidden, target, old)


def _down(e: Emitter, part: FeedForward | Gated, hidden: int, target: int, old: float) -> None:
    if part.norm is not None:
        e.norm(part.norm, hidden, hidden)
    e.settle(part.down, hidden, target, old)


def channel_mix(e: Emitter, part: ChannelMix, source: int, target: int, old: float) -> None:
    """σ(receptance x) ⊙ value relu²(key x), of tokens mixed with the one before"""
    last = e.builder.cell()
    hidden = e.product(part.key, shifted(e, part.mix_key, source, last, "a"), "hidden", "relu_squared")
    made = e.product(part.value, hidden, "channels")
    gate = shifted(e, part.mix_receptance, source, last, "a")
    e.multiply(part.receptance, gate, made, Mode.TIMES, "sigmoid")
    e.builder.add(operands.Keep(last), -1, source)
    e.builder.add(operands.Add(old, 1.0), target, made)
